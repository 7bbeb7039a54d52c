"""Waiting for what was ordered: what is looked at, when it is there, and when it will not come.

Each wait watches one object. The instance tells most; the VM is looked at only where it alone knows why there is no
instance, or none that runs. `stage` holds the words of the Go driver for the same wait.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.harvester.instances import Vmi
from windrow.harvester.kinds import VMI
from windrow.harvester.vms import Vm
from windrow.kubernetes.resources import ObjectRef
from windrow.nodedriver.state import Shown, judge_instance, judge_state
from windrow.nodedriver.steps import Pending, Seen, Talk, Until

WITHIN = timedelta(minutes=10)

RUNNING = "machine to be Running."
ADDRESS = "get machine's ip."
STOPPED = "machine to be Stopped."
RESTARTED = "machine restart."
REMOVED = "machine removed."

# How long there may be no instance, or none that is placed, before the VM is asked for the reason.
LOOK_S = 15
# How long the VM and its instance may disagree about the end of a stop.
SETTLE_S = 3
# A crash, or a refusal of its pod, may heal by itself: KubeVirt tries again in between. A full Harvester seldom does.
CRASH_PATIENCE_S = 60
NO_ROOM_PATIENCE_S = 180
_UP = ("running", "migrating")
_AT_REST = ("Stopped", "Succeeded", "")
_NO_ROOM = frozenset({"ErrorUnschedulable"})
_HELPLESS = frozenset({"DataVolumeError", "ErrImagePull", "ImagePullBackOff"})


def wait_for_address(
    ref: ObjectRef, within: timedelta = WITHIN, *, not_of: str = "", stage: str = RUNNING
) -> Talk[tuple[str, ...]]:
    """The VM's addresses, once it runs and has any. `not_of` is an instance that does not count: it is to go."""
    vmi_ref = VMI.ref(ref.name, ref.namespace)

    def judge(seen: Seen) -> tuple[str, ...] | Pending:
        vmi: Vmi | None = seen.get(vmi_ref)
        if vmi is not None and vmi.uid == not_of:
            return Pending("its old instance is still there", stage)
        pending = _until_running(seen, ref, vmi, stage)
        if pending is not None or vmi is None:
            return pending or Pending("it has no instance yet", stage)
        return vmi.addresses or Pending(_why_no_address(vmi), ADDRESS)

    because = f"wait for the address of {ref.name}"
    addresses: tuple[str, ...] = yield Until((vmi_ref, ref), judge, within, because)
    return addresses


def wait_for_stopped(ref: ObjectRef, within: timedelta = WITHIN) -> Talk[None]:
    """Return when no guest runs in the VM. The VM is watched: its instance may be gone before anybody looks."""
    vmi_ref = VMI.ref(ref.name, ref.namespace)

    def judge(seen: Seen) -> bool | Pending:
        vm: Vm | None = seen.get(ref)
        if vm is None:
            gone = ref in seen
            return gone or Pending("nothing is heard of it yet", STOPPED)
        if vm.status == "Stopped" and not vm.is_created and not vm.awaits_start:
            return True
        if vmi_ref not in seen and (vm.is_created or vm.status not in _AT_REST):
            # An instance whose guest has powered off stays; only the instance tells that.
            look_s = SETTLE_S if vm.status in _AT_REST else LOOK_S
            return Pending("its instance is still there", STOPPED, look_s=look_s)
        vmi: Vmi | None = seen.get(vmi_ref)
        shown = judge_state(vm, vmi)
        if shown.state == "stopped" or (shown.state == "failed" and vmi is None):
            return True
        return Pending(_told(shown), STOPPED)

    yield Until((ref, vmi_ref), judge, within, f"wait until {ref.name} is stopped")


def wait_for_removal(
    ref: ObjectRef, uid: str = "", after: str = "", within: timedelta = WITHIN
) -> Talk[None]:
    """Return when the VM (that `uid`) is gone. `after` is a version of it, from before it was deleted."""

    def judge(seen: Seen) -> bool | Pending:
        vm: Vm | None = seen.get(ref)
        if vm is None and ref in seen:
            return True
        if vm is not None and uid and vm.uid != uid:
            return True  # another has the name already
        return Pending("Harvester is removing the VM", REMOVED)

    yield Until((ref,), judge, within, f"wait until {ref.name} is gone", after)


def _until_running(seen: Seen, ref: ObjectRef, vmi: Vmi | None, stage: str) -> Pending | None:
    if ref not in seen:
        return _by_instance(vmi, stage)
    vm: Vm | None = seen[ref]
    if vm is None:
        return Pending("the VM is gone", stage, patience_s=0)
    shown = judge_state(vm, vmi)
    if shown.state in _UP:
        return None
    return Pending(_told(shown), stage, look_s=LOOK_S, patience_s=_patience(shown, vm))


def _by_instance(vmi: Vmi | None, stage: str) -> Pending | None:
    """Without a look at the VM: the instance alone."""
    if vmi is None:
        return Pending("it has no instance yet", stage, look_s=LOOK_S)
    shown = judge_instance(vmi)
    if shown.state in _UP:
        return None
    # Why an instance ended, and whether another comes, is for the VM to say; why it is not placed, too.
    look_s = 0 if shown.state in ("failed", "stopped", "stopping") else LOOK_S if vmi.waits_for else None
    return Pending(_told(shown), stage, look_s=look_s)


def _patience(shown: Shown, vm: Vm) -> float | None:
    if shown.state == "deleting" or vm.halted_by_quota:
        return 0
    if shown.state == "failed" or vm.status in _HELPLESS:
        return CRASH_PATIENCE_S
    return NO_ROOM_PATIENCE_S if vm.status in _NO_ROOM else None


def _told(shown: Shown) -> str:
    return f"it is {shown.state}" + (f": {shown.because}" if shown.because else "")


def _why_no_address(vmi: Vmi) -> str:
    return "it runs, and no address is reported" + (
        " by its guest agent yet" if vmi.agent_connected else ": its guest agent has not answered yet"
    )
