"""Starting and stopping, by KubeVirt's verbs. A refusal that means "it is so already" is a success."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from windrow.harvester.instances import Vmi
from windrow.harvester.kinds import VM_ACTIONS, VMI
from windrow.harvester.vms import Vm
from windrow.kube import requests
from windrow.kube.errors import Conflict, KubeError
from windrow.kube.refs import Ref
from windrow.nodedriver.create import raise_refusal
from windrow.nodedriver.problems import Busy
from windrow.nodedriver.state import judge_state
from windrow.nodedriver.steps import Call, Pending, Seen, Talk, Until

# Parts of KubeVirt's 409 texts, per verb, and what they mean for the one who asked.
ALREADY_SO: Mapping[str, tuple[str, ...]] = {
    "start": (
        "VM is already running",
        "does not support manual start requests",  # Always and Once start by themselves
        "does not support starting VM from failed state",  # KubeVirt is starting it again
    ),
    "stop": ("VM is not running", "only supports manual stop requests with a shorter graceperiod"),
}
UNDERWAY = "stop/start already underway"
NOTHING_TO_RESTART = ("VM is not running", "does not support manual restart requests")

WITHIN = timedelta(minutes=10)


def start(ref: Ref) -> Talk[None]:
    """Order the VM to run; it may already."""
    yield from _act(ref, "start")


def stop(ref: Ref) -> Talk[None]:
    """Order the guest to shut down; it has the VM's grace period for it."""
    yield from _act(ref, "stop")


def kill(ref: Ref) -> Talk[None]:
    """Switch the VM off, whatever its guest does."""
    yield from _act(ref, "stop", {"gracePeriod": 0})


def restart(ref: Ref) -> Talk[None]:
    """Order a new start of a running VM, or the first one of a VM that is down."""
    try:
        yield _call(ref, "restart", None)
    except Conflict as error:
        if not any(text in error.message for text in NOTHING_TO_RESTART):
            raise
        yield from start(ref)
    except KubeError as error:
        _explain(error, ref, "restart")
        raise


def wait_for_address(ref: Ref, within: timedelta = WITHIN) -> Talk[tuple[str, ...]]:
    """The VM's addresses, once it runs and has any."""

    def judge(seen: Seen) -> tuple[str, ...] | Pending:
        vmi = seen[VMI.ref(ref.name, ref.namespace)]
        pending = _pending_until(seen, ref, "running")
        return pending or vmi.addresses or Pending("no address is reported yet")

    addresses: tuple[str, ...] = yield _until(ref, judge, within, f"wait for the address of {ref.name}")
    return addresses


def wait_for_running(ref: Ref, within: timedelta = WITHIN) -> Talk[None]:
    yield from _wait_for(ref, "running", within)


def wait_for_restart(ref: Ref, vmi_uid: str, within: timedelta = WITHIN) -> Talk[None]:
    """Return when another instance than `vmi_uid` runs."""

    def judge(seen: Seen) -> bool | Pending:
        vmi: Vmi | None = seen[VMI.ref(ref.name, ref.namespace)]
        if vmi is not None and vmi.uid == vmi_uid:
            return Pending("its old instance is still there")
        return _pending_until(seen, ref, "running") or True

    yield _until(ref, judge, within, f"wait until {ref.name} has restarted")


def wait_for_stopped(ref: Ref, within: timedelta = WITHIN) -> Talk[None]:
    yield from _wait_for(ref, "stopped", within)


def wait_for_removal(ref: Ref, within: timedelta = WITHIN) -> Talk[None]:
    """Return when the VM is gone."""

    def judge(seen: Seen) -> bool | Pending:
        return Pending("Harvester is removing the VM") if seen[ref] is not None else True

    yield Until((ref,), judge, within, f"wait until {ref.name} is gone")


def _act(ref: Ref, verb: str, options: Mapping[str, Any] | None = None) -> Talk[None]:
    try:
        yield _call(ref, verb, options)
    except Conflict as error:
        if not any(text in error.message for text in ALREADY_SO[verb]):
            raise
    except KubeError as error:
        _explain(error, ref, verb)
        raise


def _explain(error: KubeError, ref: Ref, verb: str) -> None:
    if UNDERWAY in error.message:
        raise Busy(
            f"{ref} is just being started or stopped, so the order to {verb} it has to wait",
            "nothing to do; the order is given again",
        ) from error
    raise_refusal(error, f"the {verb} of {ref}")


def _call(ref: Ref, verb: str, options: Mapping[str, Any] | None) -> Call:
    action = VM_ACTIONS.ref(ref.name, ref.namespace)
    return Call(requests.call(action, verb, options), f"{verb} {ref.name}")


def _wait_for(ref: Ref, state: str, within: timedelta) -> Talk[None]:
    def judge(seen: Seen) -> bool | Pending:
        return _pending_until(seen, ref, state) or True

    yield _until(ref, judge, within, f"wait until {ref.name} is {state}")


def _until(ref: Ref, judge: Any, within: timedelta, because: str) -> Until[Any]:
    return Until((VMI.ref(ref.name, ref.namespace), ref), judge, within, because)


def _pending_until(seen: Seen, ref: Ref, state: str) -> Pending | None:
    vm: Vm | None = seen[ref]
    vmi: Vmi | None = seen[VMI.ref(ref.name, ref.namespace)]
    if vm is None:
        return Pending("there is no such VM")
    shown = judge_state(vm, vmi)
    if shown.state == state:
        return None
    return Pending(f"it is {shown.state}" + (f": {shown.because}" if shown.because else ""))
