"""`HarvesterVolumes`: the port Volumes on a Harvester.

Made and deleted by requests, each of which names its object by what the caller gave; so what a crash leaves is found by the
same call again. Attached through `VmQueue`, and awaited by what is watched: no poll, no sleep but back-off. What the caches
lack is asked for live before it is said not to exist.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.core.formats.json import Raw
from windrow.core.rng import Rng
from windrow.csi import names
from windrow.csi.errors import CsiError, FailedPrecondition, InvalidArgument
from windrow.csi.handles import is_object_name, is_volume_id, volume_id_for
from windrow.csi.harvester.attachments.now import AttachedNow
from windrow.csi.harvester.attachments.records import AttachRecord, record_key, remaining_s
from windrow.csi.harvester.backups.restores import RestoreRequests, is_of_backup, require_mode
from windrow.csi.harvester.claim_reads import ClaimReads
from windrow.csi.harvester.claims import Claim, read_claim, render_claim, render_marks
from windrow.csi.harvester.disks import READY, DiskChange, read_vm
from windrow.csi.harvester.owners import GuestCluster, require_kept, require_made_by_csi
from windrow.csi.harvester.plugging import Plugin
from windrow.csi.harvester.refusals import not_found_as, requesting
from windrow.csi.harvester.shared.requests import ShareRequests
from windrow.csi.harvester.shared.volumes import MODES as SHARED_MODES
from windrow.csi.harvester.shared.volumes import SharedVolumes
from windrow.csi.harvester.snapshot_requests import SnapshotRequests
from windrow.csi.harvester.state import HarvesterState
from windrow.csi.harvester.vm_queue import VmQueue
from windrow.csi.sizes import MIN_BYTES, SizeRange, choose_size
from windrow.csi.volumes import (
    AttachedDifferently,
    Attachment,
    CannotShrink,
    NameTaken,
    NodeNotFound,
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
    WrongKind,
)
from windrow.csi.waits import waits_for
from windrow.harvester.resources import VM, VMI, VOLUME_SNAPSHOT
from windrow.harvester.volumes import LONGHORN, ClaimModes, read_storage_class
from windrow.kubernetes.errors import AlreadyExists, Forbidden, KubeError
from windrow.kubernetes.objects import resource_version_of
from windrow.kubernetes.resources import PVC, STORAGE_CLASS, ObjectRef

# How often an attachment is recorded anew where others change the claim in between.
RECORD_ATTEMPTS = 6


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
        self._plugin = Plugin(self._client, options.namespace, clock, log)
        self._clock = clock
        # Two processes never begin at one instant with one random number.
        self._process = f"{rng.below(2**32):08x}{int(clock.now().timestamp()):x}"
        self._queue = VmQueue(self._client, options.namespace, self._plugin, clock, rng)

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
            change = {"spec": {"resources": {"requests": {"storage": str(size)}}}}
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
        if not is_object_name(node_id):
            raise NodeNotFound(node_id)
        claim = await self._get_to_attach(volume_id, node_id, kind)
        _require_kind(claim, kind)
        if claim.is_deleting:
            raise FailedPrecondition(
                f"{self._claims.ref(volume_id)} on Harvester is being deleted", "use another volume"
            )
        if kind == "shared":
            return await self._shared.publish(claim, node_id, read_only=read_only)
        if not is_volume_id(volume_id):
            raise FailedPrecondition(
                f"{self._claims.ref(volume_id)} on Harvester cannot be a disk: the name of one has at most 63 characters "
                "and no dot",
                "copy it to a claim with such a name",
            )
        await self.state.wait_for_sync()
        if claim.volume.kind == "shared":
            await self._shared.require_unshared(claim, f"attached to {node_id} as a disk")
        await self._require_free(volume_id, node_id)
        changed = await self._queue.change(node_id, DiskChange(volume_id, "attach", read_only))
        await self.state.wait_for_vm(node_id, changed.resource_version)
        await self._require_alone(volume_id, node_id, was_sent=volume_id in changed.sent)
        await self._wait_for_instance(node_id)
        await self._wait_until_attached(volume_id, node_id)
        await self._require_free(volume_id, node_id)  # an instance of another VM may have it yet
        return self._attachment(claim, node_id, read_only)

    async def _get_to_attach(self, volume_id: str, node_id: str, kind: VolumeKind) -> Claim:
        """The claim as it is now. Where a request to attach it may have to be sent, that is recorded first."""
        await self._guest.wait_until_known()
        await self.state.wait_for_sync()
        vm = self.state.vm(node_id)
        if kind == "shared" or (vm is not None and vm.find(volume_id) is not None):
            return await self._claims.get(volume_id)
        known = self.state.claim(volume_id)
        if known is None or known.is_deleting or not self._guest.owns(known.guest_uid):
            known = await self._claims.get(volume_id)
        for _ in range(RECORD_ATTEMPTS):
            if known.is_deleting:
                return known
            _require_kind(known, kind)
            self._on_record(known, node_id)
            record = AttachRecord(self._process, self._clock.now())
            recorded = await self._claims.record_attachment(known, node_id, record)
            if recorded is not None:
                return recorded
            known = await self._claims.get(volume_id)
        raise Unfinished(
            f"{self._claims.ref(volume_id)} on Harvester was changed by others {RECORD_ATTEMPTS} times meanwhile",
            "repeat the same call",
        )

    def _on_record(self, claim: Claim, node_id: str) -> bool:
        """Whether another process has sent a request to attach it to the node that may be carried out yet."""
        record = claim.attach_records.get(record_key(node_id))
        if record is None or record.process == self._process:
            return False
        left = remaining_s(record, self._clock.now())
        until = self._clock.monotonic() + timedelta(seconds=left)
        return bool(left) and self._queue.on_recorded(node_id, claim.volume.id, str(record), until)

    async def _require_free(self, volume_id: str, node_id: str) -> None:
        """Raises VolumeInUse where another VM has it; the caches may be behind, so those that have it are asked."""
        nodes = [one for one in self.state.nodes_with(volume_id) if one != node_id]
        found = [one for one in nodes if await self._has_disk(one, volume_id)]
        if found:
            raise VolumeInUse(volume_id, found, f"attached to {node_id}")

    async def _require_alone(self, volume_id: str, node_id: str, *, was_sent: bool) -> None:
        """Raises VolumeInUse where another VM got the volume in the same moment; what was sent is taken back.

        The watch tells of all VMs in the order of their changes: where it has told of ours, it has told of each that got
        the volume before. So of two controllers at least the later one finds the other's.
        """
        try:
            await self._require_free(volume_id, node_id)
        except VolumeInUse:
            if was_sent:
                await self._queue.change(node_id, DiskChange(volume_id, "detach"))
            raise

    async def _wait_for_instance(self, node_id: str) -> None:
        """Return once the instances here are as new as the node's is on Harvester: only then they say what a guest has."""
        ref = VMI.ref(node_id, self._options.namespace)
        waits_for(f"an answer of Harvester about {ref}")
        with requesting(f"read {ref}"):
            raw = await self._client.find(ref)
        await self.state.wait_for_instance(node_id, resource_version_of(raw) if raw else "")

    async def _has_disk(self, vm: str, volume_id: str) -> bool:
        ref = VM.ref(vm, self._options.namespace)
        with requesting(f"read {ref}"):
            raw = await self._client.find(ref)
        instance = self.state.instance(vm)
        return (raw is not None and read_vm(raw).find(volume_id) is not None) or (
            instance is not None and instance.has(volume_id)
        )

    async def _wait_until_attached(self, volume_id: str, node_id: str) -> None:
        """Return also once the volume has left the VM, or the VM is gone: `_attachment` says so."""
        was_there = False

        def describe_wait() -> str:
            nonlocal was_there
            vm = self.state.vm(node_id)
            is_there = vm is not None and vm.find(volume_id) is not None
            if was_there and not is_there:
                return ""
            was_there = is_there
            return self._describe_attaching(volume_id, node_id)

        await self.state.wait_until(describe_wait)

    def _describe_attaching(self, volume_id: str, node_id: str) -> str:
        vm, instance = self.state.vm(node_id), self.state.instance(node_id)
        where = f"{self._options.namespace}/{node_id}"
        if vm is not None and vm.is_deleting:
            raise Unfinished(
                f"VirtualMachine {where} is being deleted, and volume {volume_id} was being attached to it",
                "the call is repeated, and finds it gone",
            )
        disk = vm.find(volume_id) if vm else None
        if disk is None:
            return f"VirtualMachine {where} to have volume {volume_id}"
        if not disk.is_removable:
            return ""  # it never becomes one that is plugged in; `_attachment` says so
        if instance is None:
            return f"VirtualMachine {where} to run, so that volume {volume_id} can be plugged in"
        plugged = instance.find(volume_id)
        if plugged is not None and plugged.phase == READY:
            return ""
        phase = plugged.phase if plugged else "not told yet"
        words = f": {plugged.message}" if plugged and plugged.message else ""
        return f"VirtualMachineInstance {where} to report volume {volume_id} as Ready (phase: {phase}{words})"

    def _attachment(self, claim: Claim, node_id: str, read_only: bool) -> Attachment:
        """What the node is told. A disk that the Go driver plugged in has no serial, so none is told."""
        volume_id = claim.volume.id
        vm = self.state.vm(node_id)
        disk = vm.find(volume_id) if vm else None
        if disk is None:
            raise Unfinished(f"volume {volume_id!r} left VirtualMachine {node_id}", "repeat the same call")
        if not disk.is_removable:
            raise VolumeInUse(volume_id, [node_id], "plugged in: it is one of the machine's own disks")
        if disk.read_only != read_only:
            raise AttachedDifferently(volume_id, node_id, disk.read_only)
        context = {names.PUBLISH_BUS: disk.bus, names.PUBLISH_CAPACITY: str(claim.volume.size)}
        if disk.serial:
            context[names.PUBLISH_SERIAL] = disk.serial
        return Attachment(disk.read_only, context)

    async def ensure_detached(self, volume_id: str, node_id: str) -> None:
        if not is_volume_id(volume_id) or (node_id and not is_object_name(node_id)):
            return
        await self._guest.wait_until_known()
        await self.state.wait_for_sync()
        claim = self.state.claim(volume_id) or await self._claims.find(volume_id)
        if claim is not None:
            self._guest.require_own(claim.guest_uid, self._claims.ref(volume_id))
        if claim is None or claim.volume.kind == "shared":
            await self._shared.unpublish(volume_id, claim, node_id)
        for node in [node_id] if node_id else self.state.nodes_with(volume_id):
            if claim is not None:
                self._on_record(claim, node)  # that the VM has the volume now settles it
            await self._detach(volume_id, node)

    async def _detach(self, volume_id: str, node_id: str) -> None:
        change = DiskChange(volume_id, "detach")
        changed = await self._queue.change(node_id, change)
        if changed.resource_version and not changed.sent:
            claim = await self._claims.find(volume_id)
            if claim is not None and self._on_record(claim, node_id):
                changed = await self._queue.change(node_id, change)
        await self.state.wait_for_vm(node_id, changed.resource_version)
        await self._wait_for_instance(node_id)
        instance = self.state.instance(node_id)
        if self.state.vm(node_id) is None and instance is not None and instance.find(volume_id):
            await self._unplug_from_instance(volume_id, node_id)
        await self.state.wait_until(lambda: self._describe_detaching(volume_id, node_id))

    async def _unplug_from_instance(self, volume_id: str, node_id: str) -> None:
        """The VM is gone and its instance is going: a Harvester that takes no such request lets it end by itself."""
        try:
            await self._plugin.remove_from_instance(node_id, volume_id)
        except KubeError as error:
            self._log.info("volume %s leaves instance %s with it: %s", volume_id, node_id, error)

    def _describe_detaching(self, volume_id: str, node_id: str) -> str:
        vm, instance = self.state.vm(node_id), self.state.instance(node_id)
        where = f"{self._options.namespace}/{node_id}"
        disk = vm.find(volume_id) if vm else None
        if disk is not None and not disk.is_removable:
            return ""  # a disk of the machine's own, which no CSI driver attached
        if disk is not None:
            return f"VirtualMachine {where} to give up volume {volume_id}"
        plugged = instance.find(volume_id) if instance else None
        if plugged is not None or (instance is not None and volume_id in instance.claims):
            phase = plugged.phase if plugged else "in its spec"
            return f"VirtualMachineInstance {where} to give up volume {volume_id} (phase: {phase})"
        return ""

    # --- snapshots --------------------------------------------------------------------------------------------------

    async def create_snapshot(self, wanted: SnapshotRequest) -> Snapshot:
        return await self._snapshots.create(wanted)

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._snapshots.delete(snapshot_id)

    async def get_snapshot(self, snapshot_id: str) -> Snapshot:
        return await self._snapshots.get(snapshot_id)

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return await self._snapshots.list_all()


def _require_kind(claim: Claim, kind: VolumeKind) -> None:
    """Raises WrongKind. Of a claim of the Go driver that can be shared it is not known whether it is; both are taken then."""
    if kind == "shared" and claim.volume.kind != "shared":
        raise WrongKind(claim.volume.id, "disk")
    if kind == "disk" and claim.volume.kind == "shared" and claim.has_record:
        raise WrongKind(claim.volume.id, "shared")
