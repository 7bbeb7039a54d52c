"""A manager that dies as by kill -9, at a chosen write or instant, and is started again on the same store.

What a real kill does, and what this does:

* what it had sent is carried out, though the answer is lost: requests under way live in a task of ours;
* nothing more is sent, by no task and no `finally`: from the moment of death its line is cut;
* what it had in memory is gone: a new process starts with new caches, links and connections.

Only the line between the manager and the world is ours: the management API, Harvester and every guest it dials.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol

from tests.support.simulation import Simulation

from windrow.app.network import verb_and_resource
from windrow.bootstrap.pki import USER
from windrow.client.transport import Transport
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply, Request, WatchEvent

When = Literal["before", "after", "idle"]
HELD_S = 5.0  # how long an instant waits for the request that it is to cut off


@dataclass(frozen=True, slots=True)
class Moment:
    """A place at which the manager could die: before a request is sent, after it was carried out, or in between."""

    when: When
    write: int  # its number among all writes, from 1; 0 for a read
    at_s: float  # since the story began
    what: str = ""  # the request: `harvester POST virtualmachines`


class Fate(Protocol):
    """Says whether the manager dies now. `ask_at_s` is when it wants to be asked although nothing is sent."""

    @property
    def ask_at_s(self) -> float | None: ...

    def strikes(self, moment: Moment) -> bool: ...


@dataclass(frozen=True, slots=True)
class AtWrite:
    """Death before or after write `number`."""

    number: int
    when: When

    @property
    def ask_at_s(self) -> float | None:
        return None

    def strikes(self, moment: Moment) -> bool:
        return (moment.write, moment.when) == (self.number, self.when)


class EveryWrite:
    """Death before and after every write; for those who have more than one life.

    Where nothing at all lies between two writes, death after the one and before the other leave the same world. Such
    a pair is one moment, and strikes once. `but` names resources that are passed over.
    """

    ask_at_s: float | None = None

    def __init__(self, but: str = "") -> None:
        self._but = but
        self._under_way = 0
        self._calm_since: float | None = None  # when the last write was over, while none is under way

    def strikes(self, moment: Moment) -> bool:
        if not moment.write:
            return False
        return self._is_new(moment) and not (self._but and moment.what.endswith(self._but))

    def _is_new(self, moment: Moment) -> bool:
        if moment.when == "after":
            self._under_way -= 1
            self._calm_since = None if self._under_way else moment.at_s
            return True
        same = self._calm_since == moment.at_s
        self._under_way += 1
        self._calm_since = None
        return not same


class EveryWriteFrom(EveryWrite):
    """The same, but not before the first write of `what`."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what, self._begun = what, False

    def strikes(self, moment: Moment) -> bool:
        self._begun |= self._what in moment.what
        return self._begun and super().strikes(moment)


class EveryWriteOf(EveryWrite):
    """The same, of the writes that begin so: `guest DELETE`."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def strikes(self, moment: Moment) -> bool:
        return super().strikes(moment) and moment.what.startswith(self._what)


class EveryWriteSince(EveryWrite):
    """The same, from the write with this number on; of the writes one in `each`, events left out where `but` says so."""

    def __init__(self, number: int, each: int = 1, but: str = "") -> None:
        super().__init__(but)
        self._number, self._each = number, each

    def strikes(self, moment: Moment) -> bool:
        strikes = moment.write >= self._number and super().strikes(moment)
        return strikes and moment.write % self._each == 0


class EveryWriteBetween(EveryWrite):
    """The same, for writes of these numbers."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self._numbers = range(first, last + 1)

    def strikes(self, moment: Moment) -> bool:
        return super().strikes(moment) and moment.write in self._numbers


class TheseWrites(EveryWrite):
    """The same, for writes of these numbers alone."""

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__()
        self._numbers = frozenset(numbers)

    def strikes(self, moment: Moment) -> bool:
        return super().strikes(moment) and moment.write in self._numbers


class SomeWrites:
    """One of `each` in the long run, before or after, as chance has it."""

    ask_at_s: float | None = None

    def __init__(self, each: int, rng: Rng) -> None:
        self._each, self._rng = each, rng

    def strikes(self, moment: Moment) -> bool:
        return moment.write > 0 and self._rng.below(self._each) == 0


class AtInstants:
    """Death at each instant, amid what is done then: some more steps, reads or writes, are let through.

    `instants` are (seconds since the story began, steps let through).
    """

    def __init__(self, instants: Sequence[tuple[float, int]]) -> None:
        self._instants = sorted(instants)
        self._passed = 0

    @property
    def ask_at_s(self) -> float | None:
        return self._instants[0][0] + HELD_S if self._instants else None

    def strikes(self, moment: Moment) -> bool:
        if not self._instants or moment.at_s < self._instants[0][0]:
            return False
        self._passed += 1
        if self._passed <= self._instants[0][1] and moment.when != "idle":
            return False
        self._instants.pop(0)
        self._passed = 0
        return True


@dataclass(frozen=True, slots=True)
class Write:
    """One write that reached its server."""

    number: int
    what: str  # `harvester POST virtualmachines`
    status: int
    at_s: float

    @property
    def made_something(self) -> bool:
        return self.status == 201


@dataclass(slots=True)
class Process:
    """One life of the manager."""

    alive: bool = True
    died: asyncio.Event = field(default_factory=asyncio.Event)

    def check(self) -> None:
        """The dead do nothing; to their tasks it looks like being cancelled."""
        if not self.alive:
            raise asyncio.CancelledError("this process is dead")

    def die(self) -> None:
        self.alive = False
        self.died.set()


class Line:
    """A transport of one process; it is cut when the process dies."""

    def __init__(self, inner: Transport, label: str, process: Process, lives: Lives) -> None:
        self._inner, self._label, self._process, self._lives = inner, label, process, lives

    async def send(self, request: Request) -> Reply:
        self._process.check()
        number = 0 if request.is_read else self._lives.next_number()
        what = f"{self._label} {verb_and_resource(request)}"
        self._pass("before", number, what)
        reply = await self._carry(request, number, what)
        self._process.check()
        self._pass("after", number, what)
        return reply

    async def _carry(self, request: Request, number: int, what: str) -> Reply:
        if not number:
            return await self._inner.send(request)
        reply = await asyncio.shield(self._lives.deliver(self._send_write(request, number, what)))
        if isinstance(reply, KubeError):
            raise reply
        return reply

    async def _send_write(self, request: Request, number: int, what: str) -> Reply | KubeError:
        """The answer, or why there is none: it is delivered whether its sender lives or not."""
        try:
            reply = await self._inner.send(request)
        except KubeError as error:
            return error
        self._lives.note(number, what, reply.status)
        return reply

    def _pass(self, when: When, number: int, what: str) -> None:
        if self._lives.strikes(when, number, what):
            self._process.die()
        self._process.check()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        self._process.check()
        async with self._inner.stream(request) as events:
            yield events

    async def aclose(self) -> None:
        pass


class Lives:
    """The manager's lives, one after the other. `writes` is what all of them wrote, in order."""

    def __init__(self, sim: Simulation, fates: Sequence[Fate] = (), down_s: float = 1.0) -> None:
        self.writes: list[Write] = []
        self.deaths: list[float] = []
        self.died = asyncio.Event()  # the first death
        self._sim = sim
        self._begun = sim.clock.now()
        self._fates = list(fates)
        self._down_s = down_s
        self.sent = 0  # the number of the last write
        self._under_way: asyncio.TaskGroup | None = None

    # -- for the line ----------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        self.sent += 1
        return self.sent

    def strikes(self, when: When, number: int = 0, what: str = "") -> bool:
        return bool(self._fates) and self._fates[0].strikes(Moment(when, number, self._now_s(), what))

    def deliver(self, sending: Coroutine[Any, Any, Reply | KubeError]) -> asyncio.Task[Reply | KubeError]:
        assert self._under_way is not None
        return self._under_way.create_task(sending)

    def note(self, number: int, what: str, status: int) -> None:
        self.writes.append(Write(number, what, status, self._now_s()))

    # -- life and death --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live, die and live again, until cancelled. A manager that ends by itself fails the story."""
        async with asyncio.TaskGroup() as self._under_way:
            while True:
                process = Process()
                task = self._begin(process)
                try:
                    await self._until_death(process, task)
                finally:
                    process.die()
                    await self._sim.kill_manager()
                    self.died.set()
                if self._fates[0].ask_at_s is None:
                    self._fates.pop(0)
                self.deaths.append(self._now_s())
                await self._sim.advance(seconds=self._down_s)

    def _begin(self, process: Process) -> asyncio.Task[None]:
        def dial(access: ClientConfig) -> Transport:
            # The manager reaches guests with a certificate of its own, Harvester with the user's credential.
            label = "guest" if access.user == USER else "harvester"
            return Line(self.through(self._sim.connect(access)), label, process, self)

        local = self.through(self._sim.api.local())
        return self._sim.start_manager(Line(local, "manager", process, self), dial)

    def through(self, inner: Transport) -> Transport:
        """The way from a process to a server; a story may put trouble there."""
        return inner

    async def _until_death(self, process: Process, task: asyncio.Task[None]) -> None:
        death = asyncio.ensure_future(process.died.wait())
        try:
            while process.alive and not task.done():
                asked = self._fates[0].ask_at_s if self._fates else None
                within = None if asked is None else max(0.0, asked - self._now_s())
                done, _ = await asyncio.wait(
                    {task, death}, timeout=within, return_when=asyncio.FIRST_COMPLETED
                )
                if not done and self.strikes("idle"):
                    process.die()
        finally:
            death.cancel()
        if process.alive:
            task.result()
            raise AssertionError("the manager ended by itself")

    def _now_s(self) -> float:
        return (self._sim.clock.now() - self._begun) / timedelta(seconds=1)

    # -- what was done ---------------------------------------------------------------------------------------------

    def made(self) -> Counter[str]:
        """How many objects of each kind were ever made, events left out. A repeated creation shows here for ever."""
        return Counter(
            write.what
            for write in self.writes
            if write.made_something and not write.what.endswith((" events", "/eviction"))
        )


def describe_writes(writes: Sequence[Write]) -> Iterator[str]:
    """A line for each write, for people."""
    for write in writes:
        yield f"{write.number:4} {write.at_s:7.1f} s  {write.what} -> {write.status}"
