"""Every option of the node driver through a Cluster whose pools use all of them: it comes up, and each does something."""

from __future__ import annotations

from tests.stories.cluster_rig import ALL, a_cluster, a_pool
from tests.stories.driver_options import GPU, HOSTS, POOLS, MachineState, list_missing, observe
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.manifest.supported_fields import HARVESTER_CONFIG_FIELDS
from windrow.demo.cluster import is_ready
from windrow.kubernetes.objects import Raw, name_of, nested
from windrow.nodedriver.options import BY_FIELD


def documents(*names: str) -> list[Raw]:
    pools = [a_pool(name, 1, ALL if name == "legacy" else "worker") for name in names or POOLS]
    made = a_cluster(*pools)
    for raw in made:
        if raw["kind"] == "HarvesterConfig":
            raw |= POOLS[name_of(raw).removeprefix("nc-")]
    return [{key: value for key, value in raw.items() if value is not None} for raw in made]


async def machines_by_pool(sim: Simulation) -> dict[str, MachineState]:
    machines = await sim.management_client.list(MACHINE)
    return {raw["spec"]["pool"]: await observe(sim.harvester, name_of(raw)) for raw in machines}


def test_a_cluster_whose_pools_use_every_option_comes_up_and_each_has_its_effect():
    async def story():
        async with simulation(seed=3, hosts=HOSTS) as sim:
            await sim.apply(documents())
            await sim.cluster("orchard").wait_for_settled()
            return await machines_by_pool(sim)

    machines = run_driven(story())

    assert machines.keys() == POOLS.keys()
    assert [fault for pool in POOLS for fault in list_missing(pool, machines[pool])] == []


def test_a_machine_whose_device_is_taken_waits_and_its_status_names_the_device():
    made = documents("legacy", "gpu")
    made[-1]["spec"]["rkeConfig"]["machinePools"][-1]["quantity"] = 2

    async def story():
        async with simulation(seed=3, hosts=HOSTS) as sim:
            await sim.apply(made)
            await sim.advance(minutes=3)
            return [one for one in await sim.management_client.list(MACHINE) if one["spec"]["pool"] == "gpu"]

    has, waits = sorted(run_driven(story()), key=lambda raw: not is_ready(raw))
    assert nested(has, "status", "host") == "host-2"
    assert f"1 Insufficient {GPU}" in nested(waits, "status", "waiting", "for")


def test_the_pools_use_every_option_that_has_an_effect():
    used = {field for options in POOLS.values() for field, value in options.items() if value is not None}

    assert used | {"vmNamespace"} == BY_FIELD.keys() & HARVESTER_CONFIG_FIELDS.works.keys()
