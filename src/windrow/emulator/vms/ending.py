"""How instances end: asked to, by themselves, or with their host."""

from __future__ import annotations

from datetime import datetime

from windrow.emulator import names
from windrow.emulator.vms import words
from windrow.emulator.vms.control import Control, Memory
from windrow.emulator.vms.readings import grace_of, phase_of
from windrow.kubernetes.objects import Raw, is_deleting, uid_of


async def take_down(control: Control, vmi: Raw, memory: Memory) -> datetime | None:
    """Deletion of an instance that lives: the power button, then patience, then the plug."""
    if memory.host and not control.hosts.has_power(memory.host):
        control.power.off(uid_of(vmi))
        return await stand_on_dead_host(control, vmi, memory)
    plug = control.power.find(uid_of(vmi))
    if plug is None:
        await end(control, vmi, "Failed")
        return None
    if plug.ending is not None:
        await end(control, vmi, "Succeeded", "The VirtualMachineInstance was shut down.")
        return None
    tell = control.recorder.tell
    if not plug.closing:
        await tell(vmi, "ShuttingDown", "Signaled Graceful Shutdown", names.VIRT_HANDLER)
    control.power.press(uid_of(vmi))
    if look := control.wait(memory, "grace", grace_of(vmi).total_seconds()):
        return look
    await tell(vmi, "Deleted", "Signaled Deletion", names.VIRT_HANDLER)
    await end(control, vmi, "Failed", "The VirtualMachineInstance was shut down.")
    return None


async def end(
    control: Control, vmi: Raw, phase: str, text: str = "", type: str = "Normal", reason: str = ""
) -> None:
    """The domain is no more; `text` is the event that says so."""
    control.power.off(uid_of(vmi))
    control.tenants.leave(uid_of(vmi))

    def edit(raw: Raw) -> None:
        words.enter(raw, phase, control.pace.now())
        if reason:
            raw["status"]["reason"] = reason
        raw["status"]["interfaces"] = []
        words.unsay(raw, "AgentConnected")
        words.say(raw, control.pace.now(), words.NOT_RUNNING)

    await control.change(vmi, edit)
    if text:
        await control.recorder.tell(vmi, "Stopped", text, names.VIRT_HANDLER, type)


async def clear_away(control: Control, vmi: Raw, memory: Memory) -> datetime | None:
    """A final instance keeps its object until it is deleted and its pod is gone."""
    control.power.off(uid_of(vmi))
    control.tenants.leave(uid_of(vmi))
    if not is_deleting(vmi):
        return None
    if look := control.wait(memory, "stopped", control.delays.pod_stop if memory.pod else 0.0):
        return look
    await control.pods.remove(vmi, memory.pod)
    await control.change(vmi, _release)
    control.forget(uid_of(vmi))
    return None


async def stand_on_dead_host(control: Control, vmi: Raw, memory: Memory) -> datetime | None:
    """The host has no power. Nobody knows until its node turns Unknown; nobody acts until it is cleared."""
    health, look = control.hosts.health(memory.host)
    if health.cleared:
        text = f"virt-handler on node {memory.host} is not responsive, marking VMI as failed"
        await control.recorder.tell(vmi, "NodeUnresponsive", text, names.VIRT_CONTROLLER, "Warning")
        await end(control, vmi, "Failed", reason="NodeUnresponsive")
        return None
    if not health.ready and phase_of(vmi) == "Running":
        await control.change(vmi, lambda raw: words.say(raw, control.pace.now(), words.POD_NOT_READY))
    return look


def _release(raw: Raw) -> None:
    finalizers = raw["metadata"].get("finalizers") or ()
    raw["metadata"]["finalizers"] = [one for one in finalizers if one != names.VMI_FINALIZER]
