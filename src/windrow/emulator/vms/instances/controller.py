"""VirtualMachineInstance controller: one handler per phase, in `phases`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from windrow.emulator import kinds
from windrow.emulator.kit.listers import Key
from windrow.emulator.kit.scheduling import Placement
from windrow.emulator.kit.vm_readings import FINAL, phase_of
from windrow.emulator.vms.instances import conditions, phases
from windrow.emulator.vms.instances.context import InstanceContext, InstanceRecord
from windrow.emulator.vms.scheduler import find_host
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, name_of, nested, uid_of

PhaseHandler = Callable[[InstanceContext, Raw, InstanceRecord], Awaitable[timedelta | None]]

PHASE_HANDLERS: dict[str, PhaseHandler] = {
    "": phases.accept,
    "Pending": phases.create_pod,
    "Scheduling": phases.schedule,
    "Scheduled": phases.define,
    "Running": phases.sync,
}


def find_phase_handler(vmi: Raw) -> PhaseHandler | None:
    """The handler of the instance's phase; None for phases that this emulator never enters."""
    if phase_of(vmi) in FINAL:
        return phases.clean_up
    if is_deleting(vmi):
        return phases.shut_down
    return PHASE_HANDLERS.get(phase_of(vmi))


class InstanceController:
    """The controller. Keys are those of the VirtualMachineInstances."""

    def __init__(self, context: InstanceContext) -> None:
        self.waiting: set[Key] = set()  # keys that wait for a PVC, a Secret, a network or host capacity
        self._context = context
        self._uids: dict[Key, str] = {}

    async def reconcile(self, key: Key) -> timedelta | None:
        vmi = await self._context.client.find(kinds.VMI.ref(key[1], key[0]))
        self._forget_previous(key, uid_of(vmi) if vmi is not None else "")
        self.waiting.discard(key)
        if vmi is None:
            return None
        if phase_of(vmi) in ("Pending", "Scheduling"):
            self.waiting.add(key)
        vmi = await self._sync_labels(vmi, key) or vmi
        handler = find_phase_handler(vmi)
        return await handler(self._context, vmi, self._context.record(vmi)) if handler else None

    def _forget_previous(self, key: Key, uid: str) -> None:
        """Drop the record of an earlier instance of this name, also when its finalizer was removed by hand."""
        before = self._uids.pop(key, "")
        if before and before != uid:
            self._context.forget(before)
        if uid:
            self._uids[key] = uid

    async def _sync_labels(self, vmi: Raw, key: Key) -> Raw | None:
        """Harvester keeps the instance's labels equal to the template's; KubeVirt's own are kept."""
        vm = self._context.listers.vms.get(key)
        if vm is None or is_deleting(vmi):
            return None
        wanted = nested(vm, "spec", "template", "metadata", "labels", default={})
        kept = {name: value for name, value in labels_of(vmi).items() if name.startswith("kubevirt.io/")}
        labels = {**wanted, **kept}
        if labels == labels_of(vmi):
            return None
        ref = kinds.VMI.ref(key[1], key[0])
        return await self._context.client.mutate(ref, lambda raw: raw["metadata"].update(labels=labels))

    # --- migration ----------------------------------------------------------------------------------------------

    def find_target(self, vmi: Raw) -> Placement:
        """Another host for a running instance."""
        here = nested(vmi, "status", "nodeName")
        nodes = [node for node in self._context.listers.nodes.values() if name_of(node) != here]
        return find_host(vmi, [self._context.allocations.read_host(node) for node in nodes])

    def can_move(self, vmi: Raw, target: str) -> bool:
        """Whether the instance still runs and both hosts have power."""
        here = nested(vmi, "status", "nodeName", default="")
        has_power = self._context.hosts.has_power
        return self._context.power.find(uid_of(vmi)) is not None and has_power(here) and has_power(target)

    async def move(self, vmi: Raw, target: str, edit_status: Callable[[Raw], None]) -> None:
        """Move the domain to `target`; `edit_status` completes the migration's state."""
        context, record = self._context, self._context.record(vmi)
        record.host = target
        held = record.attachment
        context.allocations.assign(vmi, target)
        await context.remove_pod(vmi, record)
        await context.create_pod(vmi, record)
        await context.bind_pod(vmi, record)
        await context.run_pod(vmi, record)
        await context.replace_attachment_pod(vmi, record, held.claims if held else ())

        def edit(raw: Raw) -> None:
            conditions.set_host(raw, record.pod_uid, target)
            edit_status(raw)
            conditions.set_topology(raw, context.node_of(raw))

        await context.update(vmi, edit)
