"""Everything that the manager talks to fails now and then: a life still ends as asked, with nothing twice or left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest
from tests.random_faults import random_faults
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, gone, machines_of, post, scale, stock
from tests.support.clock import run_driven
from tests.support.seeds import sampled
from tests.support.simulation import simulation

from windrow.client.transport import Transport
from windrow.clusters.api.kinds import MACHINE
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import OutcomeUnknown, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import name_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent

LONG = timedelta(hours=3)


@dataclass(eq=False)
class Flaky:
    """A way on which requests get lost, answers get lost, and servers are out of sorts, by `odds` each."""

    inner: Transport
    rng: Rng
    odds: float

    def _strikes(self) -> bool:
        return self.rng.uniform(0, 1) < self.odds

    async def send(self, request: Request) -> Reply:
        if self._strikes():
            raise Unreachable("the network is down for a moment")
        if self._strikes():
            return _refusal(500, "InternalError", "etcdserver: leader changed")
        if request.method in ("PATCH", "PUT") and self._strikes():
            return _refusal(409, "Conflict", "the object has been modified")
        reply = await self.inner.send(request)
        if self._strikes():
            raise OutcomeUnknown("the connection broke before the answer came")
        return reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if self._strikes():
            raise Unreachable("the network is down for a moment")
        async with self.inner.stream(request) as events:
            yield self._until_it_breaks(events)

    async def _until_it_breaks(self, events: AsyncIterator[WatchEvent]) -> AsyncIterator[WatchEvent]:
        async for event in events:
            yield event
            if self._strikes():
                raise OutcomeUnknown("the watch broke")

    async def aclose(self) -> None:
        pass


def _refusal(status: int, reason: str, message: str) -> Reply:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "reason": reason,
        "message": message,
    }
    return Reply(status, dumps(body))


@pytest.mark.parametrize("seed", sampled(range(8), 1))
def test_a_life_among_failing_servers_ends_as_asked(seed: int) -> None:
    async def story() -> None:
        rng = Rng(f"flaky {seed}")
        faults = random_faults(Rng(f"harvester {seed}"), 0.03)
        async with simulation(seed=seed, with_manager=False, faults=faults) as sim:

            def dial(access: ClientConfig) -> Transport:
                return Flaky(sim.connect(access), rng, 0.02)

            sim.start_manager(Flaky(sim.api.local(), rng, 0.04), dial)
            documents = a_cluster(a_pool("servers", 3, ALL), a_pool("workers", 1, drainBeforeDelete=True))
            await stock(sim, documents)
            before = await inventory(sim.harvester.api)
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, timeout=LONG)

            async def stands() -> None:
                await stage.wait_for_settled()
                await sim.advance(minutes=5)
                machines = await stage.wait_for_settled()
                wanted = sorted(name_of(raw) for raw in machines)
                assert sorted(name_of(raw) for raw in await sim.harvester_client.list(VM)) == wanted
                assert sorted(name_of(raw) for raw in await stage.list_nodes()) == wanted

            await stands()
            lost = (await machines_of(sim, ref, "servers"))[0]
            await sim.harvester_client.delete(VM.ref(name_of(lost), "default"), "Foreground")
            await sim.advance(minutes=1)
            await stands()
            await scale(sim, ref, 0, 1)
            await scale(sim, ref, 1, 2)
            await stands()
            await sim.management_client.delete(ref)
            await gone(sim, ref, LONG)
            assert await inventory(sim.harvester.api) == before
            assert await sim.management_client.list(MACHINE) == []

    run_driven(story())
