"""Two managers that compete for one Lease. Either process may end in two ways, and is started again with another identity.

* It dies, as in `crashes`: nothing more is sent, and its Lease expires.
* It is cut off in the middle of a write: nothing that it sends is answered, and what it sends as long as it holds the Lease
  arrives late, when the other one leads. It notices that by its own clock, stops its work, and ends by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from tests.stories.crashes import Fate, Line, Lives, Moment, Process
from tests.support.simulation import Simulation

from windrow.app.embedded import make_manager
from windrow.bootstrap.pki import USER
from windrow.client.client import Client
from windrow.client.leader_election import (
    LeaderElectionConfig,
    LeaderElector,
    LeadershipLost,
    LeaderTransport,
)
from windrow.client.transport import Transport
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply, Request, WatchEvent

# As by default, but renewed half as often: in a life of hours most requests would be renewals.
LEASE = LeaderElectionConfig(retry_period=timedelta(seconds=4), renew_period=timedelta(seconds=4))
PLACES = ("one", "two")


class Partitions(Protocol):
    """Says whether a process that leads is cut off in this write, and how late the write arrives then."""

    def cuts(self, moment: Moment) -> bool: ...

    def draw_delay_s(self) -> float: ...


@dataclass(slots=True)
class RivalProcess(Process):
    """One life of one of the two. `late_s` is how late what it sends arrives, once it is cut off."""

    elector: LeaderElector | None = None
    late_s: float | None = None

    @property
    def leads(self) -> bool:
        return self.alive and self.elector is not None and self.elector.may_write


@dataclass(frozen=True, slots=True)
class LateWrite:
    """A write that arrived late. `status` is the answer that its sender never had, 0 where the server was not reached."""

    what: str
    status: int
    sent_s: float
    arrived_s: float
    is_stale: bool  # whether the other process led when it arrived

    def __str__(self) -> str:
        return f"{self.what} of {self.sent_s:.0f} s arrived at {self.arrived_s:.0f} s: {self.status}"


class RivalLine(Line):
    """A line of a process that may be cut off."""

    def __init__(self, inner: Transport, label: str, process: RivalProcess, rivals: Rivals) -> None:
        super().__init__(inner, label, process, rivals)
        self._rival, self._rivals = process, rivals

    async def _carry(self, request: Request, number: int, what: str) -> Reply:
        if number and self._rivals.cuts(self._rival, number, what):
            self._rival.late_s = self._rivals.partitions.draw_delay_s()
        if self._rival.late_s is None:
            return await super()._carry(request, number, what)
        if number and self._rival.leads:
            self._rivals.begin(self._arrive_late(request, number, what, self._rival.late_s))
        await _wait_forever()
        raise AssertionError("no answer comes")

    async def _arrive_late(self, request: Request, number: int, what: str, late_s: float) -> None:
        sent_s = self._rivals.now_s
        await self._rivals.wait_s(late_s)
        is_stale = self._rivals.leads_another(self._rival)
        reply = await self._send_write(request, number, what)
        status = 0 if isinstance(reply, KubeError) else reply.status
        self._rivals.late.append(LateWrite(what, status, sent_s, self._rivals.now_s, is_stale))

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with super()._stream(request) as events:
            yield self._until_cut_off(events)

    async def _until_cut_off(self, events: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
        async for event in events:
            if self._rival.late_s is not None:
                await _wait_forever()
            yield event


async def _wait_forever() -> None:
    await asyncio.Event().wait()


class Rivals(Lives):
    """The lives of both: `deaths` are of either, `cut` the writes in which one was cut off, `late` those that arrived late."""

    def __init__(self, sim: Simulation, fate: Fate, partitions: Partitions, rng: Rng, down_s: float) -> None:
        super().__init__(sim, [fate], down_s)
        self.partitions = partitions
        self.cut: list[str] = []
        self.late: list[LateWrite] = []
        self._rng = rng
        self._processes: dict[str, RivalProcess] = {}
        self._count = 0

    # -- for the lines -----------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self._now_s()

    async def wait_s(self, seconds: float) -> None:
        await self._sim.advance(seconds=seconds)

    def begin(self, delivery: Coroutine[Any, Any, None]) -> None:
        assert self._under_way is not None
        self._under_way.create_task(delivery)

    def cuts(self, process: RivalProcess, number: int, what: str) -> bool:
        """Whether this write is the one in which the process is cut off."""
        if process.late_s is not None or not process.leads:
            return False
        if not self.partitions.cuts(Moment("before", number, self._now_s(), what)):
            return False
        self.cut.append(what)
        return True

    def leads_another(self, process: RivalProcess) -> bool:
        return any(one.leads for one in self._processes.values() if one is not process)

    # -- lives and deaths --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Both live, end and live again, until cancelled. A manager that ends by itself, but for its Lease, fails the story."""
        async with asyncio.TaskGroup() as self._under_way, asyncio.TaskGroup() as places:
            for place in PLACES:
                places.create_task(self._live(place))

    async def _live(self, place: str) -> None:
        while True:
            self._count += 1
            process = self._processes[place] = RivalProcess()
            task = asyncio.create_task(self._lead(process, f"{place}-{self._count}"))
            try:
                await self._until_end(process, task)
            finally:
                process.die()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await self._sim.advance(seconds=self._down_s)

    async def _lead(self, process: RivalProcess, identity: str) -> None:
        clock, api = self._sim.clock, RivalLine(self.through(self._sim.api.local()), "manager", process, self)
        elector = LeaderElector(Client(api), "kube-system", "windrow", identity, clock, self._rng, LEASE)
        process.elector = elector

        def dial(access: ClientConfig) -> Transport:
            label = "guest" if access.user == USER else "harvester"
            line = RivalLine(self.through(self._sim.connect(access)), label, process, self)
            return LeaderTransport(line, elector)

        manager, backend = make_manager(
            LeaderTransport(api, elector), dial, clock, self._rng, self._sim.request_counts
        )

        async def work() -> None:
            async with backend.running():
                await manager.run()

        await elector.run(work)

    async def _until_end(self, process: RivalProcess, task: asyncio.Task[None]) -> None:
        death = asyncio.ensure_future(process.died.wait())
        try:
            await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            death.cancel()
        if not process.alive:
            self.deaths.append(self._now_s())
        elif isinstance(task.exception(), LeadershipLost):
            return
        else:
            task.result()
            raise AssertionError("the manager ended by itself")
