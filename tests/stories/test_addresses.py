"""Machines with addresses of their own: claimed before they are made, and released after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from cryptography.x509 import IPAddress, SubjectAlternativeName, load_pem_x509_certificate
from tests.stories.cluster_rig import ALL, a_cluster, a_pool, gone, machines_of, post, scale, stock
from tests.support.clock import run_driven
from tests.support.endpoints import slice_of_one_pod
from tests.support.simulation import Simulation, simulation

from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.cloudprovider import names
from windrow.clusters.api.kinds import IP_ADDRESS
from windrow.core.formats.fastjson import loads
from windrow.core.formats.yaml import load
from windrow.emulator.faults import AgentFault, Fault, Refuse
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.harvester.identity import IDENTITY
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, name_of, nested, new_object, secret_texts, uid_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import SECRET, SERVICE

RANGE = {
    "network": "vlan-50",
    "addresses": ["192.168.50.100-192.168.50.109"],
    "prefix": 24,
    "gateway": "192.168.50.1",
    "nameservers": ["192.168.50.1"],
}


def with_addresses(documents: list[Raw], *pools: Raw, cards: tuple[str, ...] = ("vlan-50",)) -> list[Raw]:
    for raw in documents:
        if raw["kind"] == "HarvesterConfig":
            raw["addressPools"] = [dict(pool) for pool in pools]
            raw["networkInfo"] = {"interfaces": [{"networkName": f"default/{card}"} for card in cards]}
    return documents


async def claims_of(sim: Simulation) -> dict[str, str]:
    """The addresses by the name of their Machine."""
    claims = await sim.management_client.list(IP_ADDRESS)
    return {raw["spec"]["claimRef"]["name"]: raw["spec"]["address"] for raw in claims}


def addresses_of(machine: Raw) -> list[str]:
    return list(nested(machine, "status", "addresses", default=[]))


def node_addresses(node: Raw) -> list[str]:
    listed = nested(node, "status", "addresses", default=[])
    return [one["address"] for one in listed if one["type"] == "InternalIP"]


async def started(sim: Simulation, documents: list[Raw], transport: Transport | None = None) -> Any:
    await stock(sim, documents)
    sim.start_manager(transport)
    return await post(sim, documents)


def test_machines_have_the_addresses_that_were_claimed_for_them_and_give_them_back() -> None:
    async def story() -> None:
        documents = with_addresses(a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 2)), RANGE)
        async with simulation(seed=5, with_manager=False) as sim:
            told = CountsMachines(sim.api.local())
            ref = await started(sim, documents, told)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()

            claims = await claims_of(sim)
            machines = await machines_of(sim, ref)
            assert told.uids == {uid_of(machine) for machine in machines}  # none was deleted
            assert claims.keys() == {name_of(machine) for machine in machines}
            assert len(set(claims.values())) == 3
            assert all(addresses_of(one) == [claims[name_of(one)]] for one in machines)
            nodes = {name_of(node): node_addresses(node) for node in await stage.list_nodes()}
            assert nodes == {name: [address] for name, address in claims.items()}

            await scale(sim, ref, 1, 1)
            await stage.wait_for_settled()
            assert len(await claims_of(sim)) == 2
            await sim.management_client.delete(ref)
            await gone(sim, ref)
            assert await sim.management_client.list(IP_ADDRESS) == []

    run_driven(story())


def test_a_machine_with_addresses_of_its_own_needs_no_guest_agent() -> None:
    """Its address is known, and Node and certificates have it."""

    async def story() -> None:
        documents = with_addresses(a_cluster(a_pool("servers", 1, ALL)), RANGE)
        del documents[-1]["spec"]["rkeConfig"]["machineGlobalConfig"]["cloud-provider-name"]
        async with simulation(seed=6, with_manager=False) as sim:
            sim.harvester.faults.agents.append(AgentFault("*", "absent"))
            ref = await started(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            claims = await claims_of(sim)
            nodes = {name_of(node): node_addresses(node) for node in await stage.list_nodes()}
            assert nodes == {name: [address] for name, address in claims.items()}
            assert len(nodes) == 1

    run_driven(story())


def test_a_range_that_has_the_gateway_of_its_network_is_refused_before_anything_is_made() -> None:
    """And one beside the subnet of its network is a warning."""
    wide = RANGE | {"addresses": ["192.168.50.1-192.168.50.9"], "gateway": "192.168.50.254"}
    beside = RANGE | {"addresses": ["192.168.60.10-192.168.60.19"], "gateway": "192.168.60.1"}

    async def preflight(pool: Raw) -> str:
        documents = with_addresses(a_cluster(a_pool("servers", 1, ALL)), pool)
        async with simulation(seed=6, with_manager=False) as sim:
            ref = await started(sim, documents)
            await sim.advance(seconds=30)
            status = (await sim.management_client.get(ref))["status"]
            passed = find_condition(status["conditions"], "PreflightPassed")
            assert passed is not None
            assert (passed.status == "False") == (not await machines_of(sim, ref))
            return passed.message

    gateway = "addressPools[0].addresses has 192.168.50.1, which is the gateway of network default/vlan-50"
    assert gateway in run_driven(preflight(wide))
    subnet = "has 192.168.60.10-192.168.60.19, and network default/vlan-50 has the subnet 192.168.50.0/24"
    assert subnet in run_driven(preflight(beside))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["late", "absent"])
def test_no_machine_is_deleted_while_the_first_server_boots_and_reports_no_address(kind: Any) -> None:
    """The others are to join through the address that it has claimed."""

    async def story() -> None:
        documents = with_addresses(a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 2)), RANGE)
        del documents[-1]["spec"]["rkeConfig"]["machineGlobalConfig"]["cloud-provider-name"]
        async with simulation(seed=11, with_manager=False) as sim:
            sim.harvester.faults.agents.append(AgentFault("*", kind, late_s=120))
            told = CountsMachines(sim.api.local())
            ref = await started(sim, documents, told)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            assert told.uids == {uid_of(machine) for machine in await machines_of(sim, ref)}
            assert len(told.uids) == 3

    run_driven(story())


@dataclass(eq=False)
class CountsMachines:
    """A transport that keeps the uid of each Machine that was created through it."""

    inner: Transport
    uids: set[str] = field(default_factory=set)

    async def send(self, request: Request) -> Reply:
        reply = await self.inner.send(request)
        if request.method == "POST" and reply.status < 300:
            raw = loads(reply.body)
            if raw.get("kind") == "Machine":
                self.uids.add(uid_of(raw))
        return reply

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self.inner.stream(request)

    async def aclose(self) -> None:
        pass


def test_a_credential_that_may_not_read_which_harvester_it_is_has_no_address_claimed_until_it_may() -> None:
    async def story() -> None:
        documents = with_addresses(a_cluster(a_pool("servers", 1, ALL)), RANGE)
        async with simulation(seed=11, with_manager=False) as sim:
            hidden = sim.harvester.faults.add(
                Fault(
                    Refuse(403, "Forbidden"),
                    where=lambda request: request.path == requests.get(IDENTITY).path,
                )
            )
            ref = await started(sim, documents)
            await sim.advance(seconds=90)
            raw = await sim.management_client.get(ref)
            condition = find_condition(raw["status"]["conditions"], "PreflightPassed")
            assert condition is not None
            assert condition.status == "False"
            assert "addressPools is set, and credential Secret" in condition.message
            assert "let the credential's user get Namespace kube-system" in condition.message
            assert await sim.management_client.list(IP_ADDRESS) == []

            sim.harvester.faults.end(hidden)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            (claim,) = await sim.management_client.list(IP_ADDRESS)
            assert not claim["spec"]["harvester"].startswith("ca-")

    run_driven(story())


@pytest.mark.long
def test_two_cards_have_addresses_and_the_node_has_that_of_the_first() -> None:
    async def story() -> None:
        storage = {"network": "storage", "addresses": ["10.77.0.10-10.77.0.20"], "prefix": 24}
        documents = with_addresses(
            a_cluster(a_pool("servers", 1, ALL)), RANGE, storage, cards=("vlan-50", "storage")
        )
        async with simulation(seed=7, with_manager=False) as sim:
            ref = await started(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            (machine,) = await machines_of(sim, ref)
            claimed = {
                raw["spec"]["network"]: raw["spec"]["address"]
                for raw in await sim.management_client.list(IP_ADDRESS)
            }
            assert claimed.keys() == {"default/vlan-50", "default/storage"}
            assert sorted(addresses_of(machine)) == sorted(claimed.values())
            (node,) = await stage.list_nodes()
            assert node_addresses(node) == [claimed["default/vlan-50"]]

    run_driven(story())


@pytest.mark.long
def test_where_a_range_is_used_up_the_machine_waits_and_gets_what_another_cluster_releases() -> None:
    async def story() -> None:
        tight = {**RANGE, "addresses": ["192.168.50.100-192.168.50.101"]}
        first = with_addresses(a_cluster(a_pool("servers", 1, ALL), name="first"), tight)
        other = with_addresses(
            a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 1), name="other"), tight
        )
        for raw in other:
            if raw["kind"] == "HarvesterConfig":
                raw["metadata"]["name"] += "-o"
        for pool in other[-1]["spec"]["rkeConfig"]["machinePools"]:
            pool["machineConfigRef"]["name"] += "-o"
        async with simulation(seed=8, with_manager=False) as sim:
            one = await started(sim, first)
            await sim.cluster("first").wait_for_settled()
            await stock(sim, other)
            two = await post(sim, other)
            end = sim.clock.now() + timedelta(minutes=20)
            while not (
                waits := [m for m in await machines_of(sim, two, "workers") if "all 2 of" in waiting(m)]
            ):
                assert sim.clock.now() < end
                await sim.advance(seconds=5)
            assert waiting(waits[0]).startswith(
                "an address of network default/vlan-50 to be released (all 2 of"
            )
            assert len(await claims_of(sim)) == 2  # the servers of both, which go on

            await sim.management_client.delete(one)
            await gone(sim, one)
            await sim.cluster("other").wait_for_settled()
            claims = await claims_of(sim)
            assert len(claims) == len(set(claims.values())) == 2

    run_driven(story())


@dataclass(eq=False)
class DiesAfter:
    """A transport whose manager gets no answer to its first request of this method for an IPAddress, which is carried out."""

    inner: Transport
    method: str
    died: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, request: Request) -> Reply:
        reply = await self.inner.send(request)
        if self.died.is_set() or (request.method == self.method and IP_ADDRESS.plural in request.path):
            self.died.set()
            await asyncio.Event().wait()
        return reply

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self.inner.stream(request)

    async def aclose(self) -> None:
        pass


@pytest.mark.long
def test_a_manager_that_dies_when_it_has_claimed_or_released_an_address_leaves_none_behind() -> None:
    async def story() -> None:
        documents = with_addresses(a_cluster(a_pool("servers", 1, ALL)), RANGE)
        async with simulation(seed=10, with_manager=False) as sim:
            await stock(sim, documents)
            first = DiesAfter(sim.api.local(), "POST")
            sim.start_manager(first)
            ref = await post(sim, documents)
            await first.died.wait()
            await sim.kill_manager()
            assert len(await claims_of(sim)) == 1

            last = DiesAfter(sim.api.local(), "DELETE")
            sim.start_manager(last)
            await sim.cluster(ref.name, ref.namespace).wait_for_settled()
            assert len(await claims_of(sim)) == 1
            await sim.management_client.delete(ref)
            await last.died.wait()
            await sim.kill_manager()
            assert await machines_of(sim, ref)
            assert await claims_of(sim) == {}

            sim.start_manager()
            await gone(sim, ref)
            assert await claims_of(sim) == {}

    run_driven(story())


SIX = {
    "network": "vlan-50",
    "addresses": ["fd00:50::100-fd00:50::1ff"],
    "prefix": 64,
    "gateway": "fd00:50::1",
    "nameservers": ["fd00:50::1"],
}
NETWORKS = {
    "cluster-cidr": ("10.42.0.0/16", "fd00:42::/56"),
    "service-cidr": ("10.43.0.0/16", "fd00:43::/112"),
}


def with_stack(documents: list[Raw], stack: str) -> list[Raw]:
    rke = documents[-1]["spec"]["rkeConfig"]
    chosen = {"ipv4": slice(0, 1), "ipv6": slice(1, 2), "dual": slice(0, 2)}[stack]
    for key, networks in NETWORKS.items():
        rke["machineGlobalConfig"][key] = ",".join(networks[chosen])
    rke["networking"] = {"stackPreference": stack}
    return documents


@pytest.mark.parametrize(
    ("stack", "pools", "version"),
    [
        ("dual", (RANGE, SIX), "v1.34.7+rke2r1"),
        pytest.param("dual", (RANGE, SIX), "v1.34.7+k3s1", marks=pytest.mark.long),
        pytest.param("ipv6", (SIX,), "v1.34.7+rke2r1", marks=pytest.mark.long),
    ],
)
def test_machines_nodes_and_kubeconfig_have_the_families_of_the_cluster(
    stack: str, pools: tuple[Raw, ...], version: str
) -> None:
    async def story() -> None:
        documents = with_stack(
            with_addresses(a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 1)), *pools), stack
        )
        documents[-1]["spec"]["kubernetesVersion"] = version
        async with simulation(seed=9, with_manager=False) as sim:
            ref = await started(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            claims = [raw["spec"] for raw in await sim.management_client.list(IP_ADDRESS)]
            nodes = await stage.list_nodes()
            for node in nodes:
                own = [one["address"] for one in claims if one["claimRef"]["name"] == name_of(node)]
                assert sorted(node_addresses(node)) == sorted(own)
                assert len(own) == len(pools)
                assert len(node["spec"]["podCIDRs"]) == len(pools)
            assert len(nodes) == 2
            server = await published_server(sim, ref)
            assert ("[fd00:50::" in server) == (stack == "ipv6")
            if stack == "ipv6":
                web = await served(sim, await stage.guest_client(), {"six": "fd00:50:"})
                assert ingress(web) == ["fd00:50::240"]
                assert sim.harvester.network.find("fd00:50::240", 80) is not None

    run_driven(story())


@pytest.mark.parametrize("version", ["v1.34.7+rke2r1", pytest.param("v1.34.7+k3s1", marks=pytest.mark.long)])
def test_machines_of_dual_stack_without_a_range_have_ipv4_by_dhcp_and_ipv6_from_the_router(
    version: str,
) -> None:
    async def story() -> None:
        documents = with_stack(a_cluster(a_pool("servers", 1, ALL), a_pool("workers", 1)), "dual")
        documents[-1]["spec"]["kubernetesVersion"] = version
        async with simulation(seed=9, with_manager=False) as sim:
            ref = await started(sim, documents)
            stage = sim.cluster(ref.name, ref.namespace)
            await stage.wait_for_settled()
            nodes = {name_of(node): node for node in await stage.list_nodes()}
            machines = await machines_of(sim, ref)
            assert nodes.keys() == {name_of(machine) for machine in machines}
            for machine in machines:
                found = node_addresses(nodes[name_of(machine)])
                assert [one.split(":")[0].split(".")[0] for one in found] == ["192", "fd00"]
                assert found == addresses_of(machine)
                assert len(nodes[name_of(machine)]["spec"]["podCIDRs"]) == 2
            [server] = [node for name, node in nodes.items() if "servers" in name]
            assert set(node_addresses(server)) <= addresses_in_certificate(sim, node_addresses(server)[0])

            guest = await stage.guest_client()
            web = await served(sim, guest, {"four": "192.168.50", "six": "fd00:50:"})
            assert web["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
            assert ingress(web) == ["192.168.50.240", "fd00:50::240"]
            assert all(sim.harvester.network.find(address, 80) for address in ingress(web))
            assert len(await balancers_of_web(sim)) == 2
            await guest.delete(SERVICE.ref("web", "default"))
            await sim.advance(seconds=8)
            assert await guest.find(SERVICE.ref("web", "default")) is None
            assert await balancers_of_web(sim) == []

    run_driven(story())


async def balancers_of_web(sim: Simulation) -> list[str]:
    """The names of its LoadBalancers; K3s has one for Traefik, in namespace kube-system."""
    found = map(name_of, await sim.harvester_client.list(LOAD_BALANCER))
    return [name for name in found if "-default-web-" in name]


async def served(sim: Simulation, guest: Client, pools: dict[str, str]) -> Raw:
    """Service default/web of the guest, a while after it was created with these pools."""
    for name, prefix in pools.items():
        await sim.harvester_client.create(IP_POOL, a_service_pool(name, prefix))
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    spec = {"type": "LoadBalancer", "ipFamilyPolicy": "PreferDualStack", "ports": ports}
    annotations = {names.IP_POOL: ",".join(pools)}
    await guest.create(ENDPOINT_SLICE, slice_of_one_pod("web"))
    await guest.create(SERVICE, new_object(SERVICE, "web", "default", annotations=annotations, spec=spec))
    await sim.advance(seconds=8)
    return await guest.get(SERVICE.ref("web", "default"))


def ingress(service: Raw) -> list[str]:
    return [one["ip"] for one in nested(service, "status", "loadBalancer", "ingress", default=[])]


def a_service_pool(name: str, prefix: str) -> Raw:
    """An IPPool for the Service that names it: without a scope it is chosen for no other."""
    subnet, joint = (f"{prefix}.0/24", ".") if "." in prefix else (f"{prefix}:/64", ":")
    ends = {"rangeStart": f"{prefix}{joint}240", "rangeEnd": f"{prefix}{joint}249"}
    return new_object(IP_POOL, name, spec={"ranges": [{"subnet": subnet, **ends}], "selector": {}})


def addresses_in_certificate(sim: Simulation, address: str) -> set[str]:
    """Those in the certificate of the API of a server."""
    handler = sim.harvester.network.find(address, 6443)
    identity = handler.identity() if handler is not None else None
    assert identity is not None
    names = load_pem_x509_certificate(identity.chain.encode()).extensions
    found = names.get_extension_for_class(SubjectAlternativeName).value
    return {str(one) for one in found.get_values_for_type(IPAddress)}


async def published_server(sim: Simulation, ref: Any) -> str:
    raw = await sim.management_client.get(SECRET.ref(f"{ref.name}-kubeconfig", ref.namespace))
    return str(load(secret_texts(raw)["value"])["clusters"][0]["cluster"]["server"])


def waiting(machine: Raw) -> str:
    return str(nested(machine, "status", "waiting", "for", default=""))
