"""Starting and stopping, by KubeVirt's verbs. A refusal that means "it is so already" is a success."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.harvester.kinds import VM_ACTIONS
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Conflict, KubeError
from windrow.kubernetes.resources import ObjectRef
from windrow.nodedriver.create import raise_refusal
from windrow.nodedriver.problems import Busy
from windrow.nodedriver.steps import Call, Talk

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


def start(ref: ObjectRef) -> Talk[None]:
    """Order the VM to run; it may already."""
    yield from _act(ref, "start")


def stop(ref: ObjectRef) -> Talk[None]:
    """Order the guest to shut down; it has the VM's grace period for it."""
    yield from _act(ref, "stop")


def kill(ref: ObjectRef) -> Talk[None]:
    """Switch the VM off, whatever its guest does."""
    yield from _act(ref, "stop", {"gracePeriod": 0})


def restart(ref: ObjectRef) -> Talk[None]:
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


def _act(ref: ObjectRef, verb: str, options: Mapping[str, Any] | None = None) -> Talk[None]:
    try:
        yield _call(ref, verb, options)
    except Conflict as error:
        if not any(text in error.message for text in ALREADY_SO[verb]):
            raise
    except KubeError as error:
        _explain(error, ref, verb)
        raise


def _explain(error: KubeError, ref: ObjectRef, verb: str) -> None:
    if UNDERWAY in error.message:
        raise Busy(
            f"{ref} is just being started or stopped, so the order to {verb} it has to wait",
            "nothing to do; the order is given again",
        ) from error
    raise_refusal(error, f"the {verb} of {ref}")


def _call(ref: ObjectRef, verb: str, options: Mapping[str, Any] | None) -> Call:
    action = VM_ACTIONS.ref(ref.name, ref.namespace)
    return Call(requests.put_subresource(action, verb, options), f"{verb} {ref.name}")
