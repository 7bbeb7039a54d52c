"""Golden stories of control plane endpoints: in each mode the first server may die, and machines join after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.stories.cluster_rig import (
    ALL,
    SERVERS,
    Transcript,
    a_cluster,
    a_pool,
    compare,
    gone,
    machines_of,
    scale,
    stock,
    until,
)
from tests.stories.cluster_rig import post as create
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.names import (
    ENDPOINT_ADDRESS,
    ENDPOINT_IP_POOL,
    ENDPOINT_JOIN_ADDRESS,
    ENDPOINT_MODE,
)
from windrow.clusters.endpoint_balancer import balancer_name
from windrow.demo.cluster import DemoCluster
from windrow.demo.endpoint_balancers import follow_machines, list_frontends
from windrow.harvester.names import VM_NAME
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER, VM, VM_ACTIONS
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, name_of, nested, new_object, secret_texts, uid_of
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import SECRET, ObjectRef

RKE2, K3S = "v1.34.7+rke2r1", "v1.34.7+k3s1"
BOTH = [RKE2, pytest.param(K3S, marks=pytest.mark.long)]
PORTS = {RKE2: (6443, 9345), K3S: (6443,)}
NAME = "api.orchard.example"


class Story:
    def __init__(self, sim: Simulation, ref: ObjectRef, stage: DemoCluster, transcript: Transcript) -> None:
        self.sim, self.ref, self.stage, self.transcript = sim, ref, stage, transcript
        self.tasks: list[asyncio.Future[None]] = []

    async def cluster(self) -> Raw:
        return await self.sim.management_client.get(self.ref)

    async def servers_of_machines(self) -> set[str]:
        return {raw["spec"]["joinServer"] for raw in await machines_of(self.sim, self.ref)} - {""}

    async def published_server(self) -> str:
        secret = await self.sim.management_client.get(
            SECRET.ref(f"{self.ref.name}-kubeconfig", self.ref.namespace)
        )
        return parse_kubeconfig(secret_texts(secret)["value"]).server

    async def balancer(self) -> Raw:
        (found,) = await self.balancers()
        return found

    async def balancers(self) -> list[Raw]:
        """Those of VMs; Traefik of K3s has one of the other kind."""
        found = await self.sim.harvester_client.list(LOAD_BALANCER)
        return [raw for raw in found if nested(raw, "spec", "workloadType") == "vm"]

    async def addresses(self, pool: str) -> list[str]:
        found = await machines_of(self.sim, self.ref, pool)
        return sorted(nested(raw, "status", "addresses", 0) for raw in found)

    async def lose_first_server(self) -> str:
        name = nested(await self.cluster(), "status", "initServer", "name")
        self.transcript.say(f"an administrator deletes the VM of {name}")
        await self.sim.harvester_client.delete(VM.ref(name, "default"), "Foreground")
        return str(name)


@asynccontextmanager
async def a_story(
    *pools: Raw,
    version: str = RKE2,
    annotations: dict[str, str] | None = None,
    prepare: Callable[[Simulation], Awaitable[None]] | None = None,
) -> AsyncIterator[Story]:
    documents = a_cluster(*pools, kubernetesVersion=version)
    async with simulation(seed=3, with_manager=False) as sim:
        transcript = Transcript(sim.api.local())
        await stock(sim, documents)  # without the IPPool that annotations name
        named(documents, annotations or {})
        if prepare is not None:
            await prepare(sim)
        sim.start_manager(transcript)
        ref = await create(sim, documents)
        it = Story(sim, ref, sim.cluster(ref.name, ref.namespace), transcript)
        stand_in_for_balancers(it, documents)
        try:
            yield it
        finally:
            for task in it.tasks:
                task.cancel()


def stand_in_for_balancers(it: Story, documents: list[Raw]) -> None:
    """Be what the user runs in front of the servers, as the demo is."""
    balancers = it.sim.harvester.external_balancers
    following = follow_machines(list_frontends(documents), it.sim.api.local(), balancers, it.sim.clock)
    it.tasks.append(asyncio.ensure_future(following))


def named(documents: list[Raw], annotations: dict[str, str]) -> list[Raw]:
    """The documents, the Cluster with these annotations."""
    documents[-1]["metadata"]["annotations"] = dict(annotations)
    return documents


BY_NAME = {ENDPOINT_MODE: "address", ENDPOINT_ADDRESS: NAME}


@pytest.mark.parametrize("version", BOTH)
def test_behind_an_address_of_the_users_the_first_server_may_die(version: str) -> None:
    async def story() -> list[str]:
        pools = a_pool("servers", 3, SERVERS), a_pool("workers", 1)
        async with a_story(*pools, version=version, annotations=BY_NAME) as it:
            await it.stage.wait_for_settled()
            assert await it.servers_of_machines() == {f"https://{NAME}:{PORTS[version][-1]}"}
            assert await it.published_server() == f"https://{NAME}:6443"

            it.transcript.restart()
            first = await it.lose_first_server()
            await it.stage.wait_for_settled(without=first)
            await scale(it.sim, it.ref, 1, 2)
            await it.stage.wait_for_settled()
            assert await it.servers_of_machines() == {f"https://{NAME}:{PORTS[version][-1]}"}
            assert await it.published_server() == f"https://{NAME}:6443"
            return it.transcript.lines

    name = "rke2" if version == RKE2 else "k3s"
    compare(f"endpoint-address-{name}", run_driven(story()))


BY_BALANCER = {ENDPOINT_MODE: "loadBalancer", ENDPOINT_IP_POOL: "endpoints"}


async def stock_pool(sim: Simulation, first: int = 10, last: int = 20) -> None:
    ranges = [{"subnet": "10.1.0.0/24", "rangeStart": f"10.1.0.{first}", "rangeEnd": f"10.1.0.{last}"}]
    scope = [{"project": "*", "namespace": "*", "guestCluster": "*"}]
    spec = {"ranges": ranges, "selector": {"network": "", "scope": scope, "priority": 0}}
    await sim.harvester_client.create(IP_POOL, new_object(IP_POOL, "endpoints", spec=spec))
    while not nested(await sim.harvester_client.get(IP_POOL.ref("endpoints")), "status", "total"):
        await sim.advance(seconds=1)


async def held_addresses(sim: Simulation) -> dict[str, str]:
    pool = await sim.harvester_client.get(IP_POOL.ref("endpoints"))
    return dict(nested(pool, "status", "allocated", default={}))


@pytest.mark.parametrize("version", BOTH)
def test_behind_a_load_balancer_the_first_server_may_die_and_a_deleted_cluster_leaves_none(
    version: str,
) -> None:
    async def story() -> list[str]:
        pools = a_pool("servers", 3, SERVERS), a_pool("workers", 1)
        async with a_story(*pools, version=version, annotations=BY_BALANCER, prepare=stock_pool) as it:
            await it.stage.wait_for_settled()
            assert await it.servers_of_machines() == {f"https://10.1.0.10:{PORTS[version][-1]}"}
            assert await it.published_server() == "https://10.1.0.10:6443"
            name = name_of(await it.balancer())
            begin = [line for line in it.transcript.lines if name in line]

            it.transcript.restart()
            first = await it.lose_first_server()
            await it.stage.wait_for_settled(without=first)
            await scale(it.sim, it.ref, 1, 2)
            await it.stage.wait_for_settled()
            assert await it.servers_of_machines() == {f"https://10.1.0.10:{PORTS[version][-1]}"}
            balancer = await it.balancer()
            servers = {name_of(raw) for raw in await machines_of(it.sim, it.ref, "servers")}
            assert set(nested(balancer, "spec", "backendServerSelector", VM_NAME)) == servers
            await it.sim.advance(seconds=30)  # until the new server was probed
            assert sorted(nested(await it.balancer(), "status", "backendServers")) == await it.addresses(
                "servers"
            )

            told = [*begin, *it.transcript.lines]

            it.transcript.restart()
            it.transcript.say("the cluster is deleted")
            await it.sim.management_client.delete(it.ref)
            await gone(it.sim, it.ref)
            assert await it.sim.harvester_client.list(LOAD_BALANCER) == []
            assert await held_addresses(it.sim) == {}
            told += [line for line in it.transcript.lines if name in line or line.startswith("==")]
            return [line.replace(name, "orchard-api-1") for line in told]

    name = "rke2" if version == RKE2 else "k3s"
    compare(f"endpoint-load-balancer-{name}", run_driven(story()))


def test_a_load_balancer_that_is_deleted_comes_back_with_its_address() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, ALL), annotations=BY_BALANCER, prepare=stock_pool) as it:
            await it.stage.wait_for_settled()
            before = await it.balancer()
            await it.sim.harvester_client.delete(LOAD_BALANCER.ref(name_of(before), "default"))
            await it.sim.advance(minutes=1)
            after = await it.balancer()

            assert uid_of(before) != uid_of(after)
            assert nested(after, "status", "address") == "10.1.0.10"
            conditions = nested(await it.cluster(), "status", "conditions")
            assert is_true(conditions, "EndpointReady")

    run_driven(story())


def test_the_pool_of_a_manifest_is_preloaded_into_an_emulated_harvester() -> None:
    async def story() -> None:
        documents = named(a_cluster(a_pool("servers", 1, ALL)), BY_BALANCER)
        async with simulation(seed=3) as sim:
            await stock(sim, documents)
            await stock(sim, named(a_cluster(), {**BY_BALANCER, ENDPOINT_IP_POOL: "others"}))
            ref = await create(sim, documents)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            found = await sim.management_client.get(ref)
            assert nested(found, "status", "controlPlaneEndpoint", "host") == "192.168.100.100"
            pools = await sim.harvester_client.list(IP_POOL)
            assert [nested(raw, "spec", "ranges", 0, "rangeStart") for raw in pools] == [
                "192.168.100.100",
                "192.168.100.110",
            ]

    run_driven(story())


def test_while_the_pool_has_no_address_the_cluster_is_refused_and_goes_on_when_it_has() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, ALL), annotations=BY_BALANCER) as it:
            await until(it.stage, "there is no such IPPool on Harvester")
            assert await machines_of(it.sim, it.ref) == []
            await stock_pool(it.sim, 10, 10)
            await it.stage.wait_for_settled()

            other = await create(it.sim, named(a_cluster(a_pool("all", 1, ALL), name="second"), BY_BALANCER))
            stage = it.sim.cluster(other.name, other.namespace)
            await until(stage, "IPPool endpoints has 0 free addresses, and the endpoint needs 1")
            assert await machines_of(it.sim, other) == []
            await it.sim.management_client.delete(other)
            await gone(it.sim, other)
            assert set(await held_addresses(it.sim)) == {"10.1.0.10"}

    run_driven(story())


def test_a_load_balancer_of_a_user_is_never_taken_nor_deleted() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, ALL), annotations=BY_BALANCER) as it:
            await until(it.stage, "there is no such IPPool on Harvester")
            name = balancer_name(read_cluster(await it.cluster(), ()).cluster, "api")
            listeners = [{"name": "web", "port": 80, "protocol": "TCP", "backendPort": 80}]
            spec = {"ipam": "pool", "ipPool": "endpoints", "workloadType": "vm", "listeners": listeners}
            await it.sim.harvester_client.create(
                LOAD_BALANCER, new_object(LOAD_BALANCER, name, "default", spec=spec)
            )
            await stock_pool(it.sim)
            await until(it.stage, f"LoadBalancer default/{name} on Harvester is not this cluster's")
            assert await machines_of(it.sim, it.ref) == []
            await it.sim.management_client.delete(it.ref)
            await gone(it.sim, it.ref)
            assert uid_of(await it.balancer())

    run_driven(story())


@pytest.mark.long
def test_two_clusters_of_one_name_have_a_load_balancer_each() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, ALL), annotations=BY_BALANCER, prepare=stock_pool) as it:
            documents = a_cluster(
                a_pool("servers", 1, ALL), namespace="cattle-global-data", vm_namespace="tenant-b"
            )
            await stock(it.sim, documents)
            other = await create(it.sim, named(documents, BY_BALANCER))
            await it.stage.wait_for_settled()
            await it.sim.cluster(other.name, other.namespace).wait_for_settled()
            assert len(await held_addresses(it.sim)) == 2
            await it.sim.management_client.delete(other)
            await gone(it.sim, other)
            assert len(await held_addresses(it.sim)) == 1
            await it.stage.wait_for_settled()

    run_driven(story())


@pytest.mark.parametrize("kills", [1, *(pytest.param(more, marks=pytest.mark.long) for more in (2, 3))])
def test_a_manager_that_dies_between_record_and_load_balancer_makes_one_and_deletes_it(kills: int) -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, ALL), annotations=BY_BALANCER, prepare=stock_pool) as it:
            for _ in range(kills):
                while not nested(await it.cluster(), "status", "controlPlaneEndpoint"):
                    await it.sim.advance(seconds=0.01)
                await it.sim.kill_manager()
                it.sim.start_manager(it.transcript)
                await it.sim.advance(seconds=0.2)
            await it.stage.wait_for_settled()
            assert await it.balancer()
            await it.sim.management_client.delete(it.ref)
            await gone(it.sim, it.ref)
            assert await held_addresses(it.sim) == {}

    run_driven(story())


DIVIDED = (a_pool("etcd", 3, "etcd"), a_pool("control", 2, "control-plane"), a_pool("workers", 1))


@pytest.mark.long
@pytest.mark.parametrize("version", [RKE2, K3S])
def test_servers_with_etcd_alone_and_with_an_api_server_alone_have_a_load_balancer_each(version: str) -> None:
    async def story() -> None:
        async with a_story(*DIVIDED, version=version, annotations=BY_BALANCER, prepare=stock_pool) as it:
            await it.stage.wait_for_settled()
            assert await it.servers_of_machines() == {f"https://10.1.0.11:{PORTS[version][-1]}"}
            assert await it.published_server() == "https://10.1.0.10:6443"

            first = await it.lose_first_server()
            await it.stage.wait_for_settled(without=first)
            control = (await machines_of(it.sim, it.ref, "control"))[0]
            vm = VM_ACTIONS.ref(name_of(control), "default")
            await it.sim.harvester_client.call(put_subresource(vm, "restart"))
            await it.sim.advance(minutes=1)
            await it.stage.wait_for_settled()  # it has found a server to join again
            await scale(it.sim, it.ref, 2, 2)
            await it.stage.wait_for_settled()
            assert len(await machines_of(it.sim, it.ref)) == 7

            await it.sim.management_client.delete(it.ref)
            await gone(it.sim, it.ref)
            assert await held_addresses(it.sim) == {}

    run_driven(story())


@pytest.mark.long
@pytest.mark.parametrize("version", [RKE2, K3S])
def test_divided_servers_behind_addresses_of_the_users(version: str) -> None:
    join = "join.orchard.example"

    async def story() -> None:
        annotations = BY_NAME | {ENDPOINT_JOIN_ADDRESS: join}
        async with a_story(*DIVIDED, version=version, annotations=annotations) as it:
            await it.stage.wait_for_settled()
            first = await it.lose_first_server()
            await it.stage.wait_for_settled(without=first)
            assert await it.servers_of_machines() == {f"https://{join}:{PORTS[version][-1]}"}
            assert await it.published_server() == f"https://{NAME}:6443"

    run_driven(story())


def test_a_worker_that_was_told_to_join_through_a_lost_server_is_told_and_replaced_early() -> None:
    async def story() -> list[str]:
        async with a_story(a_pool("servers", 3, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            it.transcript.restart()
            await scale(it.sim, it.ref, 1, 2)
            while len(new := await machines_of(it.sim, it.ref, "workers")) < 2:
                await it.sim.advance(seconds=1)
            told = new[1]["spec"]["joinServer"]
            servers = await machines_of(it.sim, it.ref, "servers")
            lost = next(raw for raw in servers if nested(raw, "status", "addresses", 0) in told)
            it.transcript.say(f"an administrator deletes the VM of {name_of(lost)}")
            await it.sim.harvester_client.delete(VM.ref(name_of(lost), "default"), "Foreground")
            await gone(it.sim, MACHINE.ref(name_of(new[1]), it.ref.namespace))
            await it.stage.wait_for_settled(without=name_of(new[1]))
            return it.transcript.lines

    compare("lost-join-server", run_driven(story()))
