"""The manager's wall clock is set while a cluster starts, while it rests and while a machine is repaired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.support.seeds import partly_long
from tests.support.simulation import Simulation, simulation

from windrow.app.embedded import make_manager
from windrow.client.client import Client
from windrow.client.leader_election import LeaderElector, LeaderTransport
from windrow.client.transport import Transport
from windrow.core.rng import Rng
from windrow.demo.cluster import DemoCluster
from windrow.kubernetes.objects import Raw, name_of
from windrow.kubernetes.resources import NODE as HOST
from windrow.kubernetes.resources import ObjectRef

from .cluster_rig import ALL, SERVERS, a_cluster, a_pool, machines_of, post, scale, stock
from .test_cluster_life import set_heartbeats


def jumps(*of_make_test: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("jump_s", partly_long([-300, -3600, 3600], of_make_test))


@dataclass
class Managed:
    """A cluster, and the clock of the computer that its manager runs on."""

    sim: Simulation
    ref: ObjectRef
    stage: DemoCluster
    clock: LoopClock

    def set_wall(self, seconds: float) -> None:
        self.clock.set_wall(timedelta(seconds=seconds))

    async def names(self, pool: str = "") -> set[str]:
        return {name_of(raw) for raw in await machines_of(self.sim, self.ref, pool)}


@asynccontextmanager
async def a_managed_cluster(*pools: Raw) -> AsyncIterator[Managed]:
    documents = a_cluster(*pools)
    async with simulation(seed=5, with_manager=False) as sim:
        await stock(sim, documents)
        await sim.advance(hours=2)  # certificates are older than any jump
        clock = LoopClock()
        clock.set_wall(sim.clock.now() - clock.now())
        sim.start_manager(clock=clock)
        ref = await post(sim, documents)
        yield Managed(sim, ref, sim.cluster(ref.name, ref.namespace), clock)


def run_story(story: Callable[[], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        return await story()

    return run_driven(run())


async def settled_after(managed: Managed, **settled: Any) -> float:
    begun = managed.sim.clock.now()
    await managed.stage.wait_for_settled(**settled)
    return (managed.sim.clock.now() - begun).total_seconds()


@jumps(-300, 3600)
def test_a_cluster_starts_as_soon_though_the_clock_is_set_meanwhile(jump_s: int) -> None:
    async def story(jump_s: float) -> tuple[float, int]:
        async with a_managed_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as managed:
            await managed.sim.advance(seconds=30)
            managed.set_wall(jump_s)
            return await settled_after(managed), len(await managed.names())

    usual = run_story(lambda: story(0))
    took, machines = run_story(lambda: story(jump_s))

    assert machines == 2
    assert took <= usual[0] + 30


def test_a_first_server_that_boots_is_not_late_when_the_clock_is_set_forward() -> None:
    async def story() -> tuple[set[str], set[str]]:
        async with a_managed_cluster(a_pool("servers", 1, ALL)) as managed:
            await managed.sim.advance(seconds=30)
            before = await managed.names()
            managed.set_wall(3600)
            change = {"metadata": {"annotations": {"note": "reconciled now"}}}
            await managed.sim.management_client.patch(managed.ref, change)
            await managed.sim.advance(seconds=30)
            return before, await managed.names()

    before, after = run_story(story)

    assert before == after != set()


@jumps(-3600)
def test_a_cluster_at_rest_stays_as_it_is_when_the_clock_is_set(jump_s: int) -> None:
    async def story() -> bool:
        async with a_managed_cluster(a_pool("servers", 1, ALL), a_pool("workers", 2)) as managed:
            await managed.stage.wait_for_settled()
            before = await managed.names()
            managed.set_wall(jump_s)
            await managed.sim.advance(minutes=30)
            ready = (await managed.stage.get_cluster())["status"]["ready"]
            managed.set_wall(-jump_s)
            await managed.sim.advance(minutes=30)
            return ready and before == await managed.names()

    assert run_story(story)


@jumps(-300, 3600)
@pytest.mark.parametrize("set_right", [False, True])
def test_a_node_that_is_not_ready_is_replaced_when_its_timeout_has_passed(
    jump_s: int, set_right: bool
) -> None:
    async def story() -> float:
        async with a_managed_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 3)) as managed:
            await managed.stage.wait_for_settled()
            lost = min(await managed.names("workers"))
            await set_heartbeats(managed.sim, {lost}, beating=False)
            begun = managed.sim.clock.now()
            await managed.sim.advance(minutes=2)  # the guest notices after 40 s
            managed.set_wall(jump_s)
            if set_right:
                await managed.sim.advance(minutes=1)
                managed.set_wall(-jump_s)
            while lost in await managed.names("workers") and managed.sim.clock.now() < begun + timedelta(
                hours=1
            ):
                await managed.sim.advance(seconds=5)
            return (managed.sim.clock.now() - begun).total_seconds()

    # 40 s until the Node is not Ready, unhealthyNodeTimeout of 5 min, and the removal of the VM.
    assert 340 <= run_story(story) <= 440


# -- one computer, as with `windrow demo`: Harvester's and the guests' clocks are set, too --------------------------


@asynccontextmanager
async def a_computer(*pools: Raw) -> AsyncIterator[Managed]:
    """Harvester, guests and the manager with one clock; the certificates are older than any jump."""
    documents = a_cluster(*pools)
    async with simulation(seed=5) as sim:
        await stock(sim, documents)
        await sim.advance(hours=2)
        ref = await post(sim, documents)
        yield Managed(sim, ref, sim.cluster(ref.name, ref.namespace), sim.clock)


OF_THE_COMPUTER = pytest.mark.parametrize(
    "jump_s", [-3600, *(pytest.param(jump_s, marks=pytest.mark.long) for jump_s in (-300, 300, 3600))]
)


@OF_THE_COMPUTER
def test_machines_boot_and_join_as_soon_though_the_computer_s_clock_is_set_again_and_again(
    jump_s: int,
) -> None:
    async def story() -> tuple[float, int]:
        async with a_computer(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as managed:
            begun = managed.clock.monotonic()
            for number in range(8):
                await managed.sim.advance(seconds=10)
                managed.set_wall(-jump_s if number % 2 else jump_s)
            await managed.stage.wait_for_settled()
            return (managed.clock.monotonic() - begun).total_seconds(), len(await managed.names())

    took, machines = run_story(story)
    assert machines == 2
    assert took <= 140  # 110 s where no clock is set


@OF_THE_COMPUTER
def test_a_lost_host_is_given_up_in_the_usual_time_though_the_computer_s_clock_is_set(jump_s: int) -> None:
    async def story() -> float:
        async with simulation(seed=5, with_manager=False) as sim:
            await sim.harvester.ready.wait()
            hosts, begun = sim.harvester.hosts, sim.clock.monotonic()
            hosts.fail(name := name_of((await sim.harvester_client.list(HOST))[-1]))
            await sim.advance(seconds=20)
            sim.clock.set_wall(timedelta(seconds=jump_s))
            while not hosts.health(name)[0].cleared:
                await sim.advance(seconds=1)
                assert (sim.clock.monotonic() - begun) < timedelta(minutes=10)
            return (sim.clock.monotonic() - begun).total_seconds()

    assert run_story(story) == pytest.approx(245, abs=1)  # the sum of its delays


# -- two managers --------------------------------------------------------------------------------------------------


class Manager:
    """A manager that competes for the Lease, on a computer with a clock of its own."""

    def __init__(self, sim: Simulation, name: str, transport: Transport | None = None) -> None:
        self.clock = LoopClock()
        self.clock.set_wall(sim.clock.now() - self.clock.now())
        api = transport or sim.api.local()
        elector = LeaderElector(Client(api), "kube-system", "windrow", name, self.clock, Rng(name))
        manager, backend = make_manager(
            LeaderTransport(api, elector),
            lambda access: LeaderTransport(sim.connect(access), elector),
            self.clock,
            Rng(f"manager {name}"),
        )
        self.elector = elector

        async def lead() -> None:
            async with backend.running():
                await manager.run()

        self.task = asyncio.create_task(elector.run(lead))

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@jumps(-3600, 3600)
@pytest.mark.parametrize("of_the_leader", [True, False])
def test_of_two_managers_one_works_though_a_clock_is_set(jump_s: int, of_the_leader: bool) -> None:
    async def story() -> tuple[list[bool], int]:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=7, with_manager=False) as sim:
            await stock(sim, documents)
            await sim.advance(hours=2)
            managers = [Manager(sim, "one")]
            await sim.advance(seconds=1)
            managers.append(Manager(sim, "two"))
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            managers[0 if of_the_leader else 1].clock.set_wall(timedelta(seconds=jump_s))
            await sim.advance(seconds=20)
            await scale(sim, ref, 1, 6)
            await stage.wait_for_settled()
            leads = [manager.elector.may_write for manager in managers]
            machines = len(await machines_of(sim, ref, "workers"))
            for manager in managers:
                await manager.stop()
            return leads, machines

    assert run_story(story) == ([True, False], 6)
