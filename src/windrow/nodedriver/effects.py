"""Operations without I/O: an operation is a generator that yields effects and is sent their results.

It yields

* `Call`    — one request; sent back is the object in the answer, or the KubeError is thrown in;
* `Gather`  — several reads at once; sent back is a tuple of objects and KubeErrors, in order;
* `WaitFor` — wait until the observed objects satisfy `predicate`; sent back is what it returned, or WaitTimeout is
  thrown in;
* `Log`     — a line for the log;

and returns its result. An `Operation` without waits runs on both runners, the asyncio one (`machines.harvester.runner`)
and the blocking one of the plugin (`nodedriver.blocking_runner`). A `WaitingOperation` runs on the blocking one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from windrow.harvester.resources import VM, VMI
from windrow.harvester.vmis import read_vmi
from windrow.harvester.vms import read_vm
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import ApiResource, ObjectRef

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class NotYet:
    """The predicate is not satisfied; `reason` says why, in KubeVirt's words where it has any.

    `stage` names the part of the wait; each stage has its own timeout. `read_after_s`: without an event for so long, the
    other objects are read for an explanation. `give_up_after_s`: where the reason lasts so long, WaitHopeless is raised.
    """

    reason: str
    stage: str = ""
    read_after_s: float | None = None
    give_up_after_s: float | None = None


# Typed readings of the objects of a WaitFor; None for one that does not exist. One that is missing was not read yet.
Objects = Mapping[ObjectRef, Any]

READERS: Mapping[ApiResource, Callable[[Mapping[str, Any]], Any]] = {VM: read_vm, VMI: read_vmi}


@dataclass(frozen=True, slots=True)
class Call:
    request: Request
    because: str


@dataclass(frozen=True, slots=True)
class Gather:
    """Reads that may go out together."""

    requests: tuple[Request, ...]
    because: str


@dataclass(frozen=True, slots=True)
class WaitFor(Generic[T]):
    """Wait for at most `within` in each stage. A runner with one watch watches the first of `refs`, and reads the others
    only when `predicate` asks for them. `resource_version` is that of the first, where it is known."""

    refs: tuple[ObjectRef, ...]
    predicate: Callable[[Objects], T | NotYet]
    within: timedelta
    because: str
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    text: str


Effect = Call | Gather | Log
Operation = Generator[Effect, Any, R]
WaitingOperation = Generator[Effect | WaitFor[Any], Any, R]


class WaitTimeout(Exception):
    """The predicate was not satisfied in time. `reason` is the last NotYet's, `stage` the part of the wait."""

    def __init__(self, because: str, reason: str, within: timedelta, stage: str = "") -> None:
        super().__init__(f"{because}: not within {within.total_seconds():.0f} s; last state: {reason}")
        self.reason, self.stage = reason, stage


class WaitHopeless(WaitTimeout):
    """The predicate cannot be satisfied by waiting longer."""
