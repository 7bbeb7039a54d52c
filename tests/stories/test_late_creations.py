"""A creation on Harvester that was requested and not answered, and is carried out after what it was for is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.client.http_transport import RESPONSE_TIMEOUT_S
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import MACHINE
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import OutcomeUnknown
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import name_of, nested
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import ObjectRef

from .cluster_rig import SERVERS, a_cluster, a_pool, gone, machines_of, post, stock


class LateCreation:
    """Something before Harvester that holds the first creation of one kind, also when the client has gone."""

    def __init__(self, sim: Simulation, plural: str) -> None:
        self._sim, self._plural = sim, plural
        self.is_armed = True
        self.held = asyncio.Event()
        self.arrives = asyncio.Event()
        self._late: asyncio.Task[Reply] | None = None

    def connect(self, access: ClientConfig) -> Transport:
        return _Line(self._sim.connect(access), self)

    async def send(self, inner: Transport, request: Request) -> Reply:
        is_held = request.method == "POST" and request.path.endswith(f"/{self._plural}")
        if self.is_armed and is_held and self._late is None:
            self._late = asyncio.create_task(self._deliver(inner, request))
            self.held.set()
            await asyncio.sleep(RESPONSE_TIMEOUT_S)
            raise OutcomeUnknown("Harvester did not answer")
        return await inner.send(request)

    async def _deliver(self, inner: Transport, request: Request) -> Reply:
        await self.arrives.wait()
        return await inner.send(request)

    async def arrive(self) -> Reply:
        assert self._late is not None
        self.arrives.set()
        return await self._late


class _Line:
    def __init__(self, inner: Transport, late: LateCreation) -> None:
        self._inner, self._late = inner, late

    async def send(self, request: Request) -> Reply:
        return await self._late.send(self._inner, request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._inner.stream(request)

    async def aclose(self) -> None:
        pass


async def begin(sim: Simulation, late: LateCreation) -> ObjectRef:
    """A manager is creating a cluster, and the creation is held."""
    sim.start_manager(connect=late.connect)
    ref = await post(sim, DOCUMENTS)
    await late.held.wait()
    await sim.advance(seconds=1)
    return ref


DOCUMENTS = a_cluster(a_pool("servers", 1, SERVERS))


@pytest.mark.parametrize("plural", ["virtualmachines", "serviceaccounts", "secrets"])
def test_what_a_killed_manager_requested_goes_with_the_cluster_though_it_is_made_late(plural: str) -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim:
            await stock(sim, DOCUMENTS)
            before = await inventory(sim.harvester.api)
            late = LateCreation(sim, plural)
            ref = await begin(sim, late)
            await sim.kill_manager()
            sim.start_manager()
            await sim.management_client.delete(ref)
            await sim.advance(seconds=25)
            if plural != "secrets":  # that of a token is garbage: its ServiceAccount does not exist
                waiting = nested(await sim.management_client.get(ref), "status", "waiting")
                assert (
                    "to expire (no answer to one is known, so Harvester may carry it out yet)"
                    in waiting["for"]
                )

            assert (await late.arrive()).status == 201
            await gone(sim, ref)
            await sim.advance(minutes=1)
            assert await inventory(sim.harvester.api) == before

    run_driven(story())


def test_a_machine_deleted_while_its_creation_is_not_answered_stays_until_none_can_come() -> None:
    async def story() -> None:
        async with simulation(seed=3, with_manager=False) as sim:
            await stock(sim, DOCUMENTS)
            late = LateCreation(sim, "virtualmachines")
            ref = await begin(sim, late)
            (machine,) = await machines_of(sim, ref)
            await sim.management_client.delete(MACHINE.ref(name_of(machine), ref.namespace))
            await sim.advance(seconds=RESPONSE_TIMEOUT_S + 30)

            assert (await late.arrive()).status == 201
            await gone(sim, MACHINE.ref(name_of(machine), ref.namespace))
            assert name_of(machine) not in {name_of(raw) for raw in await sim.harvester_client.list(VM)}

    run_driven(story())
