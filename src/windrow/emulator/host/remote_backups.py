"""Backups of volumes, and restores from them: Harvester's own objects for the storage drivers of guests.

A VolumeRemoteBackup takes a VolumeSnapshot of the class for backups, a VolumeRemoteRestore makes a content, a snapshot and a
claim of its own name. There is no backup target: what was backed up is kept with the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from windrow.core.formats.json import NotJson, loads
from windrow.emulator import kinds, names
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.host.snapshots import reference
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key, Listers
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
    uid_of,
)
from windrow.kubernetes.resources import PVC, ref_of

COPIED = ("accessModes", "resources", "storageClassName", "volumeMode")


def backup_class(claim: Raw, listers: Listers) -> str:
    """The snapshot class for backups of the claim's provisioner, by the setting csi-driver-config; "" without one."""
    notes = annotations_of(claim)
    driver = notes.get(names.PROVISIONERS[1], notes.get(names.PROVISIONERS[0], ""))
    try:
        known = loads(listers.setting("csi-driver-config") or "{}")
    except NotJson:
        return ""
    return str(nested(known, driver, "backupVolumeSnapshotClassName", default=""))


class RemoteBackupController:
    """The controller of VolumeRemoteBackups."""

    def __init__(self, client: AdminClient, listers: Listers, clock: ScaledClock, delays: Delays) -> None:
        self._client = client
        self._listers = listers
        self._clock = clock
        self._delays = delays

    async def reconcile(self, key: Key) -> timedelta | None:
        backup = await self._client.find(kinds.REMOTE_BACKUP.ref(key[1], key[0]))
        if backup is None or is_deleting(backup) or nested(backup, "status", "success"):
            return None
        source = str(nested(backup, "spec", "source", default=""))
        claim = self._listers.claims.get((key[0], source))
        if claim is None or not (chosen := backup_class(claim, self._listers)):
            return self._clock.after(self._delays.claim_retry)
        owner = owner_reference(kinds.REMOTE_BACKUP, backup, controller=True, block=True)
        spec = {"source": {"persistentVolumeClaimName": source}, "volumeSnapshotClassName": chosen}
        wanted = new_object(kinds.SNAPSHOT, key[1], key[0], owners=[owner], spec=spec)
        snapshot = await self._client.ensure(kinds.SNAPSHOT, wanted)
        content = await self._content_of(snapshot)
        if content is None:
            return None  # the snapshot's next change comes here
        status = {
            "handle": nested(content, "status", "snapshotHandle"),
            "csiProvider": nested(content, "spec", "driver"),
            "sourceSpec": {field: claim["spec"][field] for field in COPIED if field in claim["spec"]},
            "success": True,
            "conditions": _conditions("True", "Operation complete"),
        }
        await self._client.mutate(ref_of(kinds.REMOTE_BACKUP, backup), lambda raw: raw.update(status=status))
        return None

    async def _content_of(self, snapshot: Raw) -> Raw | None:
        """The content of a snapshot that is ready."""
        if not nested(snapshot, "status", "readyToUse"):
            return None
        name = nested(snapshot, "status", "boundVolumeSnapshotContentName", default="")
        return await self._client.find(kinds.SNAPSHOT_CONTENT.ref(name))


class RemoteRestoreController:
    """The controller of VolumeRemoteRestores."""

    def __init__(self, client: AdminClient, listers: Listers, copy_disk: Callable[[str, str], None]) -> None:
        self._client = client
        self._listers = listers
        self._copy_disk = copy_disk

    async def reconcile(self, key: Key) -> timedelta | None:
        restore = await self._client.find(kinds.REMOTE_RESTORE.ref(key[1], key[0]))
        if restore is None or is_deleting(restore):
            return None
        if nested(restore, "status", "success") and key in self._listers.claims:
            return None  # a claim that is gone is made again
        namespace, _, name = str(nested(restore, "spec", "from", default="")).rpartition("/")
        backup = await self._client.find(kinds.REMOTE_BACKUP.ref(name, namespace or key[0]))
        if backup is None or not nested(backup, "status", "success"):
            return None  # refused at creation; it was deleted since
        claim = await self._make(restore, backup)
        if nested(claim, "status", "phase") == "Bound":
            ref = ref_of(kinds.REMOTE_RESTORE, restore)
            status = {"success": True, "conditions": _conditions("True", "Operation complete")}
            await self._client.mutate(ref, lambda raw: raw.update(status=status))
        elif nested(restore, "status") is None:
            ref = ref_of(kinds.REMOTE_RESTORE, restore)
            status = {"conditions": _conditions("False", "Operation in progress")}
            await self._client.mutate(ref, lambda raw: raw.update(status=status))
        return None

    async def _make(self, restore: Raw, backup: Raw) -> Raw:
        """Content, snapshot and claim of the restore's name. May be repeated."""
        name, namespace = name_of(restore), namespace_of(restore)
        owner = owner_reference(kinds.REMOTE_RESTORE, restore, controller=True, block=True)
        snapshot = new_object(
            kinds.SNAPSHOT,
            name,
            namespace,
            owners=[owner],
            spec={"source": {"volumeSnapshotContentName": name}},
        )
        content = await self._ensure_content(snapshot, backup)
        if content is not None:
            await self._client.ensure(kinds.SNAPSHOT, snapshot)
        source = {"apiGroup": kinds.SNAPSHOT.group, "kind": kinds.SNAPSHOT.kind, "name": name}
        spec = {**nested(backup, "status", "sourceSpec", default={}), "dataSource": source}
        return await self._client.ensure(PVC, new_object(PVC, name, namespace, owners=[owner], spec=spec))

    async def _ensure_content(self, snapshot: Raw, backup: Raw) -> Raw | None:
        taken = self._listers.snapshots.get((namespace_of(backup), name_of(backup)))
        bound = nested(taken, "status", "boundVolumeSnapshotContentName", default="")
        original = await self._client.find(kinds.SNAPSHOT_CONTENT.ref(bound)) if bound else None
        if original is None:
            return None
        spec = {
            "deletionPolicy": "Delete",
            "driver": nested(backup, "status", "csiProvider"),
            "source": {"snapshotHandle": nested(backup, "status", "handle")},
            "volumeSnapshotRef": {key: value for key, value in reference(snapshot).items() if value},
        }
        content = await self._client.ensure(
            kinds.SNAPSHOT_CONTENT, new_object(kinds.SNAPSHOT_CONTENT, name_of(snapshot), spec=spec)
        )
        self._copy_disk(uid_of(original), uid_of(content))
        ref = ref_of(kinds.SNAPSHOT_CONTENT, content)
        await self._client.mutate(ref, lambda raw: raw.update(status=original["status"]), "status")
        return content


def _conditions(status: str, message: str) -> list[Raw]:
    return [{"type": "Ready", "status": status, "message": message}]
