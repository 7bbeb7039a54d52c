"""ServiceLB, K3s' own load balancer: a Service of type LoadBalancer gets the addresses of the Nodes that take its pods.

The DaemonSet of pods is not simulated: what it does on each Node is. A Node takes one Service per port, the oldest
first. It answers also when a cloud provider does, and then both write the Service's status: a line on the console says
so (reference/10-day2 §4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial

from windrow.core.formats.cidr import is_address
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.components.chart_workloads import CLOUD_PROVIDER
from windrow.emulator.guest_cluster.kube_vip.service_handler import ServiceHandler, ServiceState
from windrow.emulator.guest_os.notifier import result_unless
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.informer import WATCH_TIMEOUT_S, Informer, start_informers
from windrow.emulator.kit.listers import Key, key_of
from windrow.emulator.kit.scheduling import find_obstacle
from windrow.emulator.load_balancers.services import (
    ENDPOINT_SLICE,
    ENDPOINTS,
    ingress_of,
    ready_backends,
    service_of,
    set_ingress,
)
from windrow.emulator.load_balancers.virtual_listeners import SocketAddress, VirtualListeners
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested
from windrow.kubernetes.resources import NODE, SERVICE

NAME = "servicelb"
USER_AND_GROUPS = ("system:serviceaccount:kube-system:svclb", ("system:masters",))
_ENABLE_LABEL = "svccontroller.k3s.cattle.io/enablelb"
_POD: Mapping[str, object] = {
    "tolerations": [
        {"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
    ]
}

Placements = Mapping[Key, list[str]]  # the names of the Nodes that take each Service


class ServiceLB:
    """The controller on the leading server. `run` ends by cancellation; then every listener is closed."""

    def __init__(self, guest: GuestOS, cluster: GuestCluster) -> None:
        self.guest = guest
        self.cluster = cluster
        self._listeners = VirtualListeners(guest.host.network, self._log)
        self._changed = asyncio.Event()
        self._reported: set[Key] = set()  # Services that a cloud provider answers as well
        self._served: set[Key] = set()

    def _log(self, line: str) -> None:
        self.guest.log(NAME, line)

    async def run(self) -> None:
        while True:
            await self.cluster.wait_usable()
            try:
                await self._serve()
            except* KubeError as errors:
                self._log(f"panic: {errors.exceptions[0]}")
                await self.guest.sleep(self.guest.delays.crash_backoff)
            finally:
                self._listeners.close_all()

    async def _serve(self) -> None:
        client = AdminClient(self.cluster.client(*USER_AND_GROUPS))
        kinds = (SERVICE, ENDPOINT_SLICE, ENDPOINTS, NODE)
        informers = [Informer(client, kind, WATCH_TIMEOUT_S) for kind in kinds]
        services, slices, endpoints, nodes = informers
        state = ServiceState(services, slices, slices.add_index(lambda raw: [service_of(raw)]), endpoints)
        for informer in informers:
            informer.add_event_handler(lambda raw: self._changed.set())
        async with asyncio.TaskGroup() as group:
            await start_informers(group, informers)
            while True:
                self._changed.clear()
                await self._sync(client, state, nodes)
                # A cloud provider that comes later changes kube-vip's settings.
                await result_unless(self._changed.wait(), self.cluster.vip_changed.wait())
                await self.guest.sleep(self.guest.delays.pod_start)

    async def _sync(self, client: AdminClient, state: ServiceState, nodes: Mapping[Key, Raw]) -> None:
        by_name = {name_of(raw): raw for raw in nodes.values()}
        placed = place_services(state.services.values(), list(nodes.values()))
        for key in self._served - set(placed):
            self._listeners.sync(key, {})
        self._served = set(placed)
        for key, names in placed.items():
            service = state.services[key]
            if nested(service, "spec", "externalTrafficPolicy") == "Local":
                local = _list_endpoint_nodes(service, state)
                names = [name for name in names if name in local]
            addresses = list_addresses(service, [by_name[name] for name in names])
            if list(ingress_of(service)) != addresses:
                await _write_status(client, key, addresses)
            self._listen(service, names, by_name, state)
            self._report_other_provider(key)

    def _listen(
        self, service: Raw, names: Iterable[str], nodes: Mapping[str, Raw], state: ServiceState
    ) -> None:
        wanted: dict[SocketAddress, Callable[[], ServiceHandler]] = {}
        for name in names:
            for route in state.routes_of(service, name):
                for address in list_addresses(service, [nodes[name]]) if route.backends() else ():
                    wanted[address, route.port] = partial(
                        ServiceHandler,
                        self.cluster.heartbeats,
                        route.backends,
                        route.is_sticky,
                        self.cluster.served_files,
                    )
        self._listeners.sync(key_of(service), wanted)

    def _report_other_provider(self, key: Key) -> None:
        if CLOUD_PROVIDER in self.cluster.releases and key not in self._reported:
            self._reported.add(key)
            self._log(
                f"level=warning: Service {'/'.join(key)} is answered by servicelb and by {CLOUD_PROVIDER}, and both "
                "write its status: start all servers with `disable: [servicelb]`"
            )


async def _write_status(client: AdminClient, key: Key, addresses: Iterable[str]) -> None:
    ingress: list[Raw] = [{"ip": one, "ipMode": "VIP"} for one in addresses]
    await client.mutate(SERVICE.ref(key[1], key[0]), lambda raw: set_ingress(raw, ingress), "status")


def place_services(services: Iterable[Raw], nodes: Iterable[Raw]) -> Placements:
    """The Nodes that take each Service of type LoadBalancer without a class; one Service for each port of a Node."""
    eligible = list_eligible_nodes(nodes)
    taken: set[tuple[str, int, str]] = set()
    placed: dict[Key, list[str]] = {}
    for service in sorted(
        services, key=lambda raw: (raw["metadata"].get("creationTimestamp", ""), key_of(raw))
    ):
        spec = service.get("spec") or {}
        if spec.get("type") != "LoadBalancer" or spec.get("loadBalancerClass"):
            continue
        ports = {(int(one["port"]), one.get("protocol", "TCP")) for one in spec.get("ports") or ()}
        names = [name for name in eligible if not any((name, *port) in taken for port in ports)]
        taken |= {(name, *port) for name in names for port in ports}
        placed[key_of(service)] = names
    return placed


def list_eligible_nodes(nodes: Iterable[Raw]) -> list[str]:
    """The Ready Nodes that a pod of ServiceLB may run on; those with the label only, where one has it."""
    found = list(nodes)
    labelled = [node for node in found if _ENABLE_LABEL in labels_of(node)]
    return sorted(
        name_of(node)
        for node in labelled or found
        if is_true(nested(node, "status", "conditions"), "Ready")
        and not find_obstacle(_POD, labels_of(node), nested(node, "spec", "taints", default=[]))
    )


def list_addresses(service: Raw, nodes: Iterable[Raw]) -> list[str]:
    """The addresses of Nodes for the Service's families: external ones where any Node has one, else internal ones."""
    by_type: dict[str, set[str]] = {"ExternalIP": set(), "InternalIP": set()}
    for node in nodes:
        for one in nested(node, "status", "addresses", default=[]):
            if one["type"] in by_type and is_address(one["address"]):
                by_type[one["type"]].add(one["address"])
    chosen = sorted(by_type["ExternalIP"] or by_type["InternalIP"])
    families = nested(service, "spec", "ipFamilies", default=["IPv4"])
    return [one for family in families for one in chosen if (":" in one) == (family == "IPv6")]


def _list_endpoint_nodes(service: Raw, state: ServiceState) -> Set[str]:
    """The Nodes that have a Ready endpoint of the Service."""
    own = [state.slices[one] for one in state.slices_of.get(key_of(service), ())]
    ports = nested(service, "spec", "ports", default=[])
    backends = (ready_backends(service, port, own, state.endpoints.get(key_of(service))) for port in ports)
    return {one.node for found in backends for one in found}
