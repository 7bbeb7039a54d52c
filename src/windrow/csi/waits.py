"""What the present call waits for, so that a call which runs out of time can say so."""

from __future__ import annotations

from contextvars import ContextVar


class Wait:
    """What was awaited last; "" at first."""

    what = ""


_PRESENT: ContextVar[Wait | None] = ContextVar("present_wait", default=None)


def begin_call() -> Wait:
    """What the call of this task, and of those that it starts, waits for from now on."""
    wait = Wait()
    _PRESENT.set(wait)
    return wait


def waits_for(what: str) -> None:
    """Note what is awaited next: `VirtualMachineInstance default/a to report volume pvc-1 as Ready (phase: Pending)`."""
    wait = _PRESENT.get()
    if wait is not None:
        wait.what = what
