"""The conditions that operations wait for: running with an address, stopped, removed; and when waiting is hopeless.

Each wait watches one object. The VMI has most of the status; the VM is read only where it alone explains why there is no
VMI, or none that runs. `stage` is the Go driver's text for the same wait.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.harvester.resources import VMI
from windrow.harvester.status import ObservedState, read_instance_state, read_state
from windrow.harvester.vmis import Vmi
from windrow.harvester.vms import Vm
from windrow.kubernetes.resources import ObjectRef
from windrow.nodedriver.effects import NotYet, Objects, WaitFor, WaitingOperation

WITHIN = timedelta(minutes=10)

RUNNING = "machine to be Running."
ADDRESS = "get machine's ip."
STOPPED = "machine to be Stopped."
RESTARTED = "machine restart."
REMOVED = "machine removed."

# How long there may be no VMI, or none that is scheduled, before the VM is read for the reason.
READ_AFTER_S = 15
# How long VM and VMI may disagree about the end of a stop.
SETTLE_S = 3
# KubeVirt retries after a crash or a refused pod, so these may pass; a Harvester without capacity seldom does.
CRASH_TIMEOUT_S = 60
UNSCHEDULABLE_TIMEOUT_S = 180
_UP = ("running", "migrating")
_STOPPED_STATUSES = ("Stopped", "Succeeded", "")
_UNSCHEDULABLE = frozenset({"ErrorUnschedulable"})
_NEEDS_REPAIR = frozenset({"DataVolumeError", "ErrImagePull", "ImagePullBackOff"})


def wait_for_address(
    ref: ObjectRef, *, except_instance: str = "", stage: str = RUNNING
) -> WaitingOperation[tuple[str, ...]]:
    """The VM's addresses, once it runs and has any. The VMI with uid `except_instance` does not count."""
    vmi_ref = VMI.ref(ref.name, ref.namespace)

    def predicate(objects: Objects) -> tuple[str, ...] | NotYet:
        vmi: Vmi | None = objects.get(vmi_ref)
        if vmi is not None and vmi.uid == except_instance:
            return NotYet("its old instance is still there", stage)
        not_yet = _running_condition(objects, ref, vmi, stage)
        if not_yet is not None or vmi is None:
            return not_yet or NotYet("it has no instance yet", stage)
        return vmi.addresses or NotYet(_why_no_address(vmi), ADDRESS)

    because = f"wait for the address of {ref.name}"
    addresses: tuple[str, ...] = yield WaitFor((vmi_ref, ref), predicate, WITHIN, because)
    return addresses


def wait_for_stopped(ref: ObjectRef) -> WaitingOperation[None]:
    """Return when no guest runs in the VM. The VM is watched: its VMI may be deleted before the first event."""
    vmi_ref = VMI.ref(ref.name, ref.namespace)

    def predicate(objects: Objects) -> bool | NotYet:
        vm: Vm | None = objects.get(ref)
        if vm is None:
            gone = ref in objects
            return gone or NotYet("no event has come yet", STOPPED)
        if vm.status == "Stopped" and not vm.is_created and not vm.start_requested:
            return True
        if vmi_ref not in objects and (vm.is_created or vm.status not in _STOPPED_STATUSES):
            # A VMI whose guest has powered off stays; only the VMI shows that.
            read_after_s = SETTLE_S if vm.status in _STOPPED_STATUSES else READ_AFTER_S
            return NotYet("its instance is still there", STOPPED, read_after_s=read_after_s)
        vmi: Vmi | None = objects.get(vmi_ref)
        state = read_state(vm, vmi)
        if state.state == "stopped" or (state.state == "failed" and vmi is None):
            return True
        return NotYet(_describe(state), STOPPED)

    yield WaitFor((ref, vmi_ref), predicate, WITHIN, f"wait until {ref.name} is stopped")


def wait_for_removal(ref: ObjectRef, uid: str = "", resource_version: str = "") -> WaitingOperation[None]:
    """Return when the VM (that `uid`) is gone. `resource_version` is one of it, from before it was deleted."""

    def predicate(objects: Objects) -> bool | NotYet:
        vm: Vm | None = objects.get(ref)
        if vm is None and ref in objects:
            return True
        if vm is not None and uid and vm.uid != uid:
            return True  # another VM has the name already
        return NotYet("Harvester is removing the VM", REMOVED)

    yield WaitFor((ref,), predicate, WITHIN, f"wait until {ref.name} is gone", resource_version)


def _running_condition(objects: Objects, ref: ObjectRef, vmi: Vmi | None, stage: str) -> NotYet | None:
    if ref not in objects:
        return _instance_condition(vmi, stage)
    vm: Vm | None = objects[ref]
    if vm is None:
        return NotYet("the VM is gone", stage, give_up_after_s=0)
    state = read_state(vm, vmi)
    if state.state in _UP:
        return None
    return NotYet(
        _describe(state), stage, read_after_s=READ_AFTER_S, give_up_after_s=_give_up_after_s(state, vm)
    )


def _instance_condition(vmi: Vmi | None, stage: str) -> NotYet | None:
    """The condition as far as the VMI alone shows it."""
    if vmi is None:
        return NotYet("it has no instance yet", stage, read_after_s=READ_AFTER_S)
    state = read_instance_state(vmi)
    if state.state in _UP:
        return None
    # Why a VMI ended, whether another follows, and why it is not scheduled is in the VM.
    read_after_s = (
        0
        if state.state in ("failed", "stopped", "stopping")
        else READ_AFTER_S
        if vmi.pending_reason
        else None
    )
    return NotYet(_describe(state), stage, read_after_s=read_after_s)


def _give_up_after_s(state: ObservedState, vm: Vm) -> float | None:
    if state.state == "deleting" or vm.halted_by_quota:
        return 0
    if state.state == "failed" or vm.status in _NEEDS_REPAIR:
        return CRASH_TIMEOUT_S
    return UNSCHEDULABLE_TIMEOUT_S if vm.status in _UNSCHEDULABLE else None


def _describe(state: ObservedState) -> str:
    return f"it is {state.state}" + (f": {state.because}" if state.because else "")


def _why_no_address(vmi: Vmi) -> str:
    return "it runs, and no address is reported" + (
        " by its guest agent yet" if vmi.agent_connected else ": its guest agent has not answered yet"
    )
