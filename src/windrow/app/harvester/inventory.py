"""Inventory: what a Harvester has and what of it is used. Hosts, images, networks, address pools and load balancers.

Each kind is listed by itself: a credential of one namespace may list neither hosts nor pools, and sees the rest all the same.
Of each at most MAX_OBJECTS are read; what is left out is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from windrow.app.harvester.offers import OFFERS, Row, rows_of
from windrow.client.client import Client
from windrow.core.formats.quantity import NotQuantity, Quantity
from windrow.harvester.hosts.maintenance import (
    UPGRADE_NAMESPACE,
    HostState,
    list_maintenance,
    read_host_state,
    read_upgrade,
)
from windrow.harvester.names import LB_OF_CLUSTER, LB_OF_NAMESPACE, LB_OF_SERVICE, ZONE
from windrow.harvester.resources import IMAGE, IP_POOL, LOAD_BALANCER, NETWORK, UPGRADE, VMI
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import Forbidden, NotFound
from windrow.kubernetes.objects import Raw, labels_of, name_of, namespace_of, nested, text_at
from windrow.kubernetes.resources import NODE, ApiResource

MAX_OBJECTS = 1000
MAX_TEXT = 300
MAX_HELD = 256  # addresses of a pool


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a kind, by name. `hidden` says why there are none; `is_cut`: there are more."""

    items: tuple[Raw, ...] = ()
    hidden: str = ""
    is_cut: bool = False
    namespace: str = ""  # the only one that may be listed

    @property
    def note(self) -> str:
        """What is not shown of it, and why; "" where it is whole."""
        if self.hidden:
            return f"Not shown: {self.hidden}"
        cut = f"Only the first {MAX_OBJECTS} are shown. " if self.is_cut else ""
        if not self.namespace:
            return cut.strip()
        return f"{cut}Only those of namespace {self.namespace}: the credential may list no others."


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of something there is, and how much of that is reserved, in the unit of `text`."""

    used: float
    total: float
    text: str

    @property
    def percent(self) -> int:
        """Of the whole, from 0 to 100."""
        return min(max(round(100 * self.used / self.total), 0), 100) if self.total > 0 else 0


@dataclass(frozen=True, slots=True)
class HostLine:
    """A host. CPU and memory are what its VMs request, of what it gives to pods."""

    name: str
    zone: str
    is_ready: bool
    takes_vms: bool
    maintenance: str
    vms: int
    cpu: Usage
    memory: Usage


@dataclass(frozen=True, slots=True)
class PoolLine:
    """An IPPool, with who holds which address."""

    name: str
    ranges: str
    network: str
    scope: str
    addresses: Usage
    held: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BalancerLine:
    """A LoadBalancer: its address, and the service or the cluster that it is for."""

    namespace: str
    name: str
    address: str
    holder: str
    cluster: str
    pool: str
    problem: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """What was read; `notes` says by kind what was not, or not whole, and "" of the others."""

    hosts: tuple[HostLine, ...] = ()
    images: tuple[Row, ...] = ()
    image_heads: Row = ()
    networks: tuple[Row, ...] = ()
    network_heads: Row = ()
    pools: tuple[PoolLine, ...] = ()
    balancers: tuple[BalancerLine, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


async def read_inventory(client: Client, own: str) -> Inventory:
    """By the client of a Harvester; `own` is the namespace of its credential. Raises KubeError."""
    hosts = await list_bounded(client, NODE, own)
    vmis = await list_bounded(client, VMI, own)
    upgrades = await list_bounded(client, UPGRADE, "", UPGRADE_NAMESPACE)
    images = await list_bounded(client, IMAGE, own)
    networks = await list_bounded(client, NETWORK, own)
    pools = await list_bounded(client, IP_POOL, own)
    balancers = await list_bounded(client, LOAD_BALANCER, own)
    image_heads, image_rows = rows_of(OFFERS["images"], images.items, wide=True)
    network_heads, network_rows = rows_of(OFFERS["networks"], networks.items, wide=True)
    listed = {
        "hosts": hosts,
        "VMs": vmis,
        "images": images,
        "networks": networks,
        "pools": pools,
        "balancers": balancers,
    }
    return Inventory(
        read_hosts(hosts.items, vmis.items, upgrades.items),
        cut_rows(image_rows),
        image_heads,
        cut_rows(network_rows),
        network_heads,
        tuple(map(read_pool, pools.items)),
        tuple(map(read_load_balancer, balancers.items)),
        {kind: listing.note for kind, listing in listed.items()},
    )


def cut_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows of which no cell is longer than MAX_TEXT."""
    return tuple(tuple(cell[:MAX_TEXT] for cell in row) for row in rows)


async def list_bounded(client: Client, kind: ApiResource, own: str, namespace: str = "") -> Listing:
    """At most MAX_OBJECTS of a kind; of `own` alone where the credential may not list all. Raises KubeError."""
    try:
        return await _list(client, kind, namespace)
    except NotFound:
        return Listing(hidden=f"Harvester serves no {kind.plural}.")
    except Forbidden as error:
        if namespace or not kind.namespaced or not own:
            return Listing(hidden=error.message[:MAX_TEXT])
    try:
        return await _list(client, kind, own, only=own)
    except Forbidden as error:
        return Listing(hidden=error.message[:MAX_TEXT])


async def _list(client: Client, kind: ApiResource, namespace: str, only: str = "") -> Listing:
    found: list[Raw] = []
    is_cut = False
    async with aclosing(_objects(client, kind, namespace)) as objects:
        async for raw in objects:
            if is_cut := len(found) == MAX_OBJECTS:
                break
            found.append(raw)
    found.sort(key=lambda raw: (namespace_of(raw), name_of(raw)))
    return Listing(tuple(found), is_cut=is_cut, namespace=only)


async def _objects(client: Client, kind: ApiResource, namespace: str) -> AsyncGenerator[Raw, None]:
    async for page in client.pages(kind, namespace):
        for raw in page.items:
            yield raw


def read_hosts(
    raws: Sequence[Raw], vmis: Iterable[Raw], upgrades: Iterable[Raw] = ()
) -> tuple[HostLine, ...]:
    """The hosts, with what VMs request on each."""
    placed: dict[str, list[Raw]] = defaultdict(list)
    for vmi in vmis:
        placed[text_at(vmi, "status", "nodeName")].append(vmi)
    states = [read_host_state(raw) for raw in raws]
    maintenance = list_maintenance(states, map(read_upgrade, upgrades))
    return tuple(
        _host(raw, state, getattr(maintenance.get(state.name), "because", ""), placed[state.name])
        for raw, state in zip(raws, states, strict=True)
    )


def _host(raw: Raw, state: HostState, maintenance: str, vmis: Sequence[Raw]) -> HostLine:
    cpu, memory = (_amount(nested(raw, "status", "allocatable", what)) for what in ("cpu", "memory"))
    used_cpu, used_memory = sum(map(_cpu_of, vmis)), sum(map(_memory_of, vmis))
    gib = 2**30
    return HostLine(
        state.name,
        labels_of(raw).get(ZONE, ""),
        state.is_ready,
        state.takes_vms,
        maintenance,
        len(vmis),
        Usage(used_cpu, cpu, f"{used_cpu:g} of {cpu:g} CPUs"),
        Usage(used_memory, memory, f"{used_memory / gib:.1f} of {memory / gib:.1f} GiB"),
    )


def _cpu_of(vmi: Raw) -> float:
    """What is requested, which overcommitment makes less than the CPUs that the guest sees."""
    domain = nested(vmi, "spec", "domain", default={})
    requested = nested(domain, "resources", "requests", "cpu")
    if requested is not None:
        return _amount(requested)
    cores, sockets, threads = (
        nested(domain, "cpu", what, default=1) for what in ("cores", "sockets", "threads")
    )
    counts = [one if isinstance(one, int) and 0 < one < 10_000 else 1 for one in (cores, sockets, threads)]
    return float(counts[0] * counts[1] * counts[2])


def _memory_of(vmi: Raw) -> float:
    domain = nested(vmi, "spec", "domain", default={})
    requested = nested(domain, "resources", "requests", "memory")
    return _amount(requested if requested is not None else nested(domain, "memory", "guest"))


def _amount(value: Any) -> float:
    """A quantity in its unit; 0 for what is none."""
    try:
        return Quantity.parse(str(value)[:40]).milli / 1000
    except NotQuantity:
        return 0.0


def read_pool(raw: Raw) -> PoolLine:
    """An IPPool."""
    name, _, _, ranges, network, scope = cut_rows(rows_of(OFFERS["pools"], [raw], wide=True)[1])[0]
    held = nested(raw, "status", "allocated", default={})
    holders = (
        sorted((str(address), str(holder)) for address, holder in held.items())
        if isinstance(held, Mapping)
        else []
    )
    total, available = (_count(nested(raw, "status", what)) for what in ("total", "available"))
    used = total - available
    text = f"{used} of {total} taken" if total else "not counted yet"
    return PoolLine(name, ranges, network, scope, Usage(used, total, text), tuple(holders[:MAX_HELD]))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**64 else 0


def read_load_balancer(raw: Raw) -> BalancerLine:
    """A LoadBalancer. The labels of a guest's cloud provider name its service, the description Windrow's own."""
    labels = labels_of(raw)
    cluster, service = labels.get(LB_OF_CLUSTER, ""), labels.get(LB_OF_SERVICE, "")
    holder = (
        f"Service {labels.get(LB_OF_NAMESPACE, '')}/{service}"
        if service
        else text_at(raw, "spec", "description")
    )
    ready = find_condition(nested(raw, "status", "conditions"), "Ready")
    pool = text_at(raw, "status", "allocatedAddress", "ipPool") or text_at(raw, "spec", "ipPool")
    return BalancerLine(
        namespace_of(raw),
        name_of(raw),
        text_at(raw, "status", "address"),
        holder[:MAX_TEXT],
        cluster,
        pool,
        ready.message[:MAX_TEXT] if ready is not None and ready.status != "True" else "",
    )
