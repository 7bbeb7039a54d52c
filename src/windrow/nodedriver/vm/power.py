"""Start, stop, kill and restart by KubeVirt's subresources. A refusal that means "already so" is a success."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.harvester.resources import VM_ACTIONS
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Conflict, KubeError
from windrow.kubernetes.resources import ObjectRef
from windrow.nodedriver.effects import Call, Operation
from windrow.nodedriver.errors import Busy
from windrow.nodedriver.vm.create import raise_if_rejected

# Parts of KubeVirt's 409 texts, per verb, and what they mean for the one who asked.
ALREADY_DONE: Mapping[str, tuple[str, ...]] = {
    "start": (
        "VM is already running",
        "does not support manual start requests",  # Always and Once start by themselves
        "does not support starting VM from failed state",  # KubeVirt is starting it again
    ),
    "stop": ("VM is not running", "only supports manual stop requests with a shorter graceperiod"),
}
UNDERWAY = "stop/start already underway"
NOTHING_TO_RESTART = ("VM is not running", "does not support manual restart requests")


def start(ref: ObjectRef) -> Operation[None]:
    """Request that the VM runs; it may already."""
    yield from _call_verb(ref, "start")


def stop(ref: ObjectRef) -> Operation[None]:
    """Request a shutdown of the guest, within the VM's grace period."""
    yield from _call_verb(ref, "stop")


def kill(ref: ObjectRef) -> Operation[None]:
    """Stop the VM without grace period."""
    yield from _call_verb(ref, "stop", {"gracePeriod": 0})


def restart(ref: ObjectRef) -> Operation[None]:
    """Request a restart of a running VM, or a start of a stopped one."""
    try:
        yield _call(ref, "restart", None)
    except Conflict as error:
        if not any(text in error.message for text in NOTHING_TO_RESTART):
            raise
        yield from start(ref)
    except KubeError as error:
        _raise_explained(error, ref, "restart")
        raise


def _call_verb(ref: ObjectRef, verb: str, options: Mapping[str, Any] | None = None) -> Operation[None]:
    try:
        yield _call(ref, verb, options)
    except Conflict as error:
        if not any(text in error.message for text in ALREADY_DONE[verb]):
            raise
    except KubeError as error:
        _raise_explained(error, ref, verb)
        raise


def _raise_explained(error: KubeError, ref: ObjectRef, verb: str) -> None:
    if UNDERWAY in error.message:
        raise Busy(
            f"{ref} is being started or stopped, so the {verb} has to wait",
            "nothing to do; the request is repeated",
        ) from error
    raise_if_rejected(error, f"the {verb} of {ref}")


def _call(ref: ObjectRef, verb: str, options: Mapping[str, Any] | None) -> Call:
    action = VM_ACTIONS.ref(ref.name, ref.namespace)
    return Call(requests.put_subresource(action, verb, options), f"{verb} {ref.name}")
