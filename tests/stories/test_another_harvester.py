"""A credential that now leads to another Harvester: nothing is created there, nothing deleted, and the status says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.app.emulate import preload_objects
from windrow.app.guest_programs import guest_programs
from windrow.app.loop import running
from windrow.app.preload import read_preload
from windrow.clusters.api.kinds import MACHINE
from windrow.core.rng import Rng
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.emulator.kit.inventory import inventory
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, name_of, nested
from windrow.kubernetes.resources import EVENT, SECRET

from .cluster_rig import SERVERS, a_cluster, a_pool, machines_of, post, scale, stock

OTHER_IP = "192.168.200.10"
OTHER = f"https://{OTHER_IP}:6443"


@asynccontextmanager
async def another_harvester(sim: Simulation, documents: list[Raw]) -> AsyncIterator[Harvester]:
    """A second Harvester on the same network, with all that the documents need."""
    machines = machine_factory(guest_programs())
    other = Harvester(sim.clock, Rng(99), vip=OTHER_IP, machine_factory=machines)
    sim.harvester.network.listen(OTHER_IP, 6443, other.handler)
    async with running(other.run):
        await preload_objects(other, read_preload(documents))
        yield other


async def put_kubeconfig(sim: Simulation, kubeconfig: str) -> None:
    change = {"stringData": {"harvestercredentialConfig-kubeconfigContent": kubeconfig}}
    await sim.management_client.patch(SECRET.ref("cc-harvester", "cattle-global-data"), change)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("recorded", [True, False])
def test_nothing_is_created_on_another_harvester_and_the_status_names_both(
    restarted: bool, recorded: bool
) -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, SERVERS), a_pool("workers", 1))
        async with simulation(seed=3) as sim, another_harvester(sim, documents) as other:
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            status = (await sim.management_client.get(ref))["status"]
            first = nested(status, "harvesterUID")
            machines = [name_of(raw) for raw in await machines_of(sim, ref)]
            before, elsewhere = await inventory(sim.harvester.api), await inventory(other.api)
            if not recorded:  # a cluster from before it was recorded
                await sim.management_client.patch(ref, {"status": {"harvesterUID": None}}, "status")

            if restarted:
                await sim.kill_manager()
            await put_kubeconfig(sim, other.admin_kubeconfig(OTHER))
            await scale(sim, ref, 1, 3)
            if restarted:
                sim.start_manager()
            await sim.advance(minutes=3)

            assert await inventory(other.api) == elsewhere
            assert await inventory(sim.harvester.api) == before
            raw = await sim.management_client.get(ref)
            valid = find_condition(raw["status"]["conditions"], "CredentialValid")
            assert valid is not None
            assert (valid.status, valid.reason) == ("False", "AnotherHarvester")
            assert first
            for words in ("cattle-global-data/cc-harvester", OTHER, first, "nothing is created"):
                assert words in valid.message
            assert valid.message in nested(raw, "status", "waiting", "for")
            assert nested(raw, "status", "ready") is False
            events = await sim.management_client.list(EVENT, ref.namespace)
            told = [event for event in events if event["reason"] == "CredentialAnotherHarvester"]
            assert [event.get("count", 1) for event in told] == [1]

            await put_kubeconfig(sim, sim.harvester.admin_kubeconfig("https://192.168.100.10:6443"))
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            after = [name_of(raw) for raw in await machines_of(sim, ref)]
            assert after[: len(machines)] == machines
            assert len(await sim.management_client.list(MACHINE, ref.namespace)) == 4
            assert await inventory(other.api) == elsewhere

    run_driven(story())
