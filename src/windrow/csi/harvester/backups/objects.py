"""Backups of volumes and restores from them: VolumeRemoteBackups and VolumeRemoteRestores, written and read. Pure.

A backup lies on the target that is configured on Harvester, and outlives its volume and its cluster. Its handle names the
namespace, too, and a backup may be restored by another guest cluster of the same Harvester, whose administrator writes the handle
into a VolumeSnapshotContent. To delete it is left to the guest cluster that made it.

Harvester restores by itself: for a VolumeRemoteRestore it makes a claim of that name, which the restore owns: the claim is
deleted with it, and while the restore is there a claim that is gone may be made again. So both are deleted together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.core.formats.json import Raw
from windrow.csi import names
from windrow.csi.handles import backup_handle, is_volume_id
from windrow.csi.harvester.claims import SOURCE, VOLUME_NAME, render_marks, size_at
from windrow.csi.volumes import Snapshot, SnapshotRequest, VolumeRequest
from windrow.harvester.names import GUEST_UID, MADE_BY_CSI
from windrow.harvester.resources import REMOTE_BACKUP, REMOTE_RESTORE
from windrow.kubernetes.objects import (
    annotations_of,
    is_deleting,
    labels_of,
    mappings_at,
    name_of,
    namespace_of,
    nested,
    new_object,
    time_of,
    uid_of,
)

# The Go driver's label, by which it lists backups.
BACKUP_OF = "harvesterhci.io/backupSourceVolume"
# Longhorn's, the only type that Harvester knows.
_TYPE = "lh"


@dataclass(frozen=True, slots=True)
class HostBackup:
    """A VolumeRemoteBackup, and the snapshot that it is. Class and mode are those of its volume when it was made."""

    snapshot: Snapshot
    uid: str
    storage_class: str
    volume_mode: str
    guest_uid: str
    # Whether a CSI driver made it.
    is_listed: bool
    is_deleting: bool
    # The name that it was made for; "" where that is not recorded.
    made_for: str
    problem: str


@dataclass(frozen=True, slots=True)
class HostRestore:
    """A VolumeRemoteRestore. `backup` is `namespace/name`."""

    uid: str
    backup: str
    guest_uid: str
    is_ours: bool
    is_deleting: bool
    problem: str


def render_backup(name: str, namespace: str, wanted: SnapshotRequest, guest_uid: str) -> Raw:
    """The VolumeRemoteBackup of a volume."""
    annotations = {VOLUME_NAME: wanted.name}
    if guest_uid:
        annotations[GUEST_UID] = guest_uid
    labels = {MADE_BY_CSI: names.DRIVER}
    if is_volume_id(wanted.volume_id):  # any other may be longer than a label
        labels[BACKUP_OF] = wanted.volume_id
    spec = {"type": _TYPE, "source": wanted.volume_id}
    return new_object(REMOTE_BACKUP, name, namespace, labels=labels, annotations=annotations, spec=spec)


def read_backup(raw: Mapping[str, Any]) -> HostBackup:
    """Raises NotQuantity and ValueError where a size or time is none. One without a status is not ready, of size 0."""
    labels = labels_of(raw)
    created = time_of(raw, "metadata", "creationTimestamp")
    assert created is not None
    snapshot = Snapshot(
        id=backup_handle(namespace_of(raw), name_of(raw)),
        volume_id=str(nested(raw, "spec", "source", default="")),
        size=size_at(raw, "status", "sourceSpec", "resources", "requests", "storage"),
        created=created,
        is_ready=nested(raw, "status", "success", default=False) is True,
    )
    return HostBackup(
        snapshot=snapshot,
        uid=uid_of(raw),
        storage_class=str(nested(raw, "status", "sourceSpec", "storageClassName", default="")),
        volume_mode=str(nested(raw, "status", "sourceSpec", "volumeMode", default="")),
        guest_uid=annotations_of(raw).get(GUEST_UID, ""),
        is_listed=BACKUP_OF in labels or labels.get(MADE_BY_CSI) == names.DRIVER,
        is_deleting=is_deleting(raw),
        made_for=annotations_of(raw).get(VOLUME_NAME, ""),
        problem=_problem(raw),
    )


def render_restore(name: str, namespace: str, wanted: VolumeRequest, backup: str, guest_uid: str) -> Raw:
    """The VolumeRemoteRestore that makes the claim `name` of the backup `namespace/name`."""
    labels, annotations = render_marks(wanted, guest_uid)
    return new_object(
        REMOTE_RESTORE,
        name,
        namespace,
        labels=labels,
        annotations=annotations,
        spec={"type": _TYPE, "from": backup},
    )


def read_restore(raw: Mapping[str, Any]) -> HostRestore:
    return HostRestore(
        uid=uid_of(raw),
        backup=str(nested(raw, "spec", "from", default="")),
        guest_uid=annotations_of(raw).get(GUEST_UID, ""),
        is_ours=labels_of(raw).get(MADE_BY_CSI) == names.DRIVER and SOURCE in annotations_of(raw),
        is_deleting=is_deleting(raw),
        problem=_problem(raw),
    )


def _problem(raw: Mapping[str, Any]) -> str:
    """What Harvester says of its last attempt; "" for nothing."""
    conditions = mappings_at(raw, "status", "conditions")
    failed = [one for one in conditions if one.get("status") == "False" and one.get("message")]
    return str(failed[-1]["message"]) if failed else ""
