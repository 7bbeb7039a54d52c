"""Snapshots on Harvester: VolumeSnapshots in the namespace of the claims, written and read. Pure.

The labels are the Go driver's: it takes the class and the mode of a restored volume from them, and lists no snapshot
without. So do we, and each restores what the other made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.core.formats.json import NotJson, Raw, loads
from windrow.csi import names
from windrow.csi.harvester.claims import LONGHORN, VOLUME_NAME, Claim, size_at
from windrow.csi.volumes import Snapshot, SnapshotRequest
from windrow.harvester.names import GUEST_UID, MADE_BY_CSI
from windrow.harvester.resources import SETTING
from windrow.kubernetes.objects import (
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    nested,
    time_of,
    uid_of,
)

STORAGE_CLASS = "harvesterhci.io/snapHostSC"
VOLUME_MODE = "harvesterhci.io/snapHostVolumeMode"

# Which class of snapshots a provisioner's volumes have, as JSON.
CLASSES = SETTING.ref("csi-driver-config")
# Under the key of the setting.
SNAPSHOT_CLASS, BACKUP_CLASS = "volumeSnapshotClassName", "backupVolumeSnapshotClassName"
_DEFAULT_CLASSES = {(LONGHORN, SNAPSHOT_CLASS): "longhorn-snapshot", (LONGHORN, BACKUP_CLASS): "longhorn"}


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """A VolumeSnapshot on Harvester, and the snapshot that it is."""

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
    # What the controller of snapshots says is wrong; "" for nothing.
    problem: str


def render_snapshot(
    name: str, wanted: SnapshotRequest, claim: Claim, snapshot_class: str, guest_uid: str
) -> Raw:
    """The VolumeSnapshot of a claim."""
    annotations = {VOLUME_NAME: wanted.name}
    if guest_uid:
        annotations[GUEST_UID] = guest_uid
    labels = {
        MADE_BY_CSI: names.DRIVER,
        STORAGE_CLASS: claim.storage_class,
        VOLUME_MODE: claim.volume_mode,
    }
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "volumeSnapshotClassName": snapshot_class,
            "source": {"persistentVolumeClaimName": wanted.volume_id},
        },
    }


def read_snapshot(raw: Mapping[str, Any]) -> HostSnapshot:
    """Raises NotQuantity and ValueError where a size or time is none. One without a status is not ready, of size 0."""
    labels = labels_of(raw)
    created = time_of(raw, "status", "creationTime") or time_of(raw, "metadata", "creationTimestamp")
    assert created is not None
    snapshot = Snapshot(
        id=name_of(raw),
        volume_id=str(nested(raw, "spec", "source", "persistentVolumeClaimName", default="")),
        size=size_at(raw, "status", "restoreSize"),
        created=created,
        is_ready=nested(raw, "status", "readyToUse", default=False) is True,
    )
    return HostSnapshot(
        snapshot=snapshot,
        uid=uid_of(raw),
        storage_class=labels.get(STORAGE_CLASS, ""),
        volume_mode=labels.get(VOLUME_MODE, ""),
        guest_uid=annotations_of(raw).get(GUEST_UID, ""),
        is_listed=STORAGE_CLASS in labels and VOLUME_MODE in labels,
        is_deleting=is_deleting(raw),
        made_for=annotations_of(raw).get(VOLUME_NAME, ""),
        problem=str(nested(raw, "status", "error", "message", default="")),
    )


def snapshot_class_of(setting: Mapping[str, Any], provisioner: str, key: str = SNAPSHOT_CLASS) -> str:
    """The VolumeSnapshotClass for volumes of the provisioner, as Harvester's setting says under `key`; "" for none."""
    for part in ("value", "default"):
        try:
            found = loads(str(nested(setting, part) or "{}"))
        except NotJson:
            continue
        name = nested(found, provisioner, key)
        if isinstance(name, str) and name:
            return name
    return _DEFAULT_CLASSES.get((provisioner, key), "")
