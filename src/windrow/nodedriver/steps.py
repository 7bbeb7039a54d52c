"""Decisions without I/O: a talk yields steps and is sent their results; whoever runs it does the talking.

A `Talk` is a generator. It yields

* `Call`    — one request; sent back is the object in the answer, or the KubeError is thrown in;
* `Gather`  — several reads at once; sent back is a tuple of objects and KubeErrors, in order;
* `Until`   — wait until what is seen of some objects satisfies `judge`; sent back is what it returned, or NotInTime
  is thrown in;
* `Note`    — a sentence for whoever watches;

and returns its result. The asyncio runner (`machines.runner`) waits on shared caches, the blocking one
(`nodedriver.blocking`) on a watch of its own; both run the same talks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from windrow.formats.json import NotJson, loads
from windrow.harvester.instances import read_vmi
from windrow.harvester.kinds import VM, VMI
from windrow.harvester.vms import read_vm
from windrow.kube.errors import KubeError, error_for
from windrow.kube.refs import Kind, Ref
from windrow.kube.requests import Reply, Request

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Pending:
    """Not yet: what is waited for, in the infrastructure's words where it has any."""

    what: str


# Typed readings of the objects an Until looks at; None for one that does not exist.
Seen = Mapping[Ref, Any]

READERS: Mapping[Kind, Callable[[Mapping[str, Any]], Any]] = {VM: read_vm, VMI: read_vmi}


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
class Until(Generic[T]):
    """Wait for at most `within`. A runner that has one watch only watches the first of `of`."""

    of: tuple[Ref, ...]
    judge: Callable[[Seen], T | Pending]
    within: timedelta
    because: str


@dataclass(frozen=True, slots=True)
class Note:
    text: str


Step = Call | Gather | Until[Any] | Note
Talk = Generator[Step, Any, R]


class NotInTime(Exception):
    """What was waited for did not come. `pending` is the last reason heard."""

    def __init__(self, because: str, pending: str, within: timedelta) -> None:
        super().__init__(f"{because}: not within {within.total_seconds():.0f} s; last seen: {pending}")
        self.pending = pending


def answer(reply: Reply) -> Any:
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
