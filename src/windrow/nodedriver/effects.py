"""Decisions without I/O: a talk yields steps and is sent their results; whoever runs it does the talking.

A `Talk` is a generator. It yields

* `Call`    — one request; sent back is the object in the answer, or the KubeError is thrown in;
* `Gather`  — several reads at once; sent back is a tuple of objects and KubeErrors, in order;
* `Until`   — wait until what is seen of some objects satisfies `judge`; sent back is what it returned, or NotInTime
  is thrown in;
* `Note`    — a sentence for whoever watches;

and returns its result. An `Operation` without waits runs on both runners, the asyncio one (`machines.harvester.runner`)
and the blocking one of the plugin (`nodedriver.blocking_runner`). A `WaitingOperation` runs on the blocking one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from windrow.core.json import NotJson, loads
from windrow.harvester.resources import VM, VMI
from windrow.harvester.vmis import read_vmi
from windrow.harvester.vms import read_vm
from windrow.kubernetes.errors import KubeError, error_for
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import ApiResource, ObjectRef

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class NotYet:
    """Not yet: what is waited for, in the infrastructure's words where it has any.

    `stage` names the part of the wait that this is; each has its own time. `look_s`: if nothing is heard for so long,
    a look at the other objects may explain it. `patience_s`: where it stays so for so long, waiting is in vain.
    """

    reason: str
    stage: str = ""
    read_after_s: float | None = None
    give_up_after_s: float | None = None


# Typed readings of the objects an Until looks at; None for one that does not exist. One that is missing has not been
# looked at (yet).
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
    """Wait for at most `within` in each stage. A runner that has one watch watches the first of `of`, and looks at
    the others only when `judge` asks for it. `after` is the resourceVersion of the first that is known already."""

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
    """What was waited for did not come. `pending` is the last reason heard, `stage` the part of the wait."""

    def __init__(self, because: str, reason: str, within: timedelta, stage: str = "") -> None:
        super().__init__(f"{because}: not within {within.total_seconds():.0f} s; last seen: {reason}")
        self.reason, self.stage = reason, stage


class WaitHopeless(WaitTimeout):
    """What was waited for will not come by waiting."""


def parse_reply(reply: Reply) -> Any:
    """What a runner sends back for a reply: the object in it, {} for an empty body. Raises the error it stands for."""
    error = error_for(reply)
    if error is not None:
        raise error
    if not reply.body.strip():
        return {}
    try:
        return loads(reply.body)
    except NotJson as bad:
        raise KubeError(f"the server answered {reply.status} with something that is not JSON: {bad}") from bad
