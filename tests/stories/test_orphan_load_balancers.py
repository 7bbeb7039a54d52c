"""A cluster is deleted while its services have load balancers: what Harvester has of it then, and what is said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.demo.cluster import DemoCluster
from windrow.emulator.faults import Fault, Refuse
from windrow.emulator.kit.inventory import Item, inventory
from windrow.emulator.load_balancers.names import MACHINE_CLUSTER
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER, VM
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested, new_object, uid_of
from windrow.kubernetes.resources import EVENT, SERVICE, ObjectRef

from .cluster_rig import ALL, a_cluster, a_pool, gone, post, stock, until
from .harvester_rig import a_vm

POOL = "orchard-services"
SECOND = 1.0
CLUSTER_LABEL = "cloudprovider.harvesterhci.io/cluster"


@dataclass
class Orchard:
    """A cluster that runs, with a service of type LoadBalancer that has its address."""

    sim: Simulation
    ref: ObjectRef
    stage: DemoCluster
    before: frozenset[Item]
    seen: list[str] = field(default_factory=list)

    async def balancers(self) -> list[Raw]:
        return await self.sim.harvester_client.list(LOAD_BALANCER)

    async def allocated(self) -> dict[str, str]:
        pool = await self.sim.harvester_client.get(IP_POOL.ref(POOL))
        return dict(nested(pool, "status", "allocated", default={}))

    async def delete(self) -> None:
        await self.sim.management_client.delete(self.ref)

    async def record_harvester(self, identity: str) -> None:
        change = {"status": {"guestServiceAccount": {"harvester": identity}}}
        await self.sim.management_client.patch(self.ref, change, "status")

    async def left(self) -> frozenset[Item]:
        return await inventory(self.sim.harvester.api) - self.before

    async def events(self, reason: str) -> list[Raw]:
        return [raw for raw in await self.sim.management_client.list(EVENT) if raw["reason"] == reason]

    async def balancer(self) -> Raw:
        (found,) = await self.balancers()
        return found


@asynccontextmanager
async def an_orchard(**harvester: Any) -> AsyncIterator[Orchard]:
    async with simulation(seed=11, **harvester) as sim:
        documents = a_cluster(a_pool("servers", 1, ALL))
        await stock(sim, documents)
        await sim.harvester_client.create(IP_POOL, a_block())
        before = await inventory(sim.harvester.api)
        ref = await post(sim, documents)
        stage = sim.cluster(ref.name, ref.namespace)
        await stage.wait_for_settled()
        guest = await stage.guest_client()
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}}
        await guest.create(SERVICE, new_object(SERVICE, "web", "default", spec=spec))
        it = Orchard(sim, ref, stage, before)
        for _ in range(60):
            if await it.allocated() and await it.balancers():
                break
            await sim.advance(seconds=SECOND)
        assert len(await it.allocated()) == len(await it.balancers()) == 1
        yield it


def a_block() -> Raw:
    ranges = [{"subnet": "192.168.50.0/24", "rangeStart": "192.168.50.240", "rangeEnd": "192.168.50.243"}]
    scope = [{"project": "*", "namespace": "*", "guestCluster": "*"}]
    return new_object(IP_POOL, POOL, spec={"ranges": ranges, "selector": {"scope": scope}})


def test_a_deleted_cluster_gives_its_services_addresses_back() -> None:
    async def story() -> None:
        async with an_orchard() as it:
            await it.delete()
            await gone(it.sim, it.ref)
            assert await it.balancers() == []
            assert await it.allocated() == {}
            assert await it.left() == frozenset()
            (told,) = await it.events("DeleteLoadBalancers")
            assert "orchard-default-web-" in told["message"]

    run_driven(story())


def test_the_cluster_knows_the_guest_by_which_its_load_balancers_are_marked() -> None:
    async def story() -> None:
        async with an_orchard() as it:
            mark = annotations_of(await it.balancer())["windrow.io/guest-uid"]
            assert (await it.stage.get_cluster())["status"]["guestUID"] == mark

    run_driven(story())


def test_a_cluster_that_does_not_know_its_guest_gets_to_know_it() -> None:
    async def story() -> None:
        async with an_orchard() as it:
            uid = (await it.stage.get_cluster())["status"]["guestUID"]
            await it.sim.management_client.patch(it.ref, {"status": {"guestUID": None}}, "status")
            await it.sim.advance(minutes=1)
            assert (await it.stage.get_cluster())["status"]["guestUID"] == uid

    run_driven(story())


def test_a_load_balancer_older_than_the_cluster_of_its_name_stays() -> None:
    """A guest of the same name, of hand-made VMs, whose cloud provider leaves no mark."""

    async def story() -> None:
        async with simulation(seed=11) as sim:
            theirs = a_balancer("orchard-default-shop-1a2b3c4d", {CLUSTER_LABEL: "orchard"})
            await sim.harvester_client.create(LOAD_BALANCER, theirs)
            await sim.advance(minutes=1)
            documents = a_cluster(a_pool("servers", 1, ALL))
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            await sim.management_client.delete(ref)
            await gone(sim, ref)
            assert [name_of(raw) for raw in await sim.harvester_client.list(LOAD_BALANCER)] == [
                name_of(theirs)
            ]
            told = [
                raw for raw in await sim.management_client.list(EVENT) if raw["reason"] == "KeepLoadBalancers"
            ]
            assert [name_of(theirs) in raw["message"] for raw in told] == [True]

    run_driven(story())


def test_a_load_balancer_whose_finalizer_hangs_holds_the_cluster_and_is_named() -> None:
    async def story() -> None:
        async with an_orchard() as it:
            raw = await it.balancer()
            ref = LOAD_BALANCER.ref(name_of(raw), "default")
            held = [*raw["metadata"]["finalizers"], "example.com/hold"]
            await it.sim.harvester_client.patch(ref, {"metadata": {"finalizers": held}})
            await it.delete()
            shown = await until(it.stage, name_of(raw))
            assert "example.com/hold" in shown["status"]["waiting"]["for"]
            await it.sim.advance(minutes=5)
            assert ("ServiceAccount", "default", "orchard") in await it.left()
            await it.sim.harvester_client.patch(ref, {"metadata": {"finalizers": []}})
            await gone(it.sim, it.ref)
            assert await it.left() == frozenset()

    run_driven(story())


def test_a_harvester_that_refuses_to_show_load_balancers_holds_the_cluster_until_it_does() -> None:
    async def story() -> None:
        async with an_orchard() as it:
            refusal = Refuse(403, "Forbidden", "no load balancers for you")
            fault = it.sim.harvester.faults.add(Fault(refusal, plurals=frozenset({"loadbalancers"})))
            await it.delete()
            shown = await until(it.stage, "no load balancers for you")
            assert "let cattle-global-data:cc-harvester list" in shown["status"]["waiting"]["for"]
            await it.sim.advance(minutes=5)
            assert len(await it.balancers()) == 1
            it.sim.harvester.faults.end(fault)
            await gone(it.sim, it.ref)
            assert await it.left() == frozenset()

    run_driven(story())


def test_another_harvester_behind_the_credential_loses_no_load_balancer() -> None:
    async def story() -> None:
        async with an_orchard() as it:
            identity = (await it.stage.get_cluster())["status"]["guestServiceAccount"]["harvester"]
            await it.record_harvester("another")
            await it.delete()
            await until(it.stage, "leads to another Harvester")
            await it.sim.advance(minutes=1)
            assert len(await it.balancers()) == 1
            await it.record_harvester(identity)
            await gone(it.sim, it.ref)
            assert await it.left() == frozenset()

    run_driven(story())


def test_a_cluster_without_services_costs_one_list_more_at_its_end() -> None:
    async def story() -> None:
        documents = a_cluster(a_pool("servers", 1, ALL))
        async with simulation(seed=12) as sim:
            await stock(sim, documents)
            ref = await post(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            await sim.management_client.delete(ref)
            await gone(sim, ref)
            asked = {what: count for what, count in sim.request_counts.items() if "loadbalancers" in what}
            assert asked == {"harvester GET loadbalancers": 1}

    run_driven(story())


def test_load_balancers_stay_where_another_cluster_of_that_name_has_machines() -> None:
    async def story() -> None:
        async with an_orchard() as it:
            vm = a_vm("orchard-pool1-xyz", network="default/vlan-50", labels={MACHINE_CLUSTER: "orchard"})
            await it.sim.harvester_client.create(VM, vm)
            theirs = uid_of(await it.balancer())
            await it.delete()
            await gone(it.sim, it.ref)
            assert [uid_of(raw) for raw in await it.balancers()] == [theirs]
            assert len(await it.allocated()) == 1
            (told,) = await it.events("KeepLoadBalancers")
            assert told["type"] == "Warning"
            assert "default/orchard-pool1-xyz belongs to another cluster" in told["message"]

    run_driven(story())


def test_load_balancers_that_are_not_the_cluster_s_stay() -> None:
    """Of another name, of another namespace, for machines instead of services, of another guest."""

    async def story() -> None:
        async with an_orchard() as it:
            client = it.sim.harvester_client
            label = CLUSTER_LABEL
            listener = {"name": "a", "port": 80, "protocol": "TCP", "backendPort": 80}
            others = [
                a_balancer("orchard2-default-web-0a1b2c3d", {label: "orchard2"}),
                a_balancer("orchard-vms", {label: "orchard"}, workloadType="vm", listeners=[listener]),
                a_balancer("elsewhere", {label: "orchard"}, namespace="harvester-public"),
                a_balancer("theirs", {label: "orchard"}, annotations={"windrow.io/guest-uid": "another"}),
            ]
            for raw in others:
                await client.create(LOAD_BALANCER, raw)
            await it.delete()
            await gone(it.sim, it.ref)
            assert {name_of(raw) for raw in await it.balancers()} == {name_of(raw) for raw in others}
            (told,) = await it.events("KeepLoadBalancers")
            assert "another guest cluster called orchard created it" in told["message"]

    run_driven(story())


def a_balancer(name: str, labels: dict[str, str], namespace: str = "default", **rest: Any) -> Raw:
    annotations = rest.pop("annotations", {})
    spec = {"workloadType": "cluster", "ipam": "dhcp", **rest}
    return new_object(LOAD_BALANCER, name, namespace, labels=labels, annotations=annotations, spec=spec)
