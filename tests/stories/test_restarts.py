"""A restart of the manager changes nothing by itself, and what happened while it was away is made good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from tests.support.clock import run_driven
from tests.support.seeds import partly_long
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.demo.cluster import DemoCluster
from windrow.demo.waiting import wait_for
from windrow.emulator.guest_cluster.cluster import Heartbeat
from windrow.emulator.kit.inventory import Item, inventory
from windrow.harvester.resources import VM, VM_ACTIONS
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import SERVICE_ACCOUNT

from .cluster_invariants import Founded, find_faults
from .cluster_phases import PATIENCE, REST_S, WORKERS, manifest
from .cluster_rig import gone
from .crashes import Lives, Write, describe_writes


@dataclass(slots=True)
class GuestClusterRig:
    """A cluster at rest, and its manager, which can be sent away and called back."""

    sim: Simulation
    stage: DemoCluster
    founded: Founded
    before: frozenset[Item]
    _lives: list[Lives] = field(default_factory=list)
    running: asyncio.Task[None] | None = None

    def call(self) -> None:
        """Start the manager, as a new process."""
        self._lives.append(Lives(self.sim))
        self.running = asyncio.get_running_loop().create_task(self._lives[-1].run())

    async def send_away(self) -> None:
        """Kill it."""
        assert self.running is not None
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.running = None

    @property
    def written(self) -> list[Write]:
        """What the present process wrote."""
        return self._lives[-1].writes

    async def settled(self) -> list[Raw]:
        machines = await self.stage.wait_for_settled()
        await self.sim.advance(seconds=REST_S)
        return machines

    async def find_faults(self) -> list[str]:
        return await find_faults(self.sim, self.stage, self.before, self.founded)


@asynccontextmanager
async def household(servers: int, workers: int) -> AsyncIterator[GuestClusterRig]:
    async with simulation(with_manager=False) as sim:
        founded = Founded(sim)
        await sim.apply(manifest(servers, workers))
        before = await inventory(sim.harvester.api)
        it = GuestClusterRig(sim, sim.cluster("orchard", timeout=PATIENCE), founded, before)
        it.call()
        await it.settled()
        try:
            yield it
        finally:
            if it.running is not None:
                await it.send_away()


def worker(machines: list[Raw]) -> Raw:
    return next(raw for raw in machines if raw["spec"]["roles"] == ["worker"])


def server(machines: list[Raw]) -> Raw:
    return next(raw for raw in machines if "etcd" in raw["spec"]["roles"])


@pytest.mark.parametrize(("servers", "workers"), [(1, 1), (3, 2)])
def test_a_manager_restarted_at_rest_writes_nothing(servers: int, workers: int) -> None:
    async def story() -> None:
        async with household(servers, workers) as it:
            for _ in range(3):
                await it.send_away()
                await it.sim.advance(seconds=7)
                it.call()
                await it.sim.advance(minutes=3)
                assert it.written == [], "\n".join(describe_writes(it.written))

    run_driven(story())


def test_a_manager_that_cannot_reach_harvester_after_a_restart_says_so() -> None:
    async def story() -> None:
        async with household(1, 1) as it:
            await it.send_away()
            door = it.sim.harvester.network.find(it.sim.harvester.vip, 6443)
            assert door is not None
            it.sim.harvester.network.close(it.sim.harvester.vip, 6443)
            it.call()
            await it.sim.advance(minutes=1)
            said = [
                nested(raw, "status", "waiting", "for", default="") for raw in await it.stage.list_machines()
            ]
            it.sim.harvester.network.listen(it.sim.harvester.vip, 6443, door)
            before = {name_of(raw) for raw in await it.stage.list_machines()}
            await it.sim.advance(minutes=2)
            assert {name_of(raw) for raw in await it.settled()} == before
            assert await it.find_faults() == []
            assert all("connection refused" in words for words in said), said

    run_driven(story())


def test_ready_of_before_a_start_is_withdrawn_once_harvester_says_that_a_vm_is_gone() -> None:
    async def story() -> None:
        async with household(1, 1) as it:
            await it.send_away()
            await lose(server)(it)
            await it.sim.advance(minutes=2)
            it.call()
            # The VM was looked for again after five seconds; nothing concludes yet from the silence of the guest API.
            await it.sim.advance(seconds=7)
            cluster = await it.stage.manager.get(CLUSTER.ref(it.stage.name, it.stage.namespace))
            machines = await it.stage.list_machines()

            assert not is_true(cluster["status"]["conditions"], "Ready")
            assert cluster["status"]["ready"] is False
            said = cluster["status"]["waiting"]["for"]
            assert (
                f"Machine {name_of(server(machines))} to recover (replacement skipped: last etcd member"
                in said
            )
            assert not is_true(server(machines)["status"]["conditions"], "Ready")
            # Its Node was not read yet, and nothing says that it is down.
            assert is_true(worker(machines)["status"]["conditions"], "Ready")

    run_driven(story())


def test_a_service_account_made_again_after_a_restart_is_not_waited_for() -> None:
    async def story() -> None:
        async with household(1, 1) as it:
            await it.send_away()
            it.call()
            await it.sim.advance(seconds=20)
            account = SERVICE_ACCOUNT.ref(it.stage.name, "default")
            made = uid_of(await it.stage.harvester.get(account))
            await it.stage.harvester.delete(account)
            await it.sim.advance(seconds=15)
            assert uid_of(await it.stage.harvester.get(account)) != made

            ref = CLUSTER.ref(it.stage.name, it.stage.namespace)
            await it.stage.manager.delete(ref)
            await gone(it.sim, ref, within=timedelta(seconds=45))

    run_driven(story())


def test_an_unready_node_is_replaced_in_time_however_often_the_manager_restarts() -> None:
    async def story() -> None:
        async with household(1, 2) as it:
            machine = worker(await it.stage.list_machines())
            name = name_of(machine)
            (guest,) = it.founded.all()
            guest.heartbeats[name] = Heartbeat(False, it.sim.clock.monotonic())
            guest.changed.notify()
            begun = it.sim.clock.now()
            while name in {name_of(raw) for raw in await it.stage.list_machines()}:
                assert it.sim.clock.now() - begun < timedelta(minutes=8), "its clock began anew each time"
                await it.send_away()
                it.call()
                await it.sim.advance(seconds=45)
            await it.settled()
            assert await it.find_faults() == []

    run_driven(story())


# -- while it was away ---------------------------------------------------------------------------------------------

Action = Callable[[GuestClusterRig], Awaitable[None]]


def lose(which: Callable[[list[Raw]], Raw]) -> Action:
    async def lose_one(it: GuestClusterRig) -> None:
        vm = await it.stage.get_vm(which(await it.stage.list_machines()))
        await it.stage.harvester.delete(VM.ref(name_of(vm), namespace_of(vm)), "Foreground")

    return lose_one


def stop(which: Callable[[list[Raw]], Raw]) -> Action:
    async def stop_one(it: GuestClusterRig) -> None:
        vm = await it.stage.get_vm(which(await it.stage.list_machines()))
        await it.stage.harvester.call(put_subresource(VM_ACTIONS.ref(name_of(vm), namespace_of(vm)), "stop"))

    return stop_one


def scale(pool: int, count: int) -> Action:
    async def scale_to(it: GuestClusterRig) -> None:
        path = f"/spec/rkeConfig/machinePools/{pool}/quantity"
        ref = CLUSTER.ref(it.stage.name, it.stage.namespace)
        await it.stage.manager.json_patch(ref, [{"op": "replace", "path": path, "value": count}])

    return scale_to


def dismiss(which: Callable[[list[Raw]], Raw]) -> Action:
    async def delete_record(it: GuestClusterRig) -> None:
        raw = which(await it.stage.list_machines())
        await it.stage.manager.delete(MACHINE.ref(name_of(raw), namespace_of(raw)))

    return delete_record


MEANWHILE: dict[str, Action] = {
    "a worker's VM is deleted": lose(worker),
    "a server's VM is deleted": lose(server),
    "a worker is stopped": stop(worker),
    "a server is stopped": stop(server),
    "a pool is scaled up": scale(WORKERS, 4),
    "a pool is scaled down": scale(WORKERS, 1),
    "a worker's record is deleted": dismiss(worker),
    "a server's record is deleted": dismiss(server),
}
# One of each way of change.
SAMPLE = (
    "a server's VM is deleted",
    "a worker is stopped",
    "a pool is scaled up",
    "a worker's record is deleted",
)


@pytest.mark.parametrize("away_s", partly_long([3, 900], [900]))
@pytest.mark.parametrize("what", partly_long(MEANWHILE, SAMPLE))
def test_what_happened_while_the_manager_was_away_is_made_good(what: str, away_s: int) -> None:
    async def story() -> None:
        async with household(3, 2) as it:
            await it.send_away()
            await MEANWHILE[what](it)
            await it.sim.advance(seconds=away_s)
            it.call()
            await it.sim.advance(minutes=1)  # until then, the status may still be that of before
            await it.settled()
            assert await it.find_faults() == []

    run_driven(story())


def test_all_workers_lost_while_the_manager_was_away_are_replaced() -> None:
    async def story() -> None:
        async with household(1, 3) as it:
            await it.send_away()
            lost = [raw for raw in await it.stage.list_machines() if raw["spec"]["roles"] == ["worker"]]
            for raw in lost:
                vm = await it.stage.get_vm(raw)
                await it.stage.harvester.delete(VM.ref(name_of(vm), namespace_of(vm)), "Foreground")
            await it.sim.advance(minutes=15)
            it.call()
            await it.sim.advance(minutes=1)
            names = {name_of(raw) for raw in await it.settled()}
            assert not names & {name_of(raw) for raw in lost}
            assert await it.find_faults() == []

    run_driven(story())


@pytest.mark.parametrize("away_s", partly_long([3, 900], [900]))
def test_a_cluster_deleted_while_the_manager_was_away_goes_when_it_is_back(away_s: int) -> None:
    async def story() -> None:
        async with household(3, 1) as it:
            ref = CLUSTER.ref(it.stage.name, it.stage.namespace)
            await it.send_away()
            await it.stage.manager.delete(ref)
            await it.sim.advance(seconds=away_s)
            it.call()
            await wait_for(
                it.stage.manager.transport,
                CLUSTER,
                lambda world: None if world else True,
                what="the cluster to be gone",
                clock=it.sim.clock,
                within=PATIENCE,
            )
            await it.sim.advance(seconds=REST_S)
            assert await inventory(it.sim.harvester.api) == it.before

    run_driven(story())
