"""The snapshots of one guest cluster on Harvester: in Harvester's storage, or backups on its target."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from windrow.client.client import Client
from windrow.core.formats.json import Raw
from windrow.csi import names
from windrow.csi.errors import CsiError, FailedPrecondition
from windrow.csi.handles import is_object_name, parse_backup_handle, volume_id_for
from windrow.csi.harvester.backups.objects import HostBackup, read_backup, render_backup
from windrow.csi.harvester.claim_reads import ClaimReads
from windrow.csi.harvester.claims import Claim
from windrow.csi.harvester.owners import GuestCluster, require_made_by_csi
from windrow.csi.harvester.refusals import not_found_as, requesting
from windrow.csi.harvester.snapshots import (
    BACKUP_CLASS,
    CLASSES,
    SNAPSHOT_CLASS,
    HostSnapshot,
    read_snapshot,
    render_snapshot,
    snapshot_class_of,
)
from windrow.csi.volumes import (
    NameTaken,
    Snapshot,
    SnapshotExists,
    SnapshotNotFound,
    SnapshotRequest,
    Unfinished,
)
from windrow.csi.waits import waits_for
from windrow.harvester.resources import REMOTE_BACKUP, VOLUME_SNAPSHOT
from windrow.kubernetes.errors import AlreadyExists, Forbidden, KubeError, names_no_object
from windrow.kubernetes.resources import ApiResource, ObjectRef

HostObject = HostSnapshot | HostBackup


class SnapshotRequests:
    """Makes, reads and deletes them, each by requests that name them."""

    def __init__(
        self, client: Client, namespace: str, guest: GuestCluster, claims: ClaimReads, log: logging.Logger
    ) -> None:
        self._client, self._namespace, self._guest, self._claims = client, namespace, guest, claims
        self._log = log

    async def create(self, wanted: SnapshotRequest) -> Snapshot:
        is_backup = wanted.parameters.get(names.SNAPSHOT_TYPE) == "backup"
        claim = await self._claims.get(wanted.volume_id)
        if not claim.provisioner:  # Kubernetes annotates a claim with it before it is bound
            raise Unfinished(
                f"{self._claims.ref(wanted.volume_id)} on Harvester is not provisioned",
                "repeat the same call",
            )
        snapshot_class = await self._get_class(
            claim.provisioner, BACKUP_CLASS if is_backup else SNAPSHOT_CLASS
        )
        name = volume_id_for(wanted.name)
        if is_backup:
            raw = render_backup(name, self._namespace, wanted, self._guest.uid)
            return await self._make(REMOTE_BACKUP.ref(name, self._namespace), raw, wanted.name, claim)
        raw = render_snapshot(name, wanted, claim, snapshot_class, self._guest.uid)
        return await self._make(VOLUME_SNAPSHOT.ref(name, self._namespace), raw, wanted.name, claim)

    async def _get_class(self, provisioner: str, key: str) -> str:
        with requesting(f"read {CLASSES}"):
            setting = await self._client.find(CLASSES)
        found = snapshot_class_of(setting or {}, provisioner, key)
        if not found:
            raise FailedPrecondition(
                f"Setting {CLASSES.name} on Harvester has no {key} for {provisioner!r}",
                "add the provisioner to the setting",
            )
        return found

    async def _make(self, ref: ObjectRef, raw: Raw, wanted: str, claim: Claim) -> Snapshot:
        with requesting(f"create {ref}"):
            try:
                made = _read(await self._client.create(ref.kind, raw, self._namespace), ref.kind)
            except AlreadyExists:
                raise await self._existing(ref, wanted, claim) from None
        return _sized(made, claim)

    async def _existing(self, ref: ObjectRef, wanted: str, claim: Claim) -> CsiError:
        """What is raised where an object has the handle of the name that is wanted."""
        found = await self._get(ref, ref.name)
        self._guest.require_own(found.guest_uid, ref)
        require_made_by_csi(found.is_listed, ref, "taken for a snapshot")
        if found.made_for not in ("", wanted):
            return NameTaken(wanted, ref.name, found.made_for)
        if found.is_deleting:
            return Unfinished(f"{ref} on Harvester is being deleted", "repeat the same call once it is gone")
        return SnapshotExists(_sized(found, claim))

    async def delete(self, snapshot_id: str) -> None:
        ref = self._ref(snapshot_id)
        found = await self._get(ref, snapshot_id)
        self._guest.require_own(found.guest_uid, ref)
        require_made_by_csi(found.is_listed, ref, "deleted")
        self._require_near(found, ref)
        if found.is_deleting:
            return
        with requesting(f"delete {ref}"), not_found_as(ref, SnapshotNotFound(snapshot_id)):
            await self._client.delete(ref, uid=found.uid)

    def _require_near(self, found: HostObject, ref: ObjectRef) -> None:
        """Raises FailedPrecondition for what has no mark of this guest cluster and is in another namespace than its volumes:
        the handle, which anybody in the guest cluster may write, is no proof that it is this guest cluster's."""
        if ref.namespace != self._namespace and not (found.guest_uid and found.guest_uid == self._guest.uid):
            raise FailedPrecondition(
                f"{ref} on Harvester is not in namespace {self._namespace} of this guest cluster's volumes, and has no mark of "
                "this guest cluster, so it is not deleted",
                "delete it on Harvester, by hand; set deletionPolicy Retain on the VolumeSnapshotContent",
            )

    async def get(self, snapshot_id: str) -> Snapshot:
        return (await self.get_host_object(snapshot_id)).snapshot

    async def get_host_object(self, snapshot_id: str) -> HostObject:
        """What is restored. A backup may be another guest cluster's. Raises SnapshotNotFound, FailedPrecondition."""
        ref = self._ref(snapshot_id)
        found = await self._get(ref, snapshot_id)
        if isinstance(found, HostSnapshot):
            self._guest.require_own(found.guest_uid, ref)
        return found

    async def list_all(self) -> Sequence[Snapshot]:
        """This guest cluster's, in the order of their ids."""
        await self._guest.wait_until_known()
        found = [*await self._list(VOLUME_SNAPSHOT), *await self._list_backups()]
        listed = [
            one for one in found if one.is_listed and not one.is_deleting and self._guest.owns(one.guest_uid)
        ]
        return sorted((one.snapshot for one in listed), key=lambda one: one.id)

    async def _list(self, kind: ApiResource) -> list[HostObject]:
        with requesting(f"list {kind.kind}s in namespace {self._namespace}"):
            return [_read(one, kind) for one in await self._client.list(kind, self._namespace)]

    async def _list_backups(self) -> list[HostObject]:
        """None on a Harvester before 1.8, which has no such kind, or a role without it: there none was made."""
        try:
            found = await self._client.list(REMOTE_BACKUP, self._namespace)
        except Forbidden as error:
            self._log.info("backups are not listed: %s", error)
            return []
        except KubeError as error:
            if names_no_object(error):
                return []
            with requesting(f"list {REMOTE_BACKUP.kind}s in namespace {self._namespace}"):
                raise
        return [_read(one, REMOTE_BACKUP) for one in found]

    async def _get(self, ref: ObjectRef, snapshot_id: str) -> HostObject:
        await self._guest.wait_until_known()
        waits_for(f"an answer of Harvester about {ref}")
        with requesting(f"read {ref}"):
            raw = await self._client.find(ref)
        if raw is None:
            raise SnapshotNotFound(snapshot_id, f" in namespace {ref.namespace} on Harvester")
        return _read(raw, ref.kind)

    def _ref(self, snapshot_id: str) -> ObjectRef:
        """Raises SnapshotNotFound for what cannot be a handle."""
        backup = parse_backup_handle(snapshot_id)
        if backup is not None:
            namespace, name = backup
            return REMOTE_BACKUP.ref(name, namespace)
        if not is_object_name(snapshot_id):
            raise SnapshotNotFound(snapshot_id)
        return VOLUME_SNAPSHOT.ref(snapshot_id, self._namespace)


def _read(raw: Raw, kind: ApiResource) -> HostObject:
    return read_backup(raw) if kind == REMOTE_BACKUP else read_snapshot(raw)


def _sized(found: HostObject, claim: Claim) -> Snapshot:
    """One that is not ready has no size yet: that of its volume stands for it."""
    return replace(found.snapshot, size=found.snapshot.size or claim.volume.size)
