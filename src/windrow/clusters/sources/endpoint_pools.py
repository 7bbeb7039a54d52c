"""Asks Harvester whether a cluster can have what it wants of its IPPools, a load balancer or addresses of machines: before its
first machine, and for `windrow check`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from windrow.client.client import Client
from windrow.clusters.api import names
from windrow.clusters.api.addresses import (
    IPAddress,
    IPPool,
    find_ip_pool_fault,
    read_ip_address,
    read_ip_pool,
    resolve_ip_pools,
    subtract,
)
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.endpoint import EndpointBalancer, field_of
from windrow.clusters.api.kinds import IP_ADDRESS
from windrow.clusters.api.manifest.networking import find_small_ranges
from windrow.clusters.api.manifest.pools import MAX_QUANTITY
from windrow.clusters.endpoint_balancer import list_balancers, read_balancer
from windrow.clusters.sources.address_scopes import digest_of, select_claims
from windrow.clusters.sources.network_routes import (
    HINT_SUBNET,
    check_routes,
    find_route,
    has_gateway,
    list_outside,
)
from windrow.core.formats.cidr import Address, Range, parse_address
from windrow.core.text import join_some
from windrow.harvester.identity import IDENTITY, read_identity
from windrow.harvester.names import NETWORK_ROUTE
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER
from windrow.kubernetes.errors import Forbidden, NotFound
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, nested
from windrow.machines.port import Problem

MAX_NAMED = 3  # addresses of machines, in one problem


async def check_endpoint(client: Client, cluster: Cluster, claims: Iterable[IPAddress] = ()) -> list[Problem]:
    """Whether its IPPool has the addresses that its LoadBalancers need, and their names are free. `claims` are the addresses
    of machines on this Harvester, which its load balancers do not know of. Raises every KubeError but Forbidden. Of a manifest, which has no uid, LoadBalancers that may be its own count as those."""
    endpoint, field = cluster.control_plane_endpoint, field_of(names.ENDPOINT_IP_POOL)
    wanted = list_balancers(cluster)
    # Where they are recorded, or will be: the vmNamespace of a pool may have changed since.
    namespace = endpoint.location.namespace if endpoint.location is not None else cluster.vm_namespace
    refs = [LOAD_BALANCER.ref(one.name, namespace) for one in wanted]
    try:
        pool, *found = await asyncio.gather(
            client.find(IP_POOL.ref(endpoint.pool)), *map(client.find, refs if cluster.uid else ())
        )
    except Forbidden as error:
        hint = "let it get IPPools, and create, get, list, watch, patch and delete load balancers there"
        return [Problem(f"{field}: {error}", hint, field)]
    if pool is None:
        hint = "create it there, or write the name of one that exists"
        return [Problem(f"{field} is {endpoint.pool}, and there is no such IPPool on Harvester", hint, field)]
    made = [read_balancer(raw) for raw in found if raw is not None]
    problems = [
        Problem(
            f"{one} on Harvester is not this cluster's",
            "delete it there, or rename the cluster",
            "metadata.name",
        )
        for one in made
        if one.cluster_uid != cluster.uid
    ]
    held = len(made) if cluster.uid else _count_held(pool, wanted, namespace)
    lacking = len(wanted) - held
    if (free := _free_addresses(pool)) < lacking:
        message = (
            f"{field}: IPPool {endpoint.pool} has {free} free addresses, and the endpoint needs {lacking}"
        )
        problems.append(Problem(message, "widen a range of it, or write the name of another", field))
    problems += await _check_route(client, pool, field)
    return problems + _find_machines(pool, cluster, claims, field)


async def _check_route(client: Client, raw: Raw, field: str) -> list[Problem]:
    """What of the IPPool's ranges does not fit to the network that it is for. One that names none is for any."""
    pool = read_ip_pool(raw)
    if not pool.network:
        return []
    route = await find_route(client, pool.network)
    problems = [
        Problem(
            f"{field}: IPPool {pool.name} has {one}, and network {pool.network} has the subnet {route.subnet} "
            f"(annotation {NETWORK_ROUTE})",
            HINT_SUBNET,
            field,
            "warning",
        )
        for one in list_outside(pool.ranges, route)
    ]
    gateways = (Range.parse(text) for text in pool.gateways)
    if has_gateway(subtract(pool.ranges, gateways), route):
        message = (
            f"{field}: IPPool {pool.name} has {route.gateway}, which is the gateway of network {pool.network} "
            f"(annotation {NETWORK_ROUTE})"
        )
        problems.append(Problem(message, "leave it out of the IPPool's range", field))
    return problems


def _find_machines(raw: Raw, cluster: Cluster, claims: Iterable[IPAddress], field: str) -> list[Problem]:
    """What says that the IPPool is for machines: the cluster's own address pools, and what machines of any cluster have."""
    pool, name = read_ip_pool(raw), cluster.control_plane_endpoint.pool
    hint = "name an IPPool of which no machine has addresses"
    problems = []
    for one in cluster.pools:
        for entry in one.address_pools:
            is_near = pool.network in ("", entry.network)
            if entry.ip_pool != name and not (
                is_near and any(own.overlaps(other) for own in entry.ranges for other in pool.ranges)
            ):
                continue
            part = f"{entry.place}.{'ipPool' if entry.ip_pool else 'addresses'}"
            place = f"{one.kind} {cluster.namespace}/{one.config_name}: {part}"
            message = f"{field}: machines are given addresses of IPPool {name}, by {place}"
            problems.append(Problem(message, hint, field))
    near = (one for one in claims if pool.network in ("", one.network))
    inside = {parse_address(one.address) for one in near}
    shared = sorted((one for one in inside if any(one in part for part in pool.ranges)), key=int)
    if shared and not problems:
        message = (
            f"{field}: machines have addresses in the ranges of IPPool {name}, and the load balancer could be given one of them: "
            f"{join_some(shared, MAX_NAMED)}"
        )
        problems.append(Problem(message, hint, field))
    return problems


async def list_claims(api: Client) -> tuple[IPAddress, ...]:
    """The addresses of all machines that the management API knows; none where this account may not list them."""
    try:
        found = await api.list(IP_ADDRESS)
    except (Forbidden, NotFound):
        return ()
    return tuple(claim for raw in found if (claim := read_ip_address(raw)) is not None)


async def _claimed_on(
    client: Client, access: ClientConfig, claims: Sequence[IPAddress], cluster_uid: str
) -> list[IPAddress]:
    """Those on the Harvester that the client leads to; none where it may not be read which that is."""
    if not claims:
        return []
    try:
        raw = await client.find(IDENTITY)
    except Forbidden:
        return []
    if raw is None:
        return []
    return select_claims(claims, read_identity(raw), digest_of(access), cluster_uid)


async def check_all_pools(
    get_client: Callable[[str], Awaitable[Client]],
    get_config: Callable[[str], Awaitable[ClientConfig]],
    cluster: Cluster,
    claims: Sequence[IPAddress] = (),
    cluster_uid: str = "",
) -> list[Problem]:
    """All checks, each with the credential that the manager would use; `claims` are the addresses of machines anywhere. The
    addresses are counted that the machines want: `cluster_uid` is that of the Cluster that exists by this name, whose
    machines have theirs already. Raises every KubeError but Forbidden."""
    found: list[Problem] = []
    resolved: list[Pool] = []
    taken: dict[str, set[Address]] = {}
    for pool in cluster.pools:
        if not pool.address_pools or not pool.is_on_harvester:
            continue
        client = await get_client(pool.credential)
        read, problems = await _read_ip_pools(client, pool, cluster.namespace)
        found += problems
        resolved.append(replace(pool, address_pools=resolve_ip_pools(pool.address_pools, read)))
        found += await check_routes(client, resolved[-1], cluster.namespace)
        for entry in pool.address_pools:
            allocated = read[entry.ip_pool].allocated if entry.ip_pool in read else ()
            access = await get_config(pool.credential)
            of_machines = [
                one.address
                for one in await _claimed_on(client, access, claims, cluster_uid)
                if one.network == entry.network and one.cluster_uid != cluster_uid
            ]
            taken.setdefault(entry.network, set()).update(
                parse_address(text) for text in (*(address for address, _ in allocated), *of_machines)
            )
    found += find_small_ranges(resolved, taken)
    if cluster.control_plane_endpoint.mode == "loadBalancer":
        client = await get_client(cluster.credential)
        access = await get_config(cluster.credential)
        found += await check_endpoint(client, cluster, await _claimed_on(client, access, claims, cluster_uid))
    return list(dict.fromkeys(found))


async def check_address_pools(client: Client, pool: Pool, namespace: str) -> list[Problem]:
    """Whether machines can have addresses of the IPPools that the pool's HarvesterConfig names, and whether what they would have
    fits to the networks. Raises every KubeError but Forbidden."""
    read, problems = await _read_ip_pools(client, pool, namespace)
    resolved = replace(pool, address_pools=resolve_ip_pools(pool.address_pools, read))
    return problems + await check_routes(client, resolved, namespace)


async def _read_ip_pools(
    client: Client, pool: Pool, namespace: str
) -> tuple[dict[str, IPPool], list[Problem]]:
    """Those that machines can have addresses of, by name, and what is wrong with the others."""
    found: dict[str, IPPool] = {}
    problems = []
    for entry in pool.address_pools:
        if not entry.ip_pool:
            continue
        field = f"{entry.place}.ipPool"
        where = f"{pool.kind} {namespace}/{pool.config_name}: {field}"
        try:
            raw = await client.find(IP_POOL.ref(entry.ip_pool))
        except Forbidden as error:
            hint = "let the credential's user get, list and watch ippools.loadbalancer.harvesterhci.io"
            problems.append(Problem(f"{where}: {error}", hint, field))
            continue
        read = read_ip_pool(raw) if raw is not None else None
        fault = find_ip_pool_fault(entry, read)
        if fault is not None:
            problems.append(Problem(f"{where}: {fault[0]}", fault[1], field))
        elif read is not None:
            found[entry.ip_pool] = read
    return found, problems


def _count_held(pool: Raw, wanted: Sequence[EndpointBalancer], namespace: str) -> int:
    """How many of the LoadBalancers a cluster of this name has an address for; their names end with what follows from the
    uid."""
    holders = [holder for _, holder in read_ip_pool(pool).allocated]
    stems = [f"{namespace}/{one.name.rpartition('-')[0]}-" for one in wanted]
    return sum(any(one.startswith(stem) for one in holders) for stem in stems)


def _free_addresses(pool: Raw) -> int:
    """As many as one could want, of a pool that was just made and has no status yet."""
    free = nested(pool, "status", "available")
    return free if isinstance(free, int) else MAX_QUANTITY
