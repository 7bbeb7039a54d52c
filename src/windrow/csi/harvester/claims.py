"""The claim on Harvester that a volume is: written for a request, and read. Pure.

A volume's handle is the name of its claim. What the Go driver never recorded is recorded as annotations with keys of
ours: what the volume was made with, so that a repeated creation can be compared, and which guest cluster had it made. No
label of another program is set: with `guestcluster.harvesterhci.io/name` the Go node driver deletes every claim of the
label when a cluster is deleted, also one whose PersistentVolume says Retain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.core.formats.json import NotJson, Raw, dumps, loads
from windrow.core.formats.quantity import NANO, NotQuantity, Quantity
from windrow.csi import names
from windrow.csi.handles import is_pvc_name
from windrow.csi.harvester.attachments.records import AttachRecord, read_records
from windrow.csi.volumes import SnapshotSource, Source, Volume, VolumeRequest, VolumeSource
from windrow.harvester.names import GUEST_UID, MADE_BY_CSI
from windrow.harvester.volumes import ClaimModes
from windrow.kubernetes.objects import (
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    nested,
    resource_version_of,
    uid_of,
)

# Annotations: what a volume was made with.
VOLUME_NAME = "windrow.io/csi-volume-name"
PARAMETERS = "windrow.io/csi-parameters"
SOURCE = "windrow.io/csi-source"
# An annotation of volumes that are shared: "shared". The Go driver's are told by their modes.
KIND = "windrow.io/csi-kind"

_PROVISIONER = ("volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner")
LONGHORN = "driver.longhorn.io"
_SNAPSHOT_GROUP = "snapshot.storage.k8s.io"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim on Harvester, and the volume that it is."""

    volume: Volume
    uid: str
    requested: int
    # 0 until it is bound.
    capacity: int
    phase: str
    storage_class: str
    provisioner: str
    volume_mode: str
    # The volume on Harvester that it is, or is to be, bound to.
    volume_name: str
    # Whether Longhorn can export it.
    can_be_shared: bool
    # The uid of the guest cluster that had it made; "" where that is not recorded, as on those of the Go driver.
    guest_uid: str
    is_ours: bool
    is_deleting: bool
    # The name that it was made for; "" where that is not recorded.
    made_for: str
    # What the claim is deleted with: a restore of a backup owns the claim that it made.
    restore: str
    resource_version: str = ""
    # Requests to attach it, by the key of the VM.
    attach_records: Mapping[str, AttachRecord] = field(default_factory=dict)

    @property
    def export(self) -> str:
        """The name of what exports it: its volume on Harvester. "" before it is bound: until then it may name another's."""
        return self.volume_name if self.phase in ("Bound", "Lost") else ""

    @property
    def is_listed(self) -> bool:
        """Whether it is a volume of a CSI driver: of this one, or by its name of the Go driver."""
        return self.is_ours or is_pvc_name(self.volume.id)

    @property
    def has_record(self) -> bool:
        """Whether it is known what it was made as: not of what the Go driver made."""
        return self.volume.parameters is not None


def render_claim(
    name: str,
    wanted: VolumeRequest,
    size: int,
    storage_class: str,
    modes: ClaimModes,
    guest_uid: str,
) -> Raw:
    """The claim of a new volume; `storage_class` "" leaves the choice to Harvester."""
    labels, annotations = render_marks(wanted, guest_uid)
    spec: Raw = {
        "accessModes": [modes.access],
        "volumeMode": modes.volume,
        "resources": {"requests": {"storage": str(Quantity.of_bytes(size))}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    match wanted.source:
        case SnapshotSource(snapshot_id):
            spec["dataSource"] = {
                "apiGroup": _SNAPSHOT_GROUP,
                "kind": "VolumeSnapshot",
                "name": snapshot_id,
            }
        case VolumeSource(volume_id):
            spec["dataSource"] = {"kind": "PersistentVolumeClaim", "name": volume_id}
    metadata: Raw = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def render_marks(wanted: VolumeRequest, guest_uid: str) -> tuple[dict[str, str], dict[str, str]]:
    """The labels and annotations that say what a volume was made with, and for whom."""
    annotations = {
        VOLUME_NAME: wanted.name,
        PARAMETERS: dumps(dict(sorted(wanted.parameters.items()))).decode(),
        SOURCE: _render_source(wanted.source),
    }
    if guest_uid:
        annotations[GUEST_UID] = guest_uid
    if wanted.kind == "shared":
        annotations[KIND] = wanted.kind
    return {MADE_BY_CSI: names.DRIVER}, annotations


def _render_source(source: Source | None) -> str:
    match source:
        case SnapshotSource(snapshot_id):
            return f"snapshot/{snapshot_id}"
        case VolumeSource(volume_id):
            return f"volume/{volume_id}"
        case None:
            return ""


def read_claim(raw: Mapping[str, Any]) -> Claim:
    """The claim. Raises NotQuantity where its sizes are none."""
    annotations = annotations_of(raw)
    provisioner = next((annotations[key] for key in _PROVISIONER if key in annotations), "")
    requested = size_at(raw, "spec", "resources", "requests", "storage")
    capacity = size_at(raw, "status", "capacity", "storage")
    mode = str(nested(raw, "spec", "volumeMode", default="Filesystem"))
    phase = str(nested(raw, "status", "phase", default="Pending"))
    can_be_shared = _can_be_shared(raw, mode, provisioner)
    recorded = annotations.get(KIND, "disk") if VOLUME_NAME in annotations else ""
    volume = Volume(
        id=name_of(raw),
        size=capacity or requested,
        kind="shared" if recorded == "shared" or (can_be_shared and not recorded) else "disk",
        parameters=_read_parameters(annotations.get(PARAMETERS, "")) if recorded else None,
        source=_read_source(annotations.get(SOURCE, "")),
        problem="PersistentVolumeClaim on Harvester is Lost: its volume is gone" if phase == "Lost" else "",
    )
    return Claim(
        volume=volume,
        uid=uid_of(raw),
        requested=requested,
        capacity=capacity,
        phase=phase,
        storage_class=str(nested(raw, "spec", "storageClassName", default="")),
        provisioner=provisioner,
        volume_mode=mode,
        volume_name=str(nested(raw, "spec", "volumeName", default="")),
        can_be_shared=can_be_shared,
        guest_uid=annotations.get(GUEST_UID, ""),
        is_ours=labels_of(raw).get(MADE_BY_CSI) == names.DRIVER,
        is_deleting=is_deleting(raw),
        made_for=annotations.get(VOLUME_NAME, ""),
        restore=_restore_of(raw),
        resource_version=resource_version_of(raw),
        attach_records=read_records(annotations),
    )


def size_at(raw: Mapping[str, Any], *path: str) -> int:
    """The bytes of a quantity, rounded up; 0 where there is none. Raises NotQuantity."""
    found = nested(raw, *path)
    if found is None:
        return 0
    if not isinstance(found, str | int):
        raise NotQuantity(f"{'.'.join(path)} is no quantity")
    return -(-Quantity.parse(found).nanos // NANO)


def _can_be_shared(raw: Mapping[str, Any], mode: str, provisioner: str) -> bool:
    """Longhorn's claims that are file systems of many. The Go driver made both kinds of them, and records which of neither."""
    modes = nested(raw, "spec", "accessModes", default=())
    return mode == "Filesystem" and "ReadWriteMany" in modes and provisioner == LONGHORN


def _read_parameters(text: str) -> dict[str, str]:
    try:
        found = loads(text)
    except NotJson:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _read_source(text: str) -> Source | None:
    kind, _, name = text.partition("/")
    match kind:
        case "snapshot":
            return SnapshotSource(name)
        case "volume":
            return VolumeSource(name)
        case _:
            return None


def _restore_of(raw: Mapping[str, Any]) -> str:
    owners = nested(raw, "metadata", "ownerReferences", default=())
    return next(
        (str(one.get("name", "")) for one in owners if one.get("kind") == "VolumeRemoteRestore"),
        "",
    )
