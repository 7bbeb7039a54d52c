"""A cluster on its Harvester: addresses of its services and its API, and the hosts and zones of its machines.

Read with the cluster's credential, for who may get its Secret; when the page is loaded, and then no more.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from windrow.app.harvester.inventory import (
    BalancerLine,
    HostLine,
    Listing,
    list_bounded,
    read_hosts,
    read_load_balancer,
)
from windrow.app.harvester.reader import OpenHarvester
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import CLUSTER_NAME
from windrow.clusters.api.references import qualify_credential
from windrow.core.errors import UserError
from windrow.dashboard.pages.page import Page, PageContext
from windrow.harvester.names import CLUSTER_UID, LB_OF_CLUSTER
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import Forbidden, NotFound
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.resources import NODE


@dataclass(frozen=True, slots=True)
class ZoneLine:
    """A zone with the hosts in it, each with machines of the cluster; "" is that of hosts without one."""

    zone: str
    hosts: tuple[tuple[str, tuple[str, ...]], ...]
    etcd: int


@dataclass(frozen=True, slots=True)
class Placement:
    """What was read of a cluster on its Harvester, and when; or why it could not be."""

    balancers: tuple[BalancerLine, ...] = ()
    balancers_note: str = ""
    zones: tuple[ZoneLine, ...] = ()
    hosts_note: str = ""
    read_at: datetime | None = None
    problem: str = ""
    hint: str = ""


async def placement(context: PageContext) -> Page:
    """The cluster of this namespace and name on its Harvester."""
    namespace, name = context.names
    raw = await context.api.get(CLUSTER.ref(name, namespace))
    machines = await context.api.list(MACHINE, namespace, labels=f"{CLUSTER_NAME}={name}")
    reference = qualify_credential(
        str(nested(raw, "spec", "cloudCredentialSecretName", default="")), namespace
    )
    values = {
        "namespace": namespace,
        "name": name,
        "reference": reference,
        "shown": await _show(context, raw, machines, reference),
    }
    quoted = shlex.quote(reference)
    commands = (
        f"windrow get hosts --credential {quoted} -o wide",
        f"kubectl --kubeconfig HARVESTER get loadbalancers.loadbalancer.harvesterhci.io -A -l {LB_OF_CLUSTER}={shlex.quote(name)}",
    )
    return Page("placement.html", f"{name} on Harvester", values, "clusters", commands=commands)


async def _show(context: PageContext, raw: Raw, machines: Sequence[Raw], reference: str) -> Placement:
    async def work(found: OpenHarvester) -> Placement:
        client, own = Client(found.transport), found.config.namespace or "default"
        balancers = await list_bounded(client, LOAD_BALANCER, own)
        hosts = await list_bounded(client, NODE, own)
        return place(raw, machines, balancers, hosts)

    try:
        shown = await context.harvesters.read(context.api, context.user, reference, work)
        return replace(shown, read_at=context.now)
    except (Forbidden, NotFound) as error:
        return Placement(
            problem=error.message, hint="Who may get this Secret sees what Harvester has of the cluster."
        )
    except UserError as error:
        return Placement(problem=error.message, hint=error.hint)


def place(raw: Raw, machines: Sequence[Raw], balancers: Listing, hosts: Listing) -> Placement:
    """Pure."""
    own = [one for one in balancers.items if is_balancer_of(one, raw, machines)]
    return Placement(
        tuple(map(read_load_balancer, own)),
        balancers.note,
        group_by_zone(machines, {one.name: one for one in read_hosts(hosts.items, ())}),
        hosts.note,
    )


def is_balancer_of(balancer: Raw, cluster: Raw, machines: Iterable[Raw]) -> bool:
    """Whether it is the endpoint of the cluster, or of a service of a guest cluster of its name in a namespace of its VMs."""
    if (uid := annotations_of(balancer).get(CLUSTER_UID)) is not None:
        return uid == uid_of(cluster)
    spaces = {
        str(nested(one, "status", "driverConfig", "VMNamespace", default="default")) for one in machines
    }
    return labels_of(balancer).get(LB_OF_CLUSTER) == name_of(cluster) and namespace_of(balancer) in spaces


def group_by_zone(machines: Iterable[Raw], hosts: Mapping[str, HostLine]) -> tuple[ZoneLine, ...]:
    """The zones by name, with the hosts that machines run on; those that run on none are left out."""
    zones: dict[str, dict[str, list[str]]] = {}
    members: dict[str, int] = {}
    for raw in machines:
        host = str(nested(raw, "status", "host", default="") or "")
        if not host:
            continue
        zone = hosts[host].zone if host in hosts else ""
        zones.setdefault(zone, {}).setdefault(host, []).append(name_of(raw))
        members[zone] = members.get(zone, 0) + ("etcd" in (nested(raw, "spec", "roles", default=()) or ()))
    return tuple(
        ZoneLine(
            zone,
            tuple((host, tuple(sorted(found))) for host, found in sorted(zones[zone].items())),
            members[zone],
        )
        for zone in sorted(zones)
    )
