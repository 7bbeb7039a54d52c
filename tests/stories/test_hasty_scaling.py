"""A pool that is scaled up and down again before the manager could follow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from tests.stories.cluster_rig import SERVERS, a_cluster, a_pool, machines_of, post, scale, stock
from tests.support.clock import LoopClock, run_driven
from tests.support.simulation import VIP, Simulation, simulation

from windrow.client.transport import Transport
from windrow.core.formats.fastjson import loads
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, is_deleting, name_of, nested
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import ObjectRef


@dataclass(eq=False)
class Slow:
    """Every write takes its time; what is said of Clusters is kept."""

    inner: Transport
    clock: LoopClock
    takes: timedelta
    said: list[Raw] = field(default_factory=list)

    async def send(self, request: Request) -> Reply:
        if not request.is_read:
            await self.clock.sleep_until(self.clock.now() + self.takes)
        reply = await self.inner.send(request)
        if not request.is_read and reply.status < 300:
            raw = loads(reply.body)
            self.said += [raw] if raw.get("kind") == "Cluster" else []
        return reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self.inner.stream(request) as events:
            yield events

    async def aclose(self) -> None:
        pass


@dataclass
class Line:
    """A line that may be cut."""

    inner: Transport
    cut: set[str]

    async def send(self, request: Request) -> Reply:
        if self.cut:
            raise Unreachable("the line is cut")
        return await self.inner.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if self.cut:
            raise Unreachable("the line is cut")
        async with self.inner.stream(request) as events:
            yield events

    async def aclose(self) -> None:
        pass


async def _ready_workers(sim: Simulation, ref: ObjectRef) -> set[str]:
    return {
        name_of(raw)
        for raw in await machines_of(sim, ref, "workers")
        if not is_deleting(raw) and is_true(nested(raw, "status", "conditions"), "Ready")
    }


async def _look(sim: Simulation, ref: ObjectRef, seconds: float, most: int) -> None:
    """For this long: a Cluster that claims to be Ready has as many as the least that was asked for; else it says why."""
    for _ in range(int(seconds * 2)):
        await sim.advance(seconds=0.5)
        raw = await sim.management_client.get(ref)
        if nested(raw, "status", "observedGeneration") != nested(raw, "metadata", "generation"):
            continue
        ready = await _ready_workers(sim, ref)
        if nested(raw, "status", "ready"):
            assert len(ready) >= most
        else:
            assert nested(raw, "status", "waiting", "for")


@pytest.mark.parametrize(
    ("silent", "takes"),
    [
        (False, 0.0),
        (True, 0.3),
        *(pytest.param(*case, marks=pytest.mark.long) for case in [(False, 0.3), (True, 0.0)]),
    ],
)
def test_scaled_up_and_down_in_haste_the_workers_that_are_ready_stay(silent: bool, takes: float) -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2))
        cut: set[str] = set()
        async with simulation(seed=3, with_manager=False) as sim:

            def dial(access: ClientConfig) -> Transport:
                inner = sim.connect(access)
                return inner if access.server == VIP else Line(inner, cut)

            slow = Slow(sim.api.local(), sim.clock, timedelta(seconds=takes))
            await stock(sim, documents)
            sim.start_manager(slow, dial)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            before = await _ready_workers(sim, ref)

            await scale(sim, ref, 1, 12)
            await _look(sim, ref, 8, most=12)
            if silent:
                cut.add("guest")
                await sim.advance(minutes=2)
            await scale(sim, ref, 1, 1)
            await _look(sim, ref, 60, most=1)
            cut.clear()
            await _look(sim, ref, 120, most=1)
            await stage.wait_for_settled()

            kept = await _ready_workers(sim, ref)
            assert len(kept) == 1
            assert kept <= before

    run_driven(story())


def test_while_many_machines_are_recorded_the_cluster_does_not_claim_to_be_ready() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=3, with_manager=False) as sim:
            slow = Slow(sim.api.local(), sim.clock, timedelta(seconds=0.5))
            await stock(sim, documents)
            sim.start_manager(slow)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()

            await scale(sim, ref, 1, 30)
            await sim.advance(seconds=2)  # the thirty are not even recorded yet

            status = (await sim.management_client.get(ref))["status"]
            assert len(await machines_of(sim, ref, "workers")) < 30
            assert not status["ready"]
            assert (status["readyWorkers"], status["desiredWorkers"]) == (1, 30)
            assert (
                status["waiting"]["for"] == "machine pool workers to be complete: 1 of 30 machines are Ready"
            )

    run_driven(story())
