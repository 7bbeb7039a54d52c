"""A manager whose connection stalls loses the Lease; what it had sent arrives when another has led for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.client.transport import Transport
from windrow.harvester.resources import VM
from windrow.kubernetes.objects import name_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent

from .cluster_rig import SERVERS, a_cluster, a_pool, machines_of, post, scale, stock
from .test_clock_jumps import Manager

Matches = Callable[[Request], bool]


class StallingTransport:
    """A connection that stalls with the first write that matches: nothing is answered, and that write arrives late."""

    def __init__(self, inner: Transport, matches: Matches) -> None:
        self._inner, self._matches = inner, matches
        self.is_armed = False
        self.late: asyncio.Task[Reply] | None = None
        self.arrives = asyncio.Event()

    async def send(self, request: Request) -> Reply:
        if self.late is None and self.is_armed and not request.is_read and self._matches(request):
            self.late = asyncio.create_task(self._deliver(request))
        if self.late is not None:
            await asyncio.Event().wait()
        return await self._inner.send(request)

    async def _deliver(self, request: Request) -> Reply:
        await self.arrives.wait()
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._inner.stream(request)

    async def aclose(self) -> None:
        pass


def creates_a_machine(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/machines")


def reserves_names(request: Request) -> bool:
    return "/clusters/" in request.path and b'"creating"' in (request.body or b"")


def plans_a_vm(request: Request) -> bool:
    return "/machines/" in request.path and b'"driverConfig"' in (request.body or b"")


@pytest.mark.parametrize(
    "matches",
    [
        creates_a_machine,
        pytest.param(reserves_names, marks=pytest.mark.long),
        pytest.param(plans_a_vm, marks=pytest.mark.long),
    ],
)
def test_a_write_of_the_manager_that_led_before_is_refused_by_the_server(matches: Matches) -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=7, with_manager=False) as sim:
            await stock(sim, documents)
            stalling = StallingTransport(sim.api.local(), matches)
            first = Manager(sim, "one", stalling)
            await sim.advance(seconds=1)
            second = Manager(sim, "two")
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            assert first.elector.may_write
            stalling.is_armed = True
            await scale(sim, ref, 1, 4)
            await sim.advance(seconds=30)
            assert stalling.late is not None
            assert second.elector.may_write
            await stage.wait_for_settled()
            machines = {name_of(raw) for raw in await machines_of(sim, ref)}

            stalling.arrives.set()
            reply = await stalling.late
            await sim.advance(minutes=1)

            assert reply.status == 409
            assert {name_of(raw) for raw in await machines_of(sim, ref)} == machines
            assert {name_of(raw) for raw in await sim.harvester_client.list(VM)} == machines
            assert len(machines) == 5
            for manager in (first, second):
                await manager.stop()

    run_driven(story())
