"""The volumes of a guest cluster that is deleted: which claims on Harvester are theirs, and what their reclaim policies say.

Only the guest says it, in its PersistentVolumes, and its API ends with its servers. So both lists are recorded before the
first machine is deleted. A claim that is on neither is kept, since a volume that may hold data is deleted by an order that
names it, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.harvester.names import GUEST_UID, MACHINE_UID
from windrow.harvester.vms import claim_volumes_of
from windrow.kubernetes.objects import (
    annotations_of,
    finalizers_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    uid_of,
)
from windrow.kubernetes.resources import PVC, ObjectRef

# Of the CSI driver, ours and the Go one; a volume's handle is the name of its claim on Harvester.
CSI_DRIVER = "driver.harvesterhci.io"
MADE_BY_CSI = "windrow.io/csi-driver"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
# A status has to stay far below the megabyte of an object. Claims beyond it are kept.
MAX_RECORDED = 5000


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A claim on Harvester that is, or may be, a volume of the guest. `policy` is "" where none is recorded for it."""

    namespace: str
    name: str
    uid: str
    policy: str = ""
    guest_uid: str = ""
    users: tuple[str, ...] = ()  # VMs among whose volumes it is
    is_deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def ref(self) -> ObjectRef:
        return PVC.ref(self.name, self.namespace)

    def __str__(self) -> str:
        held = f" (finalizers: {', '.join(self.finalizers)})" if self.finalizers and self.is_deleting else ""
        return f"PersistentVolumeClaim {self.namespace}/{self.name}{held}"


def read_guest_volumes(volumes: Iterable[Mapping[str, Any]]) -> GuestVolumes:
    """What the PersistentVolumes of a guest say. A volume that was not provisioned, but made by hand, is retained: no
    provisioner would delete it either."""
    delete, retain = set[str](), set[str]()
    for raw in volumes:
        handle = nested(raw, "spec", "csi", "volumeHandle")
        if nested(raw, "spec", "csi", "driver") != CSI_DRIVER or not handle:
            continue
        is_provisioned = annotations_of(raw).get(PROVISIONED_BY) == CSI_DRIVER
        is_to_go = nested(raw, "spec", "persistentVolumeReclaimPolicy") == "Delete"
        (delete if is_provisioned and is_to_go else retain).add(str(handle))
    # One claim of two PersistentVolumes is kept when one of them says so.
    kept = sorted(retain)[:MAX_RECORDED]
    return GuestVolumes(tuple(sorted(delete - retain)[: MAX_RECORDED - len(kept)]), tuple(kept))


def read_volume_claims(
    claims: Iterable[Mapping[str, Any]],
    vms: Iterable[Mapping[str, Any]],
    recorded: GuestVolumes | None,
    guest_uid: str,
) -> tuple[VolumeClaim, ...]:
    """Those of the claims on Harvester that are recorded as volumes of the guest, or marked as its own, with which of `vms` use
    them. A disk of a machine is none."""
    users = _users_by_claim(vms)
    policies = dict.fromkeys(recorded.delete if recorded else (), "Delete")
    policies |= dict.fromkeys(recorded.retain if recorded else (), "Retain")
    found = []
    for raw in claims:
        if MACHINE_UID in annotations_of(raw):
            continue
        claim = _read_claim(raw)
        is_marked = guest_uid != "" and claim.guest_uid == guest_uid and MADE_BY_CSI in labels_of(raw)
        if is_marked or claim.name in policies:
            used = users.get(claim.name, ())
            found.append(replace(claim, policy=policies.get(claim.name, ""), users=tuple(used)))
    return tuple(sorted(found, key=lambda one: one.name))


def _users_by_claim(vms: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """By their specs: Harvester's annotation on a claim outlives the VM for a moment. One that goes uses nothing any more."""
    users: dict[str, list[str]] = {}
    for raw in vms:
        if not is_deleting(raw):
            for volume in claim_volumes_of(raw):
                name = str(nested(volume, "claimName", default=""))
                users.setdefault(name, []).append(f"{namespace_of(raw)}/{name_of(raw)}")
    return users


def _read_claim(raw: Mapping[str, Any]) -> VolumeClaim:
    return VolumeClaim(
        namespace_of(raw),
        name_of(raw),
        uid_of(raw),
        guest_uid=annotations_of(raw).get(GUEST_UID, ""),
        is_deleting=is_deleting(raw),
        finalizers=tuple(finalizers_of(raw)),
    )
