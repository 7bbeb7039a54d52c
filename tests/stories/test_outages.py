"""After an outage the cluster manager watches again, and goes on, within two seconds of the server's return."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from tests.stories.cluster_rig import SERVERS, a_cluster, a_pool, machines_of, post, scale, stock
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.client.transport import Transport
from windrow.emulator.harvester import VIP
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import OutcomeUnknown, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import name_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import ObjectRef


@dataclass(eq=False)
class ServerLink:
    """The way to a server, for every transport that was given one; pulled, watches break and no request arrives."""

    is_open: bool = True
    watches: dict[asyncio.Timeout, str] = field(default_factory=dict)

    def pull(self) -> set[str]:
        """The paths of the watches that break."""
        self.is_open = False
        paths = set(self.watches.values())
        for scope in self.watches:
            scope.reschedule(asyncio.get_running_loop().time())
        return paths

    def paths(self) -> set[str]:
        return set(self.watches.values())


@dataclass(eq=False)
class LinkedTransport:
    inner: Transport
    link: ServerLink

    async def send(self, request: Request) -> Reply:
        if not self.link.is_open:
            raise Unreachable("connect: no route to host")
        return await self.inner.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        if not self.link.is_open:
            raise Unreachable("connect: no route to host")
        scope = asyncio.timeout(None)
        try:
            async with scope, self.inner.stream(request) as events:
                self.link.watches[scope] = request.path
                yield events
        except TimeoutError as error:
            raise OutcomeUnknown("connection reset by peer") from error
        finally:
            self.link.watches.pop(scope, None)

    async def aclose(self) -> None:
        await self.inner.aclose()


MANAGEMENT, HARVESTER, GUEST = "management API", "Harvester", "guest"
AWAY = pytest.mark.parametrize("away_s", [20, pytest.param(600, marks=pytest.mark.long)])


@asynccontextmanager
async def a_linked_cluster() -> AsyncIterator[tuple[Simulation, ObjectRef, dict[str, ServerLink]]]:
    """A cluster at rest, and the links from its manager to each of the three APIs."""
    documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 2))
    links = {name: ServerLink() for name in (MANAGEMENT, HARVESTER, GUEST)}
    async with simulation(seed=11, with_manager=False) as sim:
        await stock(sim, documents)

        def dial(access: ClientConfig) -> Transport:
            return LinkedTransport(sim.connect(access), links[HARVESTER if VIP in access.server else GUEST])

        sim.start_manager(LinkedTransport(sim.api.local(), links[MANAGEMENT]), dial)
        ref = await post(sim, documents)
        await sim.cluster(ref.name, ref.namespace).wait_for_settled()
        await sim.advance(minutes=1)
        yield sim, ref, links


@AWAY
def test_two_seconds_after_a_server_is_back_the_manager_has_all_its_watches(away_s: int) -> None:
    async def story() -> dict[str, tuple[set[str], set[str]]]:
        found = {}
        async with a_linked_cluster() as (sim, _, links):
            for name, link in links.items():
                before = link.pull()
                await sim.advance(seconds=away_s)
                link.is_open = True
                await sim.advance(seconds=2)
                found[name] = before, link.paths()
                await sim.advance(minutes=1)
        return found

    found = run_driven(story())
    assert {name: len(before) for name, (before, _) in found.items()} == {
        MANAGEMENT: 6,
        HARVESTER: 8,  # hosts, upgrades and the release among them
        GUEST: 2,  # its Nodes and its ETCDSnapshotFiles
    }
    assert {name: before - after for name, (before, after) in found.items()} == {
        name: set() for name in found
    }


@AWAY
def test_two_seconds_after_harvester_is_back_what_happened_meanwhile_is_acted_on(away_s: int) -> None:
    async def story() -> tuple[bool, int, int]:
        async with a_linked_cluster() as (sim, ref, links):
            lost = name_of((await machines_of(sim, ref, "workers"))[0])
            links[HARVESTER].pull()
            await sim.advance(seconds=away_s / 2)
            await sim.harvester_client.delete(VM.ref(lost, "default"), "Foreground")
            await scale(sim, ref, 1, 3)
            await sim.advance(seconds=away_s / 2)
            before = {name_of(raw) for raw in await sim.harvester_client.list(VM)}
            links[HARVESTER].is_open = True
            await sim.advance(seconds=2)
            made = {name_of(raw) for raw in await sim.harvester_client.list(VM)} - before
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            return lost in before, len(made), len(await machines_of(sim, ref, "workers"))

    is_there, made, machines = run_driven(story())
    assert not is_there
    assert made >= 1
    assert machines == 3
