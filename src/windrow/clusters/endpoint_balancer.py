"""A LoadBalancer on Harvester in front of a cluster's servers, read and rendered (reference/02 §4.7, 04 §4.9).

It is of Harvester's own kind for VMs: Harvester announces the address and probes the servers. Whose it is says the
annotation with the Cluster's uid; it has none of the labels by which load balancers of guest services are found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windrow.bootstrap.layout import API_PORT, Layout
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.endpoint import EndpointBalancer, Purpose
from windrow.core.rng import Rng
from windrow.harvester.names import CLUSTER_UID, VM_NAME
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    new_object,
    resource_version_of,
    text_at,
    uid_of,
)
from windrow.kubernetes.resources import ObjectRef

# A server counts as lost after two probes without an answer, as one that is there after one with.
_HEALTH = {"successThreshold": 1, "failureThreshold": 2, "periodSeconds": 5, "timeoutSeconds": 3}


@dataclass(frozen=True, slots=True)
class ObservedBalancer:
    """A LoadBalancer as Harvester shows it. `servers` are the names of the VMs behind it, `problem` is why it is not
    Ready."""

    namespace: str
    name: str
    uid: str
    cluster_uid: str  # "" where it is no cluster's
    address: str = ""
    servers: tuple[str, ...] = ()
    problem: str = ""
    is_deleting: bool = False
    resource_version: str = field(default="", compare=False)

    @property
    def ref(self) -> ObjectRef:
        return LOAD_BALANCER.ref(self.name, self.namespace)

    def __str__(self) -> str:
        return f"LoadBalancer {self.namespace}/{self.name}"


def read_balancer(raw: Mapping[str, Any]) -> ObservedBalancer:
    ready = find_condition(nested(raw, "status", "conditions"), "Ready")
    servers = nested(raw, "spec", "backendServerSelector", VM_NAME, default=())
    return ObservedBalancer(
        namespace_of(raw),
        name_of(raw),
        uid_of(raw),
        annotations_of(raw).get(CLUSTER_UID, ""),
        text_at(raw, "status", "address"),
        tuple(map(str, servers or ())),
        "" if ready is None or ready.status == "True" else ready.message,
        is_deleting(raw),
        resource_version_of(raw),
    )


def read_owned_balancer(raw: Mapping[str, Any]) -> ObservedBalancer | None:
    """The reading; None for one that was not made for a cluster."""
    found = read_balancer(raw)
    return found if found.cluster_uid else None


def balancer_name(cluster: Cluster, purpose: Purpose) -> str:
    """The name follows from the uid: two clusters of one name have two, and a LoadBalancer is also a Service, whose name
    begins with a letter."""
    name = f"{cluster.name}-{purpose}-{Rng(f'{cluster.uid}/endpoint').name_suffix()}"
    return name if name[0].isalpha() else f"a{name}"


def is_divided(cluster: Cluster) -> bool:
    """Whether some servers have etcd alone, or an API server alone: then no set of servers answers on all ports."""
    return any(pool.is_server and pool.is_etcd != pool.is_control_plane for pool in cluster.pools)


def list_balancers(cluster: Cluster) -> tuple[EndpointBalancer, ...]:
    """The LoadBalancers that the cluster needs: one, or where its servers are divided one for joining too."""
    purposes: tuple[Purpose, ...] = ("api", "join") if is_divided(cluster) else ("api",)
    return tuple(EndpointBalancer(purpose, balancer_name(cluster, purpose)) for purpose in purposes)


def render_balancer(
    cluster: Cluster, balancer: EndpointBalancer, namespace: str, servers: Sequence[str], layout: Layout
) -> Raw:
    endpoint = cluster.control_plane_endpoint
    ports = {"api": API_PORT} if balancer.purpose == "api" else {}
    if balancer.purpose == "join" or len(endpoint.balancers) == 1:
        ports["join"] = layout.supervisor_port
    listeners = {port: name for name, port in reversed(ports.items())}  # K3s has one port for both
    spec: Raw = {
        "description": f"Control plane endpoint of Cluster {cluster.namespace}/{cluster.name}, made by Windrow",
        "workloadType": "vm",
        "ipam": "pool",
        "ipPool": endpoint.pool,
        "listeners": [
            {"name": name, "port": port, "protocol": "TCP", "backendPort": port}
            for port, name in sorted(listeners.items())
        ],
        "healthCheck": {"port": next(iter(ports.values())), **_HEALTH},
    }
    if servers:
        spec["backendServerSelector"] = render_servers(servers)
    annotations = {CLUSTER_UID: cluster.uid}
    return new_object(LOAD_BALANCER, balancer.name, namespace, annotations=annotations, spec=spec)


def render_servers(servers: Sequence[str]) -> dict[str, list[str]]:
    """By name: a label with the cluster's name would also find servers of another cluster called so."""
    return {VM_NAME: list(servers)}


def key_of_balancers(cluster_uid: str) -> str:
    """What the requests to create a cluster's LoadBalancers are known by."""
    return f"{cluster_uid}/endpoint"
