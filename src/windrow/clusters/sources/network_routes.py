"""Addresses that are given out on a network of Harvester, compared with the subnet and the gateway that the network has there.

The route of a network is what its user wrote, or what DHCP said once. A network may carry more subnets than that, so addresses
beside it are a warning; its gateway is a host on it in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from windrow.client.client import Client
from windrow.clusters.api.addresses import AddressPool
from windrow.clusters.api.cluster import Pool
from windrow.core.formats.cidr import Range
from windrow.harvester.names import NETWORK_ROUTE
from windrow.harvester.references import Route, read_route
from windrow.harvester.resources import NETWORK
from windrow.kubernetes.errors import Forbidden
from windrow.machines.port import Problem

HINT_SUBNET = "write addresses of that subnet, or correct the network's route on Harvester"


async def check_routes(client: Client, pool: Pool, namespace: str) -> list[Problem]:
    """Of the address pools of a pool of machines, whose IPPools are resolved, what does not fit to their networks. Networks that
    are absent or may not be read are the node driver's to tell. Raises every KubeError but Forbidden."""
    networks = sorted({entry.network for entry in pool.address_pools if entry.ranges})
    routes = dict(
        zip(networks, await asyncio.gather(*(find_route(client, one) for one in networks)), strict=True)
    )
    return [
        problem
        for entry in pool.address_pools
        if entry.ranges
        for problem in _check_entry(
            entry, routes[entry.network], f"{pool.kind} {namespace}/{pool.config_name}"
        )
    ]


async def find_route(client: Client, network: str) -> Route:
    """The route of the network `namespace/name`; an empty one where it is absent or may not be read."""
    namespace, _, name = network.partition("/")
    try:
        raw = await client.find(NETWORK.ref(name, namespace))
    except Forbidden:
        return Route()
    return read_route(raw) if raw is not None else Route()


def _check_entry(entry: AddressPool, route: Route, where: str) -> Iterator[Problem]:
    field = f"{entry.place}.{'ipPool' if entry.ip_pool else 'addresses'}"
    written = f"{where}: {field} has " + (f"{entry.written}, with " if entry.ip_pool else "")
    for one in list_outside(entry.ranges, route):
        fault = f"{written}{one}, and network {entry.network} has the subnet {route.subnet} (annotation {NETWORK_ROUTE})"
        yield Problem(fault, HINT_SUBNET, field, "warning")
    if has_gateway(entry.ranges, route):
        fault = f"{written}{route.gateway}, which is the gateway of network {entry.network} (annotation {NETWORK_ROUTE})"
        yield Problem(fault, f"add it to {entry.place}.excludedAddresses, or leave it out", field)


def list_outside(ranges: Iterable[Range], route: Route) -> list[Range]:
    """Those that are not wholly in the subnet of the route; none of another family than it has."""
    subnet = route.subnet
    if subnet is None:
        return []
    return [
        one
        for one in ranges
        if one.first.version == subnet.version and not (one.first in subnet and one.last in subnet)
    ]


def has_gateway(ranges: Iterable[Range], route: Route) -> bool:
    """Whether a machine could be given the address of the gateway."""
    return route.gateway is not None and any(route.gateway in one for one in ranges)
