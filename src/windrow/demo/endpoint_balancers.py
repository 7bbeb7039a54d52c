"""What is behind an endpoint of mode `address`: a load balancer of the user's, for which the emulated network stands in.

It does what docs/how-to/choose-an-endpoint.md asks of the user's: it passes a port on to the machines of one role, as
they come and go. The cluster manager knows nothing of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from windrow.bootstrap.layout import API_PORT
from windrow.client.informer import make_watcher, watching
from windrow.client.transport import Transport
from windrow.clusters.api.endpoint import read_asked_endpoint
from windrow.clusters.api.fields import ProblemCollector
from windrow.clusters.api.kinds import MACHINE
from windrow.clusters.bootstrap_data import find_layout
from windrow.core.clock import Clock
from windrow.emulator.external_balancers import ExternalBalancers
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, nested

# The role that a machine behind a port has, in the words of the manifest's pools and of a Machine.
_POOL_FIELDS = {"control-plane": "controlPlaneRole", "etcd": "etcdRole"}


@dataclass(frozen=True, slots=True)
class Frontend:
    """A port of the user's load balancer of one Cluster, and the role of the machines behind it."""

    namespace: str
    cluster: str
    host: str
    port: int
    role: str

    def __str__(self) -> str:
        return f"{self.host} passes {self.port} on to machines with {_POOL_FIELDS[self.role]}"

    def leads_to(self, machine: Mapping[str, Any]) -> bool:
        return (
            namespace_of(machine) == self.namespace
            and nested(machine, "spec", "clusterName") == self.cluster
            and self.role in nested(machine, "spec", "roles", default=())
        )


def list_frontends(documents: Iterable[Mapping[str, Any]]) -> list[Frontend]:
    """The ports that the Clusters in `documents` want load balancers of their user for."""
    return [one for raw in documents if raw.get("kind") == "Cluster" for one in _frontends_of(raw)]


def _frontends_of(cluster: Mapping[str, Any]) -> list[Frontend]:
    endpoint = read_asked_endpoint(annotations_of(cluster), ProblemCollector())
    if endpoint.mode != "address":
        return []
    layout = find_layout(str(nested(cluster, "spec", "kubernetesVersion", default="")))
    urls = {layout.api_url(endpoint.host): "control-plane"}
    urls.setdefault(layout.join_url(endpoint.join_host or endpoint.host), "etcd")
    return [
        Frontend(
            namespace_of(cluster), name_of(cluster), parts.hostname or "", parts.port or API_PORT, role
        )  # as URLs have them, since that is how machines ask
        for url, role in urls.items()
        for parts in (urlsplit(url),)
    ]


def find_addresses(frontend: Frontend, machines: Iterable[Raw]) -> list[str]:
    """The addresses of the machines behind the port."""
    return [
        address
        for machine in machines
        if frontend.leads_to(machine)
        for address in nested(machine, "status", "addresses", default=())
    ]


async def follow_machines(
    frontends: Iterable[Frontend], manager: Transport, balancers: ExternalBalancers, clock: Clock
) -> None:
    """Keep the machines behind each port those that exist, until cancelled; done at once where there is no port."""
    by_place: dict[tuple[str, int], list[Frontend]] = defaultdict(list)
    for one in frontends:
        by_place[one.host, one.port].append(one)
    if not by_place:
        return
    machines = make_watcher(manager, MACHINE, dict, clock)
    async with watching(machines) as changed:
        while True:
            changed.clear()
            found = list(machines.values())
            for place, sharing in by_place.items():
                addresses = (address for one in sharing for address in find_addresses(one, found))
                balancers.set_members(*place, addresses)
            await changed.wait()
