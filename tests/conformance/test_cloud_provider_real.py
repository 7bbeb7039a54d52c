"""The cloud provider as a process in a guest cluster with a real API server, store and controller manager.

Harvester is the emulator. The test plays the kubelets, which register and renew their Leases, and kube-vip.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.chart_rights_rig import give_back_address
from tests.conformance.cloud_provider_rig import (
    PREFIX,
    SHUTDOWN,
    UNINITIALISED,
    ZONE,
    FakeKubeVip,
    Guest,
    Host,
    Running,
    a_host,
    a_provider,
    addresses_of,
    eventually,
    has_taint,
    is_ready,
    keep_heartbeat,
    our_program,
    run_beside,
)
from tests.conformance.real_cluster import Cluster

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.emulator import kinds
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, nested, new_object
from windrow.kubernetes.resources import EVENT, LEASE, NAMESPACE, NODE, POD, SERVICE

pytestmark = [pytest.mark.go, pytest.mark.timeout(180)]

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
ADDRESSES = "kube-vip.io/loadbalancerIPs"
LEADER = LEASE.ref("cloud-controller-manager", "kube-system")
UNREACHABLE = "node.kubernetes.io/unreachable"


@pytest.fixture
def cluster(managed_cluster: Cluster) -> Cluster:
    return managed_cluster


@dataclass
class RealCluster:
    """A Harvester, the guest cluster, and our provider between them."""

    host: Host
    guest: Guest
    folder: Path
    provider: Running | None = None
    hearts: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def join(self, *names: str) -> None:
        """Machines that run, and nodes in them that live."""
        for name in names:
            await self.host.make_vm(name)
            await self.guest.register(name, await self.host.address_of(name))
            self.hearts[name] = asyncio.create_task(keep_heartbeat(self.guest, name))
            await self.guest.node_where(name, is_initialised, "initialised")

    def silence(self, name: str) -> None:
        self.hearts.pop(name).cancel()

    async def serve(
        self,
        name: str,
        *,
        namespace: str = "default",
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Raw:
        """A Service that has its address; as it is then."""
        await self.guest.make_service(a_service(name, namespace, annotations, **spec))
        return await self.guest.service_where(name, addresses_of, "has its address", namespace=namespace)

    async def balancer_of(self, service: str, namespace: str = "default") -> Raw | None:
        for raw in await self.host.api.list(kinds.LOAD_BALANCER, "default"):
            told = labels_of(raw)
            if (told[f"{PREFIX}/serviceNamespace"], told[f"{PREFIX}/serviceName"]) == (namespace, service):
                return raw
        return None

    async def reasons(self, name: str, namespace: str = "default") -> list[str]:
        events = await self.guest.api.list(EVENT, namespace)
        return [one["reason"] for one in events if one["involvedObject"]["name"] == name]

    def provide(self) -> Any:
        return a_provider(our_program(), self.folder, self.host, self.guest)


@asynccontextmanager
async def a_real_cluster(
    cluster: Cluster, folder: Path, *, provider: bool = True
) -> AsyncIterator[RealCluster]:
    """Nodes and services that are left in the cluster are removed in the end; the provider helps with it."""
    async with a_host() as host, HttpTransport(cluster.access(), SystemClock()) as transport:
        await host.make_pool("pool", "192.168.50.100", "192.168.50.120")
        guest = Guest(Client(transport), transport, render_kubeconfig(cluster.access(), "guest"))
        town = RealCluster(host, guest, folder)
        async with run_beside(FakeKubeVip(guest).run()):
            if not provider:
                yield town
                return
            async with town.provide() as town.provider:
                try:
                    yield town
                    await clear(town)
                except BaseException:
                    print(town.provider.log()[-5000:])
                    raise
                finally:
                    for name in list(town.hearts):
                        town.silence(name)
                assert await town.provider.end() == 0


async def clear(town: RealCluster) -> None:
    for raw in await town.guest.api.list(SERVICE, "default"):
        if raw["metadata"]["name"] != "kubernetes":
            await town.guest.delete(SERVICE.ref(raw["metadata"]["name"], "default"))
            await town.guest.until_gone(SERVICE.ref(raw["metadata"]["name"], "default"))
    for name in list(town.hearts):
        town.silence(name)
        await town.guest.delete(NODE.ref(name))


def a_service(
    name: str, namespace: str = "default", annotations: Mapping[str, str] | None = None, **spec: Any
) -> Raw:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    wanted = {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports} | spec
    return new_object(SERVICE, name, namespace, annotations=annotations, spec=wanted)


def is_initialised(node: Raw) -> bool:
    return not has_taint(node, UNINITIALISED) and bool(nested(node, "spec", "providerID"))


# --- nodes --------------------------------------------------------------------------------------------------------


async def test_a_node_that_joins_is_told_who_it_is_and_gets_free_of_every_taint(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with a_real_cluster(cluster, tmp_path) as town:
        await town.join("n-1")
        address = await town.host.address_of("n-1")
        node = await town.guest.node_where(
            "n-1",
            lambda raw: not nested(raw, "spec", "taints") and address in addresses_in(raw),
            "its address",
        )
        vm = await town.host.api.get(kinds.VM.ref("n-1", "default"))
        vmi = await town.host.api.get(kinds.VMI.ref("n-1", "default"))
        await eventually(lambda: has_event(town, "n-1", "Synced"), "an event")

    assert node["spec"]["providerID"] == f"harvester://{vm['metadata']['uid']}"
    assert labels_of(node)[ZONE] == annotations_of(vmi)[ZONE]


def addresses_in(node: Raw) -> list[str]:
    found = nested(node, "status", "addresses", default=[])
    return [one["address"] for one in found if one["type"] == "InternalIP"]


async def has_event(town: RealCluster, name: str, reason: str) -> bool:
    return reason in await town.reasons(name)


async def test_a_silent_node_stays_until_its_vm_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    async with a_real_cluster(cluster, tmp_path) as town:
        await town.join("n-1", "n-2")
        town.silence("n-2")
        await town.guest.node_where("n-2", lambda raw: has_taint(raw, UNREACHABLE), "unreachable", 40)
        await asyncio.sleep(2)
        assert await town.guest.api.find(NODE.ref("n-2")) is not None

        await town.host.remove_vm("n-2")
        await town.guest.until_gone(NODE.ref("n-2"))

        await eventually(lambda: has_event(town, "n-2", "DeletingNode"), "an event")
        assert is_ready(await town.guest.api.get(NODE.ref("n-1")))


async def test_a_stopped_vm_marks_its_node_until_it_is_back(cluster: Cluster, tmp_path: Path) -> None:
    async with a_real_cluster(cluster, tmp_path) as town:
        await town.join("n-1", "n-2")
        town.silence("n-2")
        await town.host.order("stop", "n-2")
        await town.guest.node_where("n-2", lambda raw: has_taint(raw, SHUTDOWN), "marked as shut down", 40)

        await town.host.order("start", "n-2")
        town.hearts["n-2"] = asyncio.create_task(keep_heartbeat(town.guest, "n-2"))

        await town.guest.node_where(
            "n-2", lambda raw: not nested(raw, "spec", "taints"), "free of taints", 40
        )


async def test_a_migration_takes_the_node_to_the_other_zone(cluster: Cluster, tmp_path: Path) -> None:
    async with a_real_cluster(cluster, tmp_path) as town:
        await town.join("n-1")
        zone = await town.host.migrate("n-1")

        node = await town.guest.node_where("n-1", lambda raw: labels_of(raw)[ZONE] == zone, f"is in {zone}")

    assert labels_of(node)["failure-domain.beta.kubernetes.io/zone"] == zone
    assert not has_taint(node, UNINITIALISED)


# --- services -----------------------------------------------------------------------------------------------------


async def test_a_pool_service_gets_its_address_and_gives_it_back(cluster: Cluster, tmp_path: Path) -> None:
    async with a_real_cluster(cluster, tmp_path) as town:
        service = await town.serve("web")
        made = await town.balancer_of("web")
        assert made is not None
        (address,) = addresses_of(service)

        assert made["status"]["allocatedAddress"]["ip"] == address
        assert annotations_of(service)[ADDRESSES] == address
        assert FINALIZER in service["metadata"]["finalizers"]
        for reason in ("EnsuringLoadBalancer", "EnsuredLoadBalancer"):
            await eventually(lambda reason=reason: has_event(town, "web", reason), reason)

        await eventually(lambda: shows_address(town, "web", address), "the load balancer says who has it")
        await town.guest.delete(SERVICE.ref("web", "default"))
        await town.guest.until_gone(SERVICE.ref("web", "default"))
        assert await town.balancer_of("web") is None or await is_deleting_service(town, "web")


async def shows_address(town: RealCluster, service: str, address: str) -> bool:
    return nested(await town.balancer_of(service), "status", "address") == address


async def is_deleting_service(town: RealCluster, service: str) -> bool:
    return bool(nested(await town.balancer_of(service), "metadata", "deletionTimestamp"))


async def test_the_real_controllers_see_the_service_as_any_other(cluster: Cluster, tmp_path: Path) -> None:
    """Its endpoints are made, and an address in the status does not keep the node port from being given."""
    async with a_real_cluster(cluster, tmp_path) as town:
        await town.join("n-1")
        pod = new_object(
            POD,
            "web-1",
            "default",
            labels={"app": "web"},
            spec={"nodeName": "n-1", "containers": [{"name": "web", "image": "web"}]},
        )
        await town.guest.api.create(POD, pod)
        ready = [{"type": "Ready", "status": "True"}]
        status = {
            "podIP": "10.42.0.9",
            "podIPs": [{"ip": "10.42.0.9"}],
            "phase": "Running",
            "conditions": ready,
        }
        await town.guest.api.patch(POD.ref("web-1", "default"), {"status": status}, "status")
        service = await town.serve("web", externalTrafficPolicy="Local")

        async def endpoints() -> list[Raw]:
            label = "kubernetes.io/service-name=web"
            slices = await town.guest.api.list(ENDPOINT_SLICE, "default", label)
            return [one for slice_ in slices for one in slice_.get("endpoints") or ()]

        (endpoint,) = await eventually(endpoints, "an EndpointSlice with the pod")
        await town.guest.delete(POD.ref("web-1", "default"))

    assert endpoint["addresses"] == ["10.42.0.9"]
    assert endpoint["conditions"]["ready"]
    assert service["spec"]["ports"][0]["nodePort"] >= 30000
    assert service["spec"]["healthCheckNodePort"] >= 30000


async def test_a_dhcp_service_says_so_and_reports_what_it_got(cluster: Cluster, tmp_path: Path) -> None:
    async with a_real_cluster(cluster, tmp_path) as town:
        service = await town.serve("web", annotations={f"{PREFIX}/ipam": "dhcp"})
        (address,) = addresses_of(service)
        await eventually(lambda: shows_address(town, "web", address), "the load balancer says who has it")

    assert annotations_of(service)[ADDRESSES] == "0.0.0.0"
    assert address != "0.0.0.0"


async def test_two_services_share_one_address(cluster: Cluster, tmp_path: Path) -> None:
    async with a_real_cluster(cluster, tmp_path) as town:
        first = await town.serve("web")
        second = await town.serve(
            "more",
            annotations={f"{PREFIX}/primary-service": "default/web"},
            ports=[{"name": "other", "port": 81}],
        )
        assert addresses_of(first) == addresses_of(second)
        assert await town.balancer_of("more") is None

        # The primary waits for the others, as a finalizer of a real API server makes it wait.
        await town.guest.delete(SERVICE.ref("web", "default"))
        await asyncio.sleep(1)
        assert await town.guest.api.find(SERVICE.ref("web", "default")) is not None
        await town.guest.delete(SERVICE.ref("more", "default"))
        await town.guest.until_gone(SERVICE.ref("more", "default"))
        await town.guest.until_gone(SERVICE.ref("web", "default"), 60)


async def test_a_service_that_becomes_another_type_loses_its_load_balancer(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with a_real_cluster(cluster, tmp_path) as town:
        await town.serve("web")
        ref = SERVICE.ref("web", "default")
        await town.guest.api.patch(ref, {"spec": {"type": "ClusterIP"}})
        await town.guest.api.patch(ref, await give_back_address(town.guest.api, ref))

        await town.guest.service_where("web", lambda raw: not raw["metadata"].get("finalizers"), "let go")
        await town.guest.service_where("web", lambda raw: not addresses_of(raw), "without an address")

        async def gone() -> bool:
            return await town.balancer_of("web") is None

        await eventually(gone, "the load balancer is gone")


async def test_a_namespace_that_is_deleted_takes_its_load_balancers_along(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with a_real_cluster(cluster, tmp_path) as town:
        await town.serve("web", namespace="shop")
        await town.guest.delete(NAMESPACE.ref("shop"))
        await town.guest.until_gone(NAMESPACE.ref("shop"), 60)

        async def gone() -> bool:
            return await town.balancer_of("web", "shop") is None

        await eventually(gone, "the load balancer is gone")


# --- the process --------------------------------------------------------------------------------------------------


async def test_a_program_that_ends_leaves_its_lead_and_the_next_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with a_real_cluster(cluster, tmp_path, provider=False) as town:
        async with town.provide() as first:
            before = await town.serve("web")
            assert await first.end() == 0
        lease = await town.guest.api.get(LEADER)
        assert not lease["spec"].get("holderIdentity")

        await town.guest.make_service(a_service("while-away"))
        async with town.provide() as second:
            await town.guest.service_where("while-away", addresses_of, "has its address", 10)
            after = await town.guest.api.get(SERVICE.ref("web", "default"))
            await clear(town)
            assert await second.end() == 0

    assert addresses_of(after) == addresses_of(before)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
