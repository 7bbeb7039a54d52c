"""A pool that is larger than its network: the machine without a lease waits and is told of, the others are Ready."""

from __future__ import annotations

import pytest
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, machines_of, post, stock
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.emulator.preload import VmNetwork
from windrow.kubernetes.objects import name_of, nested


@pytest.mark.long
def test_a_machine_without_a_lease_names_the_range_that_is_used_up_and_the_others_are_ready():
    async def story():
        async with simulation(seed=5) as sim:
            await sim.harvester.preload(networks=[VmNetwork("default/vlan-50", cidr="192.168.50.0/29")])
            documents = a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 5))
            await stock(sim, documents)
            ref = await post(sim, documents)

            late = None
            for _ in range(60):
                await sim.advance(seconds=20)
                found = await machines_of(sim, ref)
                late = next((raw for raw in found if "likely causes" in next_of(raw)), None)
                if late is not None:
                    break

            assert late is not None
            assert (
                "(1) the DHCP range of its network is used up (4 others of the pool have an address)"
                in next_of(late)
            )
            ready = [raw for raw in found if nested(raw, "status", "phase") == "Ready"]
            assert len(ready) == 5
            said = "\n".join(sim.harvester.console("default", name_of(late)))
            assert "the DHCP server of default/vlan-50 has leased all 5 addresses of 192.168.50.0/29" in said

    run_driven(story())


def next_of(machine):
    return nested(machine, "status", "waiting", "next", default="")
