"""The restores of one guest cluster on Harvester: VolumeRemoteRestores, each of which makes the claim of one volume."""

from __future__ import annotations

from windrow.client.client import Client
from windrow.csi import names
from windrow.csi.errors import FailedPrecondition
from windrow.csi.handles import is_object_name, is_pvc_name, parse_backup_handle
from windrow.csi.harvester.backups.objects import (
    HostBackup,
    HostRestore,
    read_restore,
    render_restore,
)
from windrow.csi.harvester.owners import GuestCluster, require_kept, require_made_by_csi
from windrow.csi.harvester.refusals import requesting
from windrow.csi.harvester.snapshot_requests import SnapshotRequests
from windrow.csi.sizes import MIN_BYTES, choose_size
from windrow.csi.volumes import SnapshotNotFound, SnapshotSource, Unfinished, UnknownParameter, VolumeRequest
from windrow.csi.waits import waits_for
from windrow.harvester.resources import REMOTE_BACKUP, REMOTE_RESTORE
from windrow.kubernetes.errors import AlreadyExists, Forbidden, KubeError, NotFound, names_no_object
from windrow.kubernetes.resources import ObjectRef


def is_of_backup(wanted: VolumeRequest) -> bool:
    """Whether the volume is to be made of a backup."""
    return isinstance(wanted.source, SnapshotSource) and bool(parse_backup_handle(wanted.source.snapshot_id))


class RestoreRequests:
    """Makes and deletes them, each by requests that name them."""

    def __init__(
        self, client: Client, namespace: str, guest: GuestCluster, snapshots: SnapshotRequests
    ) -> None:
        self._client, self._namespace, self._guest = client, namespace, guest
        self._snapshots = snapshots

    async def find(self, name: str) -> HostRestore | None:
        """The restore that makes, or made, the claim of the name. None, too, on a Harvester that has none of them, and where the
        role forbids to read them: then the driver cannot have made one."""
        ref = self._ref(name)
        waits_for(f"an answer of Harvester about {ref}")
        try:
            raw = await self._client.find(ref)
        except Forbidden:
            return None
        except KubeError as error:
            if names_no_object(error):
                return None
            with requesting(f"read {ref}"):
                raise
        return read_restore(raw) if raw is not None else None

    async def ensure(self, name: str, wanted: VolumeRequest) -> int:
        """Order the restore; the size that the volume is to have. Raises SnapshotNotFound, Unfinished where the backup is not
        done, OutOfRange, UnknownParameter where the volume cannot be as a parameter says."""
        backup, source = await self._get_backup(wanted)
        _require_parameters(wanted, backup)
        size = choose_size(wanted.size, max(backup.snapshot.size, MIN_BYTES))
        ref = self._ref(name)
        found = await self.find(name)
        if found is None:
            raw = render_restore(name, self._namespace, wanted, source, self._guest.uid)
            with requesting(f"create {ref}"):
                try:
                    found = read_restore(await self._client.create(ref.kind, raw, self._namespace))
                except AlreadyExists:
                    raise Unfinished(f"another call has made {ref}", "repeat the same call") from None
        self._guest.require_own(found.guest_uid, ref)
        require_made_by_csi(found.is_ours, ref, "taken for a restore of a volume")
        if found.is_deleting:
            raise Unfinished(f"{ref} on Harvester is being deleted", "repeat the same call once it is gone")
        if found.backup != source:
            raise FailedPrecondition(
                f"{ref} on Harvester is from {found.backup}, not from {source}", "delete the volume first"
            )
        return size

    async def _get_backup(self, wanted: VolumeRequest) -> tuple[HostBackup, str]:
        """The backup, once it is done, and its `namespace/name`."""
        assert isinstance(wanted.source, SnapshotSource)
        handle = wanted.source.snapshot_id
        found = await self._snapshots.get_host_object(handle)
        if not isinstance(found, HostBackup):
            raise SnapshotNotFound(handle)
        source = handle.removeprefix(names.BACKUP_HANDLE)
        ref = REMOTE_BACKUP.ref(source.partition("/")[2], source.partition("/")[0])
        require_made_by_csi(found.is_listed, ref, "restored")
        require_kept(found.is_deleting, ref, "restored")
        if not found.snapshot.is_ready:
            words = f": {found.problem}" if found.problem else ""
            raise Unfinished(f"{ref} on Harvester is not done{words}", "repeat the same call")
        return found, source

    async def delete(self, name: str) -> bool:
        """Order the deletion of the restore that made the claim of the name, and of the claim with it; whether there was one
        of a CSI driver."""
        if not is_object_name(name):
            return False
        found, ref = await self.find(name), self._ref(name)
        if found is None or not (found.is_ours or is_pvc_name(name)):
            return False
        self._guest.require_own(found.guest_uid, ref)
        if not found.is_deleting:
            with requesting(f"delete {ref}"):
                try:
                    await self._client.delete(ref, uid=found.uid)
                except NotFound as error:
                    if names_no_object(error):
                        raise
        return True

    def _ref(self, name: str) -> ObjectRef:
        return REMOTE_RESTORE.ref(name, self._namespace)


def _require_parameters(wanted: VolumeRequest, backup: HostBackup) -> None:
    """Harvester gives a restored claim the class and the mode of the volume that was backed up."""
    asked, has = wanted.parameters.get(names.HOST_STORAGE_CLASS), backup.storage_class
    if asked and has and asked != has:
        raise UnknownParameter(
            f"parameters[{names.HOST_STORAGE_CLASS}]",
            f"it is {asked!r}, and Harvester restores the backup into its StorageClass {has!r}",
            f"use a StorageClass with {names.HOST_STORAGE_CLASS} {has}, or without one",
        )
    require_mode(wanted, backup.volume_mode)


def require_mode(wanted: VolumeRequest, has: str) -> None:
    """The bytes of one volume mode mean nothing in the other. Raises UnknownParameter."""
    mode = wanted.parameters.get(names.HOST_VOLUME_MODE)
    if mode and has and mode != has.lower():
        raise UnknownParameter(
            f"parameters[{names.HOST_VOLUME_MODE}]",
            f"it is {mode!r}, and what the volume is to be made of has volumeMode {has} on Harvester",
            "use a StorageClass with the same hostVolumeMode, or without one",
        )
