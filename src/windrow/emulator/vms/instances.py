"""The instance controllers as one: each phase is a stage of its own, in `launching`, `running` and `ending`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from windrow.emulator import kinds, names
from windrow.emulator.vms import ending, launching, running, words
from windrow.emulator.vms.control import Control, Memory
from windrow.emulator.vms.placing import Placed, Unschedulable, place
from windrow.emulator.vms.readings import FINAL, phase_of
from windrow.emulator.world import Key
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, name_of, nested, uid_of

Stage = Callable[[Control, Raw, Memory], Awaitable[datetime | None]]

STAGES: dict[str, Stage] = {
    "": launching.accept,
    "Pending": launching.make_pod,
    "Scheduling": launching.schedule,
    "Scheduled": running.define,
    "Running": running.watch_over,
}


def stage_of(vmi: Raw) -> Stage | None:
    """What is to be done about an instance in its present state; None for phases that this emulator never enters."""
    if phase_of(vmi) in FINAL:
        return ending.clear_away
    if is_deleting(vmi):
        return ending.take_down
    return STAGES.get(phase_of(vmi))


class Instances:
    """The controller. Keys are those of the VirtualMachineInstances."""

    def __init__(self, control: Control) -> None:
        self.waiting: set[Key] = set()  # those that want a claim, a Secret, a network or room
        self._control = control
        self._uids: dict[Key, str] = {}

    async def reconcile(self, key: Key) -> datetime | None:
        vmi = await self._control.hand.find(kinds.VMI.ref(key[1], key[0]))
        self._forget_earlier(key, uid_of(vmi) if vmi is not None else "")
        self.waiting.discard(key)
        if vmi is None:
            return None
        if phase_of(vmi) in ("Pending", "Scheduling"):
            self.waiting.add(key)
        vmi = await self._sync_labels(vmi, key) or vmi
        stage = stage_of(vmi)
        return await stage(self._control, vmi, self._control.memory(vmi)) if stage else None

    def _forget_earlier(self, key: Key, uid: str) -> None:
        """What is known of an earlier instance of this name ends with it, also when its finalizer was cut by hand."""
        before = self._uids.pop(key, "")
        if before and before != uid:
            self._control.forget(before)
        if uid:
            self._uids[key] = uid

    async def _sync_labels(self, vmi: Raw, key: Key) -> Raw | None:
        """Harvester keeps the instance's labels equal to the template's; KubeVirt's own are left alone."""
        vm = self._control.world.vms.get(key)
        if vm is None or is_deleting(vmi):
            return None
        wanted = nested(vm, "spec", "template", "metadata", "labels", default={})
        kept = {name: value for name, value in labels_of(vmi).items() if name.startswith("kubevirt.io/")}
        labels = {**wanted, **kept}
        if labels == labels_of(vmi):
            return None
        ref = kinds.VMI.ref(key[1], key[0])
        return await self._control.hand.change(ref, lambda raw: raw["metadata"].update(labels=labels))

    # --- migration ----------------------------------------------------------------------------------------------

    def find_target(self, vmi: Raw) -> Placed | Unschedulable:
        """Another host for a running instance."""
        here = nested(vmi, "status", "nodeName")
        nodes = [node for node in self._control.world.nodes.values() if name_of(node) != here]
        return place(vmi, [self._control.tenants.host(node) for node in nodes])

    def can_move(self, vmi: Raw, target: str) -> bool:
        """Whether the instance still runs and both hosts have power."""
        here = nested(vmi, "status", "nodeName", default="")
        has_power = self._control.hosts.has_power
        return self._control.power.find(uid_of(vmi)) is not None and has_power(here) and has_power(target)

    async def move(self, vmi: Raw, target: str, mark: Callable[[Raw], None]) -> None:
        """The domain runs on `target` from now on; `mark` adds what the migration wants said."""
        control, memory = self._control, self._control.memory(vmi)
        memory.host = target
        control.tenants.enter(vmi, target)
        await control.pods.remove(vmi, memory.pod)
        memory.pod = f"virt-launcher-{name_of(vmi)}-{control.rng.name_suffix()}"
        memory.pod_uid = await control.pods.create(vmi, memory.pod)
        await control.pods.bind(vmi, memory.pod, target)
        await control.pods.run(vmi, memory.pod, memory.pod_address, control.pace.now())

        def edit(raw: Raw) -> None:
            raw["status"]["nodeName"] = target
            raw["status"]["activePods"] = {memory.pod_uid: target}
            raw["metadata"].setdefault("labels", {})[names.NODE_NAME] = target
            mark(raw)
            words.tell_topology(raw, control.node_of(raw))

        await control.change(vmi, edit)
