"""Asks Harvester whether a cluster can have what it wants of its IPPools, a load balancer or addresses of machines: before its
first machine, and for `windrow check`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from windrow.client.client import Client
from windrow.clusters.api import names
from windrow.clusters.api.addresses import find_ip_pool_fault, read_ip_pool
from windrow.clusters.api.cluster import MAX_QUANTITY, Cluster, Pool
from windrow.clusters.api.endpoint import EndpointBalancer, field_of
from windrow.clusters.endpoint_balancer import list_balancers, read_balancer
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import Raw, nested
from windrow.machines.port import Problem


async def check_endpoint(client: Client, cluster: Cluster) -> list[Problem]:
    """Whether its IPPool has the addresses that its LoadBalancers need, and their names are free. Raises every KubeError but
    Forbidden. Of a manifest, which has no uid, LoadBalancers that may be its own count as those."""
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
    return problems


async def check_all_pools(get_client: Callable[[str], Awaitable[Client]], cluster: Cluster) -> list[Problem]:
    """Both checks, each with the credential that the manager would use. Raises every KubeError but Forbidden."""
    found = []
    for pool in cluster.pools:
        if any(one.ip_pool for one in pool.address_pools):
            found += await check_ip_pools(await get_client(pool.credential), pool, cluster.namespace)
    if cluster.control_plane_endpoint.mode == "loadBalancer":
        found += await check_endpoint(await get_client(cluster.credential), cluster)
    return list(dict.fromkeys(found))


async def check_ip_pools(client: Client, pool: Pool, namespace: str) -> list[Problem]:
    """Whether machines can have addresses of the IPPools that the pool's HarvesterConfig names. Raises every KubeError but
    Forbidden."""
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
        fault = find_ip_pool_fault(entry, read_ip_pool(raw) if raw is not None else None)
        if fault is not None:
            problems.append(Problem(f"{where}: {fault[0]}", fault[1], field))
    return problems


def _count_held(pool: Raw, wanted: Sequence[EndpointBalancer], namespace: str) -> int:
    """How many of the LoadBalancers a cluster of this name has an address for; their names end with what follows from the
    uid."""
    holders = [str(one) for one in nested(pool, "status", "allocated", default={}).values()]
    stems = [f"{namespace}/{one.name.rpartition('-')[0]}-" for one in wanted]
    return sum(any(one.startswith(stem) for one in holders) for stem in stems)


def _free_addresses(pool: Raw) -> int:
    """As many as one could want, of a pool that was just made and has no status yet."""
    free = nested(pool, "status", "available")
    return free if isinstance(free, int) else MAX_QUANTITY
