"""The volumes of a guest cluster that is deleted: which claims on Harvester are theirs, and what their reclaim policies say.

Only the guest says what is to become of them, in its PersistentVolumes, and its API ends with its servers. So both lists are
recorded before the first machine is deleted. A claim that is on neither is kept, since a volume that may hold data is
deleted by a request that names it, or not at all.

What the guest says is no proof that a claim is its own: a client that may write its PersistentVolumes, or copies them there
from another cluster, can name any claim of the namespace. The proof is on Harvester: our CSI driver marks the claims that it makes
with the uid of its guest. The Go driver marks nothing, and uids in names tell nothing that the guest could not have written,
so its claims are never proven.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.harvester.names import CSI_DRIVER, GUEST_UID, MACHINE_UID, MADE_BY_CSI
from windrow.harvester.resources import VM, VMI
from windrow.kubernetes.objects import (
    annotations_of,
    finalizers_of,
    is_deleting,
    is_dns_subdomain,
    labels_of,
    name_of,
    namespace_of,
    nested,
    objects_at,
    text_at,
    time_of,
    uid_of,
)
from windrow.kubernetes.resources import PVC, ObjectRef

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
# A status has to stay far below the megabyte of an object. Claims beyond it are kept. 5000 names `pvc-<uid>` fit.
MAX_RECORDED = 5000
MAX_RECORDED_BYTES = 256 * 1024
# A handle has at most 507 characters, mostly 45.
MAX_SNAPSHOTS = 500
_QUOTES_AND_COMMA = 3

# What a provisioner names volumes, and the Go driver its claims.
_PVC_NAME = re.compile(r"pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

UNMARKED = "no mark on it proves for which guest cluster it was made"


@dataclass(frozen=True, slots=True)
class Guest:
    """The guest of a Cluster that is deleted. `uid` is "" where it was never seen."""

    uid: str
    created: datetime | None
    # Another Cluster whose guest has the same uid, since one is a copy of the other's etcd; "" for none.
    twin: str = ""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A claim on Harvester that is, or may be, a volume of the guest. `policy` is "" where none is recorded for it.

    `unproven` says what the proof lacks that a CSI driver made it for this guest; "" where it is proven.
    """

    namespace: str
    name: str
    uid: str
    policy: str = ""
    unproven: str = ""
    users: tuple[str, ...] = ()  # VMs and instances among whose volumes it is, and what exports it to others
    unknown: str = ""  # what of its users, or of its snapshots, is not known
    snapshots: tuple[str, ...] = ()  # names of the VolumeSnapshots of it, also those of others
    volume_name: str = ""  # its volume on Harvester
    can_be_shared: bool = False
    is_deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def ref(self) -> ObjectRef:
        return PVC.ref(self.name, self.namespace)

    def __str__(self) -> str:
        held = f" (finalizers: {', '.join(self.finalizers)})" if self.finalizers and self.is_deleting else ""
        return f"PersistentVolumeClaim {self.namespace}/{self.name}{held}"


def read_guest_volumes(volumes: Iterable[Mapping[str, Any]], snapshots: Iterable[str] = ()) -> GuestVolumes:
    """What the PersistentVolumes of a guest say, with the handles of the snapshots that are to be deleted. A volume that was not provisioned, but made by hand, is retained: no
    provisioner would delete it either. A handle that can be the name of no claim is that of no volume."""
    delete, retain = set[str](), set[str]()
    for raw in volumes:
        handle = nested(raw, "spec", "csi", "volumeHandle")
        if nested(raw, "spec", "csi", "driver") != CSI_DRIVER:
            continue
        if not (isinstance(handle, str) and is_dns_subdomain(handle)):
            continue
        is_provisioned = annotations_of(raw).get(PROVISIONED_BY) == CSI_DRIVER
        is_to_go = nested(raw, "spec", "persistentVolumeReclaimPolicy") == "Delete"
        (delete if is_provisioned and is_to_go else retain).add(handle)
    # One claim of two PersistentVolumes is kept when one of them says so.
    kept, to_go = _take(sorted(retain), sorted(delete - retain))
    return GuestVolumes(to_go, kept, tuple(snapshots)[:MAX_SNAPSHOTS])


def _take(first: list[str], then: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """As many of both as a status has room for."""
    taken, size = 0, 0
    for name in (*first, *then)[:MAX_RECORDED]:
        size += len(name) + _QUOTES_AND_COMMA
        if size > MAX_RECORDED_BYTES:
            break
        taken += 1
    return tuple(first[:taken]), tuple(then[: max(0, taken - len(first))])


def read_volume_claims(
    claims: Iterable[Mapping[str, Any]],
    vms: Iterable[Mapping[str, Any]],
    recorded: GuestVolumes | None,
    guest: Guest,
) -> tuple[VolumeClaim, ...]:
    """Those of the claims on Harvester that are recorded as volumes of the guest, or marked as its own, with which of `vms`, VMs and
    their instances, use them. A disk of a machine is none."""
    users = _users_by_claim(vms)
    policies = dict.fromkeys(recorded.delete if recorded else (), "Delete")
    policies |= dict.fromkeys(recorded.retain if recorded else (), "Retain")
    found = []
    for raw in claims:
        if MACHINE_UID in annotations_of(raw):
            continue
        claim = _read_claim(raw, guest)
        if is_marked(raw, guest) or claim.name in policies:
            used = users.get(claim.name, ())
            found.append(replace(claim, policy=policies.get(claim.name, ""), users=tuple(used)))
    return tuple(sorted(found, key=lambda one: one.name))


def _users_by_claim(vms: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """By their specs: Harvester's annotation on a claim outlives the VM for a moment. One that goes uses nothing any more."""
    users: dict[str, list[str]] = {}
    for raw in vms:
        if not is_deleting(raw):
            for name in _claims_of(raw):
                users.setdefault(name, []).append(f"{_kind_of(raw)} {namespace_of(raw)}/{name_of(raw)}")
    return users


def _kind_of(raw: Mapping[str, Any]) -> str:
    return (VM if "template" in raw.get("spec", {}) else VMI).kind


def _claims_of(raw: Mapping[str, Any]) -> set[str]:
    """Of a VM or an instance. A DataVolume is called as its claim."""
    names = set()
    for path in (("spec", "template", "spec", "volumes"), ("spec", "volumes")):
        for volume in objects_at(raw, *path):
            names.add(text_at(volume, "persistentVolumeClaim", "claimName"))
            names.add(text_at(volume, "dataVolume", "name"))
    return names - {""}


def is_marked(raw: Mapping[str, Any], guest: Guest) -> bool:
    """Whether our CSI driver has marked the object as made for this guest."""
    return guest.uid != "" and annotations_of(raw).get(GUEST_UID) == guest.uid and _is_ours(raw)


def _is_ours(raw: Mapping[str, Any]) -> bool:
    return labels_of(raw).get(MADE_BY_CSI) == CSI_DRIVER


def _find_doubt(raw: Mapping[str, Any], guest: Guest) -> str:
    """What the proof lacks that a CSI driver made the claim for this guest; "" for nothing. Only what is on Harvester counts."""
    if not _is_ours(raw) and _PVC_NAME.fullmatch(name_of(raw)) is None:
        return "no CSI driver made it"
    if doubt := find_doubt_of_marks(raw, guest):
        return doubt
    if restore := _find_restore(raw):
        return f"VolumeRemoteRestore {namespace_of(raw)}/{restore} would make it again; deleting that one deletes it"
    return ""


def find_doubt_of_marks(raw: Mapping[str, Any], guest: Guest) -> str:
    """What the mark on the object lacks to prove that it was made for this guest; "" for nothing."""
    made_for = annotations_of(raw).get(GUEST_UID, "")
    if not made_for:
        return UNMARKED
    if not guest.uid:
        return "it is not known which guest cluster this one was"
    if made_for != guest.uid:
        return "another guest cluster had it made"
    if guest.twin:
        return f"{guest.twin} has a guest of the same uid, so one is a copy of the other"
    created = time_of(raw, "metadata", "creationTimestamp")
    if created is None or guest.created is None or created < guest.created:
        return "it is older than the Cluster, so this guest is a copy of the one that had it made"
    return ""


def _find_restore(raw: Mapping[str, Any]) -> str:
    owners = nested(raw, "metadata", "ownerReferences", default=())
    return next((str(one.get("name")) for one in owners if one.get("kind") == "VolumeRemoteRestore"), "")


def _read_claim(raw: Mapping[str, Any], guest: Guest) -> VolumeClaim:
    return VolumeClaim(
        namespace_of(raw),
        name_of(raw),
        uid_of(raw),
        unproven=_find_doubt(raw, guest),
        volume_name=text_at(raw, "spec", "volumeName"),
        can_be_shared=text_at(raw, "spec", "volumeMode") == "Filesystem"
        and "ReadWriteMany" in nested(raw, "spec", "accessModes", default=()),
        is_deleting=is_deleting(raw),
        finalizers=tuple(finalizers_of(raw)),
    )
