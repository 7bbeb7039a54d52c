"""Ends of instances: deletion, poweroff by the guest, failure of the host."""

from __future__ import annotations

from datetime import datetime

from windrow.emulator import names
from windrow.emulator.kit.vm_readings import grace_of, phase_of
from windrow.emulator.vms.instances import conditions
from windrow.emulator.vms.instances.context import InstanceContext, InstanceRecord
from windrow.kubernetes.objects import Raw, is_deleting, uid_of


async def shut_down(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> datetime | None:
    """Deletion of a running instance: power button, grace period, power cut."""
    if record.host and not context.hosts.has_power(record.host):
        context.power.power_off(uid_of(vmi))
        return await handle_host_down(context, vmi, record)
    session = context.power.find(uid_of(vmi))
    if session is None:
        await finish(context, vmi, "Failed")
        return None
    if session.ending is not None:
        await finish(context, vmi, "Succeeded", "The VirtualMachineInstance was shut down.")
        return None
    emit = context.recorder.record
    if not session.shutdown_requested:
        await emit(vmi, "ShuttingDown", "Signaled Graceful Shutdown", names.VIRT_HANDLER)
    context.power.press_power_button(uid_of(vmi))
    if due := context.due(record, "grace", grace_of(vmi).total_seconds()):
        return due
    await emit(vmi, "Deleted", "Signaled Deletion", names.VIRT_HANDLER)
    await finish(context, vmi, "Failed", "The VirtualMachineInstance was shut down.")
    return None


async def finish(
    context: InstanceContext, vmi: Raw, phase: str, text: str = "", type: str = "Normal", reason: str = ""
) -> None:
    """Write the final phase; `text` is the message of the event."""
    context.power.power_off(uid_of(vmi))
    context.allocations.release(uid_of(vmi))

    def edit(raw: Raw) -> None:
        conditions.set_phase(raw, phase, context.pace.now())
        if reason:
            raw["status"]["reason"] = reason
        raw["status"]["interfaces"] = []
        conditions.remove_conditions(raw, "AgentConnected")
        conditions.set_conditions(raw, context.pace.now(), conditions.NOT_RUNNING)

    await context.update(vmi, edit)
    if text:
        await context.recorder.record(vmi, "Stopped", text, names.VIRT_HANDLER, type)


async def clean_up(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> datetime | None:
    """An instance in a final phase keeps its object until it is deleted and its pod is gone."""
    context.power.power_off(uid_of(vmi))
    context.allocations.release(uid_of(vmi))
    if not is_deleting(vmi):
        return None
    if due := context.due(record, "stopped", context.delays.pod_stop if record.pod else 0.0):
        return due
    await context.launcher_pods.remove(vmi, record.pod)
    await context.update(vmi, _remove_finalizer)
    context.forget(uid_of(vmi))
    return None


async def handle_host_down(context: InstanceContext, vmi: Raw, record: InstanceRecord) -> datetime | None:
    """The host has no power. Nothing changes until its Node is Unknown, and nothing is deleted until the Node is cleared."""
    health, due = context.hosts.health(record.host)
    if health.cleared:
        text = f"virt-handler on node {record.host} is not responsive, marking VMI as failed"
        await context.recorder.record(vmi, "NodeUnresponsive", text, names.VIRT_CONTROLLER, "Warning")
        await finish(context, vmi, "Failed", reason="NodeUnresponsive")
        return None
    if not health.ready and phase_of(vmi) == "Running":
        await context.update(
            vmi, lambda raw: conditions.set_conditions(raw, context.pace.now(), conditions.POD_NOT_READY)
        )
    return due


def _remove_finalizer(raw: Raw) -> None:
    finalizers = raw["metadata"].get("finalizers") or ()
    raw["metadata"]["finalizers"] = [one for one in finalizers if one != names.VMI_FINALIZER]
