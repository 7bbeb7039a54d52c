"""Volumes as disks of VMs: plugged in and unplugged, each awaited by what is watched.

A request to attach is recorded on the claim before it is sent, since a driver that ends meanwhile cannot tell whether Harvester
carries it out. It goes out through `VmQueue`. What the caches lack is asked for live before it is said not to exist.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from windrow.client.client import Client
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.csi import names
from windrow.csi.errors import FailedPrecondition
from windrow.csi.handles import is_object_name, is_volume_id
from windrow.csi.harvester.attachments.known_vms import KnownVms
from windrow.csi.harvester.attachments.records import AttachRecord, record_key, remaining_s
from windrow.csi.harvester.claim_reads import ClaimReads
from windrow.csi.harvester.claims import Claim
from windrow.csi.harvester.disks import READY, DiskChange, read_vm
from windrow.csi.harvester.owners import GuestCluster
from windrow.csi.harvester.plugging import Plugin
from windrow.csi.harvester.refusals import requesting
from windrow.csi.harvester.shared.volumes import SharedVolumes
from windrow.csi.harvester.state import HarvesterState
from windrow.csi.harvester.vm_queue import Additions, VmQueue
from windrow.csi.volumes import (
    AttachedDifferently,
    Attachment,
    NodeNotFound,
    Unfinished,
    VolumeInUse,
    VolumeKind,
    WrongKind,
)
from windrow.csi.waits import waits_for
from windrow.harvester.resources import VM, VMI
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import resource_version_of

# How often an attachment is recorded anew where others change the claim in between.
RECORD_ATTEMPTS = 6


class AttachmentRequests:
    """Attaches and detaches the volumes of one namespace, shared ones by `shared`."""

    def __init__(
        self,
        client: Client,
        guest: GuestCluster,
        claims: ClaimReads,
        state: HarvesterState,
        shared: SharedVolumes,
        clock: Clock,
        rng: Rng,
        log: logging.Logger,
    ) -> None:
        self._client, self._guest, self._claims = client, guest, claims
        self._state, self._shared = state, shared
        self._namespace, self._clock, self._log = state.namespace, clock, log
        self._plugin = Plugin(client, self._namespace, clock, log)
        # Two processes never begin at one instant with one random number.
        self._process = f"{rng.below(2**32):08x}{int(clock.now().timestamp()):x}"
        additions = Additions(KnownVms(state.vm), self._plugin.add)
        self._queue = VmQueue(client, self._namespace, self._plugin, clock, rng, additions)

    async def ensure(
        self, volume_id: str, node_id: str, read_only: bool, kind: VolumeKind = "disk"
    ) -> Attachment:
        if not is_object_name(node_id):
            raise NodeNotFound(node_id)
        claim = await self._get_to_attach(volume_id, node_id, kind)
        require_kind(claim, kind)
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
        await self._state.wait_for_sync()
        if claim.volume.kind == "shared":
            await self._shared.require_unshared(claim, f"attached to {node_id} as a disk")
        await self._require_free(volume_id, node_id)
        changed = await self._queue.change(node_id, DiskChange(volume_id, "attach", read_only))
        await self._state.wait_for_vm(node_id, changed.resource_version)
        await self._require_alone(volume_id, node_id, was_sent=volume_id in changed.sent)
        await self._wait_for_instance(node_id)
        await self._wait_until_attached(volume_id, node_id)
        await self._require_free(volume_id, node_id)  # an instance of another VM may have it yet
        return self._attachment(claim, node_id, read_only)

    async def _get_to_attach(self, volume_id: str, node_id: str, kind: VolumeKind) -> Claim:
        """The claim as it is now. Where a request to attach it may have to be sent, that is recorded first."""
        await self._guest.wait_until_known()
        await self._state.wait_for_sync()
        vm = self._state.vm(node_id)
        if kind == "shared" or (vm is not None and vm.find(volume_id) is not None):
            return await self._claims.get(volume_id)
        known = self._state.claim(volume_id)
        if known is None or known.is_deleting or not self._guest.owns(known.guest_uid):
            known = await self._claims.get(volume_id)
        for _ in range(RECORD_ATTEMPTS):
            if known.is_deleting:
                return known
            require_kind(known, kind)
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
        nodes = [one for one in self._state.nodes_with(volume_id) if one != node_id]
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
        ref = VMI.ref(node_id, self._namespace)
        waits_for(f"an answer of Harvester about {ref}")
        with requesting(f"read {ref}"):
            raw = await self._client.find(ref)
        await self._state.wait_for_instance(node_id, resource_version_of(raw) if raw else "")

    async def _has_disk(self, vm: str, volume_id: str) -> bool:
        ref = VM.ref(vm, self._namespace)
        with requesting(f"read {ref}"):
            raw = await self._client.find(ref)
        instance = self._state.instance(vm)
        return (raw is not None and read_vm(raw).find(volume_id) is not None) or (
            instance is not None and instance.has(volume_id)
        )

    async def _wait_until_attached(self, volume_id: str, node_id: str) -> None:
        """Return also once the volume has left the VM, or the VM is gone: `_attachment` says so."""
        was_there = False

        def describe_wait() -> str:
            nonlocal was_there
            vm = self._state.vm(node_id)
            is_there = vm is not None and vm.find(volume_id) is not None
            if was_there and not is_there:
                return ""
            was_there = is_there
            return self._describe_attaching(volume_id, node_id)

        await self._state.wait_until(describe_wait)

    def _describe_attaching(self, volume_id: str, node_id: str) -> str:
        vm, instance = self._state.vm(node_id), self._state.instance(node_id)
        where = f"{self._namespace}/{node_id}"
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
        vm = self._state.vm(node_id)
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

    async def end(self, volume_id: str, node_id: str) -> None:
        if not is_volume_id(volume_id) or (node_id and not is_object_name(node_id)):
            return
        await self._guest.wait_until_known()
        await self._state.wait_for_sync()
        claim = self._state.claim(volume_id) or await self._claims.find(volume_id)
        if claim is not None:
            self._guest.require_own(claim.guest_uid, self._claims.ref(volume_id))
        if claim is None or claim.volume.kind == "shared":
            await self._shared.unpublish(volume_id, claim, node_id)
        for node in [node_id] if node_id else self._state.nodes_with(volume_id):
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
        await self._state.wait_for_vm(node_id, changed.resource_version)
        await self._wait_for_instance(node_id)
        instance = self._state.instance(node_id)
        if self._state.vm(node_id) is None and instance is not None and instance.find(volume_id):
            await self._unplug_from_instance(volume_id, node_id)
        await self._state.wait_until(lambda: self._describe_detaching(volume_id, node_id))

    async def _unplug_from_instance(self, volume_id: str, node_id: str) -> None:
        """The VM is gone and its instance is going: a Harvester that takes no such request lets it end by itself."""
        try:
            await self._plugin.remove_from_instance(node_id, volume_id)
        except KubeError as error:
            self._log.info("volume %s leaves instance %s with it: %s", volume_id, node_id, error)

    def _describe_detaching(self, volume_id: str, node_id: str) -> str:
        vm, instance = self._state.vm(node_id), self._state.instance(node_id)
        where = f"{self._namespace}/{node_id}"
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


def require_kind(claim: Claim, kind: VolumeKind) -> None:
    """Raises WrongKind. Of a claim of the Go driver that can be shared it is not known whether it is; both are taken then."""
    if kind == "shared" and claim.volume.kind != "shared":
        raise WrongKind(claim.volume.id, "disk")
    if kind == "disk" and claim.volume.kind == "shared" and claim.has_record:
        raise WrongKind(claim.volume.id, "shared")
