"""Changes of the disks of VMs: those that wait for one VM go out in one patch.

While one patch of a VM is under way, further changes of that VM wait; the first of them to have its turn sends them all. So ten
volumes that are attached at once cost two patches and not ten that fail each other. The one that sends plans additions on what is known
of the VM, and everything else, and what that patch failed on, on a fresh read of it; again where the VM was changed in between. A change that Harvester refuses must not fail the others: a patch of
several that is refused is sent once more, one change at a time.

A caller that is cancelled while it sends leaves the others in the queue, and the next of them sends.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, Protocol

from windrow.client.client import Client
from windrow.core.clock import Clock, sleep
from windrow.core.formats.json import Raw
from windrow.core.rng import Rng
from windrow.core.wait import yield_turn
from windrow.csi.errors import CsiError
from windrow.csi.harvester.attachments.known_vms import KnownVms
from windrow.csi.harvester.disks import MAX_DISKS, DiskChange, VmDisks, can_be_added, needs_change, read_vm
from windrow.csi.harvester.refusals import requesting
from windrow.csi.harvester.unanswered import UnansweredAttachments
from windrow.csi.volumes import NodeFull, NodeNotFound, Unfinished
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import (
    Conflict,
    Invalid,
    KubeError,
    NotFound,
)
from windrow.kubernetes.objects import resource_version_of
from windrow.kubernetes.retry import may_still_be_carried_out

# How often one patch is planned anew where others change the VM in between.
ATTEMPTS = 6
BACKOFF = timedelta(milliseconds=50)
# How API servers word a `test` of a JSON Patch that failed: the first is kube-apiserver's, for any step of a patch.
_TEST_FAILED = ("the server rejected our request due to an error", "testing path", "test failed")


class PlugVolumes(Protocol):
    """How a Harvester takes changes of a VM's disks."""

    async def __call__(self, raw_vm: Raw, changes: Sequence[DiskChange]) -> Raw | None:
        """Send the changes of the VM, which was read as `raw_vm`. The VM after them, None where the answer is without it.
        Raises KubeError."""
        ...


class AddVolumes(Protocol):
    """How a Harvester takes additions to a VM that was not read for them."""

    async def __call__(self, vm: VmDisks, added: Sequence[DiskChange]) -> Raw | None:
        """Add the volumes to the VM, whose spec has to be as `vm` has it. The VM after that; None where it has to be read first.
        Raises KubeError."""
        ...


@dataclass(frozen=True, slots=True)
class Additions:
    """What is known of VMs, and how volumes are added to those."""

    known: KnownVms
    add: AddVolumes


@dataclass(frozen=True, slots=True)
class ChangedVm:
    """A VM whose template is as wanted: its resourceVersion then, "" where it is gone, and the volumes that had to be sent."""

    resource_version: str = ""
    sent: frozenset[str] = frozenset()


@dataclass
class _Waiting:
    change: DiskChange
    done: asyncio.Future[ChangedVm] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class VmQueue:
    """Makes changes of the disks of the VMs of one namespace. Without `additions` a VM is read before each."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        plug: PlugVolumes,
        clock: Clock,
        rng: Rng,
        additions: Additions | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._plug, self._additions = plug, additions
        self._clock, self._rng = clock, rng
        self._waiting: dict[str, list[_Waiting]] = defaultdict(list)
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unanswered = UnansweredAttachments()

    def on_recorded(self, vm: str, volume_id: str, record: str, until: timedelta) -> bool:
        """Another process has recorded a request to attach; whether it may be carried out yet."""
        return self._unanswered.on_recorded(vm, volume_id, record, until)

    async def change(self, vm: str, change: DiskChange) -> ChangedVm:
        """Return once the VM's template is as wanted. Raises NodeNotFound, NodeFull, Unfinished where an attachment that had
        no answer may yet undo the detachment, and what Harvester refuses."""
        waiting = _Waiting(change)
        self._waiting[vm].append(waiting)
        try:
            async with self._turns[vm]:
                if not waiting.done.done():
                    await self._send_waiting(vm)
        finally:
            if waiting in self._waiting[vm]:
                self._waiting[vm].remove(waiting)
            if not self._waiting[vm]:
                del self._waiting[vm], self._turns[vm]
            waiting.done.cancel()  # where nothing came of it
        return waiting.done.result()

    async def _send_waiting(self, vm: str) -> None:
        await yield_turn()  # those that come at the same moment go along
        batch = [one for one in self._waiting[vm] if not one.done.done()]
        result = await self._try(vm, batch)
        if isinstance(result, CsiError) and len(batch) > 1:
            for one in batch:
                self._settle([one], await self._try(vm, [one]))
        else:
            self._settle(batch, result)

    def _settle(self, batch: Sequence[_Waiting], result: ChangedVm | CsiError) -> None:
        for one in batch:
            if one.done.done():
                continue
            if isinstance(result, ChangedVm):
                one.done.set_result(result)
            else:
                one.done.set_exception(result)

    async def _try(self, vm: str, batch: Sequence[_Waiting]) -> ChangedVm | CsiError:
        try:
            return await self._make([one.change for one in batch], vm)
        except CsiError as error:
            return error

    async def _make(self, changes: Sequence[DiskChange], vm: str) -> ChangedVm:
        ref = VM.ref(vm, self._namespace)
        with requesting(f"change the volumes of {ref}"):
            added = await self._add_to_known(changes, vm)
        if added is not None:
            return added
        for attempt in count(1):
            with requesting(f"change the volumes of {ref}"):
                raw = await self._client.find(ref)
                if raw is None:
                    if all(one.kind == "detach" for one in changes):
                        return ChangedVm()
                    raise NodeNotFound(vm, f" in namespace {self._namespace} on Harvester")
                found = read_vm(raw)
                self._require_answers(found, changes)
                due = [one for one in changes if needs_change(found, one)]
                if not due:
                    return ChangedVm(found.resource_version)
                require_slots(found, due)
                try:
                    changed = await self._send(self._plug(raw, due), due, vm) or await self._client.find(ref)
                    if changed:
                        self._require_answers(read_vm(changed), changes)
                    return self._changed(changed, due)
                except KubeError as error:
                    if not _is_outdated(error):
                        raise
                    if attempt == ATTEMPTS:
                        raise Unfinished(
                            f"{ref} on Harvester was changed by others {ATTEMPTS} times meanwhile: {error.message}",
                            "repeat the same call",
                        ) from error
            await sleep(self._clock, BACKOFF * attempt * self._rng.uniform(1.0, 2.0))
        raise AssertionError("it is counted without an end")

    async def _add_to_known(self, changes: Sequence[DiskChange], vm: str) -> ChangedVm | None:
        """Add to the VM without reading it; None where it has to be read, since too little is known, or it has changed."""
        known = self._additions.known.find(vm) if self._additions else None
        if self._additions is None or known is None or not can_be_added(known, changes):
            return None
        try:
            raw = await self._send(self._additions.add(known, changes), changes, vm)
        except KubeError as error:
            if not _is_outdated(error):
                raise
            return None
        if raw is None:
            return None
        self._require_answers(read_vm(raw), changes)
        return self._changed(raw, changes)

    def _changed(self, raw_vm: Raw | None, due: Sequence[DiskChange]) -> ChangedVm:
        if raw_vm and self._additions:
            self._additions.known.on_answer(raw_vm)
        version = resource_version_of(raw_vm) if raw_vm else ""
        return ChangedVm(version, frozenset(one.volume_id for one in due))

    async def _send(
        self, request: Coroutine[Any, Any, Raw | None], due: Sequence[DiskChange], vm: str
    ) -> Raw | None:
        attached = [one.volume_id for one in due if one.kind == "attach"]
        for volume_id in attached:
            self._unanswered.on_request(vm, volume_id)
        try:
            return await request
        except KubeError as error:
            if may_still_be_carried_out(error):
                for volume_id in attached:
                    self._unanswered.on_unanswered(vm, volume_id, self._clock.monotonic())
            raise

    def _require_answers(self, found: VmDisks, changes: Sequence[DiskChange]) -> None:
        """Raises Unfinished where the VM lacks a volume that it is to lack, and may get it yet."""
        for one in changes:
            if found.find(one.volume_id) is not None:
                self._unanswered.on_present(found.vm, one.volume_id)
            elif one.kind == "detach":
                now = self._clock.monotonic()
                end = self._unanswered.find_end(found.vm, one.volume_id, now)
                if end is not None:
                    raise Unfinished(
                        f"a request to attach volume {one.volume_id} to VirtualMachine {self._namespace}/{found.vm} had no "
                        f"answer, and Harvester may carry it out for {(end - now).total_seconds():.0f} s yet",
                        "repeat the same call",
                    )


def require_slots(vm: VmDisks, due: Sequence[DiskChange]) -> None:
    """Raises NodeFull where the VM would have more disks than it can have."""
    added = sum(one.kind == "attach" for one in due)
    wanted = vm.count + added - sum(one.kind == "detach" for one in due)
    if added and wanted > MAX_DISKS:
        raise NodeFull(
            f"VirtualMachine {vm.vm} has {vm.count} volumes, and can have {MAX_DISKS}",
            "use another node, or detach a volume",
        )


def _is_outdated(error: KubeError) -> bool:
    """Whether the VM was changed, or deleted, between the read and the patch."""
    if isinstance(error, Conflict | NotFound):
        return True
    text = error.message.lower()
    return isinstance(error, Invalid) and any(words in text for words in _TEST_FAILED)
