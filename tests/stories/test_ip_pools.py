"""Machines with addresses of an IPPool of Harvester, beside a load balancer that has one of them."""

from __future__ import annotations

from typing import Any

from tests.stories.cluster_rig import ALL, a_cluster, a_pool, machines_of, post, stock, until
from tests.stories.test_addresses import claims_of, waiting
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.addresses import IPAddress, address_name, read_ip_pool, render_ip_address
from windrow.clusters.api.kinds import IP_ADDRESS
from windrow.harvester.identity import IDENTITY
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER
from windrow.kubernetes.objects import Raw, name_of, nested, new_object, uid_of

ENTRY = {"network": "vlan-50", "ipPool": "machines", "nameservers": ["192.168.50.1"]}


def a_range(first: int, last: int) -> Raw:
    ends = {"rangeStart": f"192.168.50.{first}", "rangeEnd": f"192.168.50.{last}"}
    return {"subnet": "192.168.50.0/24", "gateway": "192.168.50.1", **ends}


async def ip_addresses(sim: Simulation) -> list[Raw]:
    return await sim.management_client.list(IP_ADDRESS)


async def create_pool(sim: Simulation, **selector: Any) -> None:
    spec = {"ranges": [a_range(150, 152)], "selector": selector}
    await sim.harvester_client.create(IP_POOL, new_object(IP_POOL, "machines", spec=spec))


def a_cluster_of_the_pool(*pools: Raw) -> list[Raw]:
    """Its workers have addresses of the pool, its servers by DHCP."""
    documents = a_cluster(*pools)
    documents[-2]["addressPools"] = [dict(ENTRY)]
    return documents


def test_machines_have_addresses_of_an_ip_pool_and_none_that_a_load_balancer_has() -> None:
    async def story() -> None:
        documents = a_cluster_of_the_pool(a_pool("servers", 1, ALL), a_pool("workers", 3))
        async with simulation(seed=31, with_manager=False) as sim:
            await stock(sim, documents)
            await create_pool(sim, network="default/vlan-50")
            balancer = {"workloadType": "cluster", "ipam": "pool", "ipPool": "machines"}
            raw = new_object(LOAD_BALANCER, "web", "default", spec=balancer)
            await sim.harvester_client.create(LOAD_BALANCER, raw)
            await sim.advance(seconds=5)
            pool = await sim.harvester_client.get(IP_POOL.ref("machines"))
            (taken,) = nested(pool, "status", "allocated")
            sim.start_manager()
            ref = await post(sim, documents)

            # Two of three are free.
            stage = sim.cluster(ref.name, ref.namespace)
            await until(stage, f"LoadBalancer default/web has {taken}")
            claims = await claims_of(sim)
            (late,) = [one for one in await machines_of(sim, ref, "workers") if name_of(one) not in claims]
            assert waiting(late).startswith(
                "an address of network default/vlan-50 to be released (all 3 of IPPool machines"
            )
            assert len(claims) == 2
            assert taken not in claims.values()

            step = {"op": "replace", "path": "/spec/ranges", "value": [a_range(150, 155)]}
            await sim.harvester_client.json_patch(IP_POOL.ref("machines"), [step])
            await stage.wait_for_settled()
            claims = await claims_of(sim)
            assert len(set(claims.values()) - {taken}) == 3
            # What the load balancers' controller keeps there is as it was.
            pool = await sim.harvester_client.get(IP_POOL.ref("machines"))
            assert nested(pool, "status", "allocated") == {taken: "default/web"}

            # It knows of no machine: a LoadBalancer that names the pool all the same is given the address of one.
            raw = new_object(LOAD_BALANCER, "late", "default", spec=balancer)
            await sim.harvester_client.create(LOAD_BALANCER, raw)
            said = await until(
                stage, "an address is given twice: LoadBalancer default/late has 192.168.50.15"
            )
            assert any(
                f"which IPAddress {name_of(one)} gives" in str(said) for one in await ip_addresses(sim)
            )
            await sim.harvester_client.delete(LOAD_BALANCER.ref("late", "default"))
            await until(stage, "no VM of the cluster has an address of another machine")

    run_driven(story())


def test_a_pool_that_load_balancers_are_given_addresses_of_is_refused_and_none_is_claimed() -> None:
    async def story() -> None:
        documents = a_cluster_of_the_pool(a_pool("servers", 1, ALL), a_pool("workers", 1))
        async with simulation(seed=32, with_manager=False) as sim:
            await stock(sim, documents)
            sim.start_manager()
            ref = await post(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await until(stage, "addressPools[0].ipPool: there is no IPPool machines on Harvester")

            await create_pool(sim, scope=[{"project": "*", "namespace": "*", "guestCluster": "*"}])
            await until(stage, "IPPool machines is for load balancers: its selector has a scope")
            assert await claims_of(sim) == {}

            step = {"op": "replace", "path": "/spec/selector", "value": {}}
            await sim.harvester_client.json_patch(IP_POOL.ref("machines"), [step])
            await stage.wait_for_settled()
            assert len(await claims_of(sim)) == 1

    run_driven(story())


def test_a_cluster_whose_endpoint_would_have_the_address_of_a_machine_is_refused() -> None:
    """The load balancer would be given what another Cluster's machine has: Harvester knows of load balancers only."""

    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, ALL))
        documents[-1]["metadata"]["annotations"] = {
            "windrow.io/endpoint-mode": "loadBalancer",
            "windrow.io/endpoint-ip-pool": "machines",
        }
        async with simulation(seed=32, with_manager=False) as sim:
            await stock(sim, documents)
            pool = read_ip_pool(await sim.harvester_client.get(IP_POOL.ref("machines")))
            address = str(pool.ranges[0].last)
            harvester = uid_of(await sim.harvester_client.get(IDENTITY))
            name = address_name(harvester, "default/vlan-50", address)
            machine, cluster = ("elsewhere/late-7", "uid-late"), "uid-of-another-cluster"
            claim = IPAddress(name, "", address, 24, "default/vlan-50", harvester, *machine, cluster)
            await sim.management_client.create(IP_ADDRESS, render_ip_address(claim))
            sim.start_manager()
            ref = await post(sim, documents)
            await until(
                sim.cluster(ref.name, ref.namespace),
                "machines have addresses in the ranges of IPPool machines",
            )
            assert await sim.harvester_client.list(LOAD_BALANCER) == []

    run_driven(story())
