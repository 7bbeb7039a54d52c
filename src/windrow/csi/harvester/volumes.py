"""`HarvesterVolumes`: the port Volumes on a Harvester.

Made and deleted by requests, each of which names its object by what the caller gave; so what a crash leaves is found by the
same call again. Awaited by what is watched: no poll, no sleep but back-off. What the caches lack is asked for live before it is
said not to exist. `AttachmentRequests` plugs them in.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.core.formats.json import Raw
from windrow.core.formats.quantity import Quantity
from windrow.core.rng import Rng
from windrow.csi import names
from windrow.csi.errors import CsiError, InvalidArgument
from windrow.csi.handles import volume_id_for
from windrow.csi.harvester.attachments.now import AttachedNow
from windrow.csi.harvester.attachments.requests import AttachmentRequests
from windrow.csi.harvester.backups.restores import RestoreRequests, is_of_backup, require_mode
from windrow.csi.harvester.claim_reads import ClaimReads
from windrow.csi.harvester.claims import Claim, read_claim, render_claim, render_marks
from windrow.csi.harvester.owners import GuestCluster, require_kept, require_made_by_csi
from windrow.csi.harvester.refusals import not_found_as, requesting
from windrow.csi.harvester.shared.requests import ShareRequests
from windrow.csi.harvester.shared.volumes import MODES as SHARED_MODES
from windrow.csi.harvester.shared.volumes import SharedVolumes
from windrow.csi.harvester.snapshot_requests import SnapshotRequests
from windrow.csi.harvester.state import HarvesterState
from windrow.csi.sizes import MIN_BYTES, SizeRange, choose_size
from windrow.csi.volumes import (
    Attachment,
    CannotShrink,
    NameTaken,
    Snapshot,
    SnapshotRequest,
    SnapshotSource,
    Unfinished,
    UnknownParameter,
    Volume,
    VolumeExists,
    VolumeInUse,
    VolumeKind,
    VolumeNotFound,
    VolumeRequest,
    VolumeSource,
)
from windrow.harvester.resources import VOLUME_SNAPSHOT
from windrow.harvester.volumes import LONGHORN, ClaimModes, read_storage_class
from windrow.kubernetes.errors import AlreadyExists, Forbidden
from windrow.kubernetes.resources import PVC, STORAGE_CLASS, ObjectRef


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Where volumes are made. `storage_class` "" is Harvester's default; `guest_uid` says which guest cluster this is. With
    `awaits_guest` it is not known yet, and nothing is answered about a volume before `set_guest`."""

    namespace: str
    storage_class: str = ""
    guest_uid: str = ""
    awaits_guest: bool = False


@dataclass(frozen=True, slots=True)
class _Content:
    """What a new volume begins as: the size that it needs at least, and the class and mode of what it is made of."""

    size: int = MIN_BYTES
    storage_class: str = ""
    volume_mode: str = ""


class HarvesterVolumes:
    """Implements Volumes. Its owner runs it while it is used."""

    def __init__(
        self, transport: Transport, options: HostOptions, clock: Clock, rng: Rng, log: logging.Logger
    ) -> None:
        self._client = Client(transport)
        self._options = options
        self._log = log
        self._guest = GuestCluster(options.guest_uid, is_known=not options.awaits_guest)
        self._claims = ClaimReads(self._client, options.namespace, self._guest)
        self._snapshots = SnapshotRequests(self._client, options.namespace, self._guest, self._claims, log)
        self._restores = RestoreRequests(self._client, options.namespace, self._guest, self._snapshots)
        self._attached = AttachedNow(self._client, options.namespace)
        self.state = HarvesterState(transport, options.namespace, clock, rng)
        shares = ShareRequests(self._client, self._guest, clock, rng)
        self._shared = SharedVolumes(self._client, self.state, shares)
        self._attachments = AttachmentRequests(
            self._client, self._guest, self._claims, self.state, self._shared, clock, rng, log
        )

    def set_guest(self, guest_uid: str) -> None:
        """From now on what is made is marked as of this guest cluster, and what others made is left alone."""
        self._guest.learn(guest_uid)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self.state.run()

    # --- volumes ----------------------------------------------------------------------------------------------------

    async def create(self, wanted: VolumeRequest) -> Volume:
        await self._guest.wait_until_known()
        name = volume_id_for(wanted.name)
        if is_of_backup(wanted):
            return await self._restore(name, wanted)
        ref = self._claims.ref(name)
        try:
            raw = await self._plan_claim(name, wanted)
        except CsiError:
            # A source or class that has gone since says nothing against the volume that was made of it.
            if await self._claims.find(name) is None:
                raise
            raise await self._existing(name, wanted.name) from None
        with requesting(f"create {ref}"):
            try:
                made = read_claim(await self._client.create(PVC, raw, self._options.namespace))
            except AlreadyExists:
                raise await self._existing(name, wanted.name) from None
        await self._wait_to_see(ref)
        return made.volume

    async def _plan_claim(self, name: str, wanted: VolumeRequest) -> Raw:
        content = await self._read_source(wanted)
        size = choose_size(wanted.size, content.size)
        storage_class = (
            wanted.parameters.get(names.HOST_STORAGE_CLASS)
            or content.storage_class
            or self._options.storage_class
        )
        modes = await self._shared_or_disk_modes(storage_class, wanted, content.volume_mode)
        return render_claim(name, wanted, size, storage_class, modes, self._guest.uid)

    async def _restore(self, name: str, wanted: VolumeRequest) -> Volume:
        """Harvester makes the claim. It is marked as what it is last: one without marks is not finished."""
        claim = await self._claims.find(name)
        restore = await self._restores.find(name) if claim is not None and not claim.is_ours else None
        if claim is not None and (restore is None or not restore.is_ours):
            raise await self._existing(name, wanted.name)
        size = await self._restores.ensure(name, wanted)
        await self._wait_until_restored(name)
        await self.ensure_expanded(name, SizeRange(size))
        labels, annotations = render_marks(wanted, self._guest.uid)
        ref = self._claims.ref(name)
        with requesting(f"mark {ref}"), not_found_as(ref, VolumeNotFound(name)):
            change = {"metadata": {"labels": labels, "annotations": annotations}}
            made = read_claim(await self._client.patch(ref, change))
        await self.state.wait_for_claim(name, made.resource_version)
        return made.volume

    async def _wait_until_restored(self, name: str) -> None:
        """What Harvester says of the restore is read once: restores are not watched, and a call that is repeated reads it anew."""
        ref = self._claims.ref(name)
        restore = await self._restores.find(name)
        words = f" ({restore.problem})" if restore is not None and restore.problem else ""

        def describe_wait() -> str:
            claim = self.state.claim(name)
            if claim is not None and claim.phase == "Bound":
                return ""
            phase = claim.phase if claim else "not made yet"
            return f"VolumeRemoteRestore {name}{words} to make {ref} on Harvester (phase: {phase})"

        await self.state.wait_for_sync()
        await self.state.wait_until(describe_wait)

    async def _existing(self, name: str, wanted: str) -> CsiError:
        """What is raised where a claim has the handle of the name that is wanted."""
        found, ref = await self._claims.get(name), self._claims.ref(name)
        require_made_by_csi(found.is_listed, ref, "taken for a volume")
        if found.made_for not in ("", wanted):
            return NameTaken(wanted, name, found.made_for)
        if found.is_deleting:
            return Unfinished(f"{ref} on Harvester is being deleted", "repeat the same call once it is gone")
        await self._wait_to_see(ref)
        return VolumeExists(await self._seen(found))

    async def _wait_to_see(self, ref: ObjectRef) -> None:
        """So that the next list has it."""
        await self.state.wait_for_sync()
        await self.state.wait_until(
            lambda: "" if self.state.claims.get(ref) else f"the watch of {ref} on Harvester to tell of it"
        )

    async def _read_source(self, wanted: VolumeRequest) -> _Content:
        match wanted.source:
            case SnapshotSource(snapshot_id):
                found = await self._snapshots.get_host_object(snapshot_id)
                ref = VOLUME_SNAPSHOT.ref(snapshot_id, self._options.namespace)
                require_made_by_csi(found.is_listed, ref, "restored")
                require_kept(found.is_deleting, ref, "restored")
                if not found.snapshot.is_ready:
                    raise Unfinished(
                        f"VolumeSnapshot {snapshot_id} on Harvester is not ready", "repeat the same call"
                    )
                return _Content(max(found.snapshot.size, MIN_BYTES), found.storage_class, found.volume_mode)
            case VolumeSource(volume_id):
                claim = await self._claims.get(volume_id)
                ref = self._claims.ref(volume_id)
                require_made_by_csi(claim.is_listed, ref, "cloned")
                require_kept(claim.is_deleting, ref, "cloned")
                return _Content(max(claim.volume.size, MIN_BYTES), claim.storage_class, claim.volume_mode)
            case None:
                return _Content()

    async def _shared_or_disk_modes(
        self, storage_class: str, wanted: VolumeRequest, source_mode: str
    ) -> ClaimModes:
        if wanted.kind == "disk":
            return await self._modes(storage_class, wanted, source_mode)
        await self._shared.require_class(storage_class, self._unknown_class(storage_class, wanted), wanted)
        return SHARED_MODES

    async def _modes(self, storage_class: str, wanted: VolumeRequest, source_mode: str) -> ClaimModes:
        """`source_mode` is that of what the volume is made of, and is kept: its bytes mean nothing in the other; "" for none."""
        modes = LONGHORN
        if storage_class:
            ref = STORAGE_CLASS.ref(storage_class)
            with requesting(f"read {ref}"):
                try:
                    with not_found_as(ref, self._unknown_class(storage_class, wanted)):
                        modes = read_storage_class(await self._client.get(ref)).modes
                except Forbidden:
                    pass  # roles of older releases; Longhorn's then
        if source_mode:
            require_mode(wanted, source_mode)
            return replace(modes, volume=source_mode)
        wants_files = wanted.parameters.get(names.HOST_VOLUME_MODE) == "filesystem"
        return replace(modes, volume="Filesystem") if wants_files else modes

    def _unknown_class(self, storage_class: str, wanted: VolumeRequest) -> InvalidArgument:
        problem = f"Harvester has no StorageClass {storage_class!r}"
        if names.HOST_STORAGE_CLASS in wanted.parameters:
            return UnknownParameter(
                f"parameters[{names.HOST_STORAGE_CLASS}]", problem, "name one that exists"
            )
        return UnknownParameter("parameters", problem, "name one that exists with --host-storage-class")

    async def delete(self, volume_id: str) -> None:
        try:
            claim = await self._claims.get(volume_id)
        except VolumeNotFound:
            await self._shared.delete_export(volume_id, None)
            if await self._restores.delete(volume_id):
                return  # it would make the claim once more
            raise
        ref = self._claims.ref(volume_id)
        require_made_by_csi(claim.is_listed, ref, "deleted")
        nodes = await self._attached.nodes_with(volume_id)
        if nodes:
            raise VolumeInUse(volume_id, nodes, "deleted")
        if claim.volume.kind == "shared":
            await self._shared.delete_export(volume_id, claim)
        if claim.restore:
            # First: without the restore nothing makes the claim again, should this process end in between.
            await self._restores.delete(claim.restore)
        if not claim.is_deleting:
            await self._delete_claim(claim)
        await self.state.wait_for_sync()
        await self.state.wait_until(
            lambda: f"{ref} on Harvester to be gone (being deleted)" if self.state.claim(volume_id) else ""
        )

    async def _delete_claim(self, claim: Claim) -> None:
        """Raises VolumeNotFound, unless it may have gone with its restore."""
        ref = self._claims.ref(claim.volume.id)
        try:
            with requesting(f"delete {ref}"), not_found_as(ref, VolumeNotFound(claim.volume.id)):
                await self._client.delete(ref, uid=claim.uid)
        except VolumeNotFound:
            if not claim.restore:
                raise

    async def get(self, volume_id: str) -> Volume:
        claim = await self._claims.get(volume_id)
        await self.state.wait_for_sync()
        return await self._seen(claim)

    async def list_volumes(self) -> Sequence[Volume]:
        await self._guest.wait_until_known()
        await self.state.wait_for_sync()
        listed = [
            one
            for one in self.state.claims.values()
            if one.is_listed and not one.is_deleting and self._guest.owns(one.guest_uid)
        ]
        problem = await self._shared_problem(listed)
        nodes = self.state.nodes_ready()
        return sorted((self._with_nodes(one, nodes, problem) for one in listed), key=lambda one: one.id)

    async def _seen(self, claim: Claim) -> Volume:
        problem = await self._shared_problem([claim])
        return self._with_nodes(claim, self.state.nodes_ready(), problem)

    async def _shared_problem(self, claims: Sequence[Claim]) -> str:
        """Why it cannot be told which nodes share a volume, where one of these is shared; "" where it can."""
        if not any(one.volume.kind == "shared" for one in claims):
            return ""
        return await self._shared.wait_until_readable()

    def _with_nodes(self, claim: Claim, nodes: Mapping[str, tuple[str, ...]], problem: str) -> Volume:
        disk_of = nodes.get(claim.volume.id, ())
        if claim.volume.kind == "shared" and not disk_of:
            return self._shared.seen(claim, problem)
        return replace(claim.volume, nodes=disk_of)

    async def ensure_expanded(self, volume_id: str, wanted: SizeRange) -> Volume:
        claim = await self._claims.get(volume_id)
        if wanted.limit and claim.volume.size > wanted.limit:
            raise CannotShrink(
                f"volume {volume_id!r} has {claim.volume.size} bytes, and at most {wanted.limit} are wanted",
                "volumes do not shrink",
            )
        size = max(choose_size(wanted), claim.requested) if wanted.required > claim.volume.size else 0
        if size > claim.requested:
            if claim.volume.kind == "shared":
                await self._shared.require_unshared(claim, "expanded")
            await self._wait_until_bound(volume_id)
            ref = self._claims.ref(volume_id)
            change = {"spec": {"resources": {"requests": {"storage": str(Quantity.of_bytes(size))}}}}
            with requesting(f"expand {ref}"), not_found_as(ref, VolumeNotFound(volume_id)):
                await self._client.patch(ref, change)
        if size:
            await self._wait_for_capacity(volume_id, size)
            claim = await self._claims.get(volume_id)
        return await self._seen(claim)

    async def _wait_until_bound(self, volume_id: str) -> None:
        """An API server lets no other claim grow."""
        ref = self._claims.ref(volume_id)

        def describe_wait() -> str:
            claim = self.state.claim(volume_id)
            phase = claim.phase if claim else "it is not there"
            return (
                "" if phase == "Bound" else f"{ref} on Harvester to be bound (phase: {phase}); then it grows"
            )

        await self.state.wait_for_sync()
        await self.state.wait_until(describe_wait)

    async def _wait_for_capacity(self, volume_id: str, size: int) -> None:
        ref = self._claims.ref(volume_id)

        def describe_wait() -> str:
            claim = self.state.claim(volume_id)
            if claim is not None and claim.capacity >= size:
                return ""
            has = f"{claim.capacity} now" if claim else "it is not there"
            return f"{ref} on Harvester to have a capacity of {size} bytes ({has})"

        await self.state.wait_for_sync()
        await self.state.wait_until(describe_wait)

    # --- attachments ------------------------------------------------------------------------------------------------

    async def ensure_attached(
        self, volume_id: str, node_id: str, read_only: bool, kind: VolumeKind = "disk"
    ) -> Attachment:
        return await self._attachments.ensure(volume_id, node_id, read_only, kind)

    async def ensure_detached(self, volume_id: str, node_id: str) -> None:
        await self._attachments.end(volume_id, node_id)

    # --- snapshots --------------------------------------------------------------------------------------------------

    async def create_snapshot(self, wanted: SnapshotRequest) -> Snapshot:
        return await self._snapshots.create(wanted)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._snapshots.delete(snapshot_id)

    async def get_snapshot(self, snapshot_id: str) -> Snapshot:
        return await self._snapshots.get(snapshot_id)

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return await self._snapshots.list_all()
