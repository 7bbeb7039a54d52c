"""Address pools of a HarvesterConfig, and the IPAddress: the durable record of one address of one machine.

An IPAddress has the name that its network and address give it, as those of networking.k8s.io have, so of two claims of
one address the API server takes one. It is created before the VM that has the address, and deleted after that VM is gone.
The Machine is the claim: there is no object for a wish.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.kinds import IP_ADDRESS
from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.cidr import Address, NotAddress, Range, parse_address
from windrow.harvester.names import CLUSTER_UID, GLOBAL_IP_POOL, MACHINE_UID
from windrow.kubernetes.objects import (
    Raw,
    is_dns_subdomain,
    mappings_at,
    name_of,
    nested,
    new_object,
    resource_version_of,
    uid_of,
)
from windrow.kubernetes.resources import ObjectRef
from windrow.machines.port import StaticAddress

FIELD = "addressPools"
MAX_ADDRESS_POOLS = 16  # of one HarvesterConfig: two for each of as many cards as KubeVirt takes easily
MAX_RANGES = 64  # of one address pool, and as many that are left out of it

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class AddressPool:
    """Addresses of one family on one network of Harvester, from which each machine of a pool has one.

    `ranges` are what machines can have: without excluded addresses, and without those that no host may have.
    """

    network: str  # "namespace/name" of a network on Harvester
    ranges: tuple[Range, ...]
    prefix: int
    gateway: str = ""
    nameservers: tuple[str, ...] = ()
    is_of_node: bool = False  # on the node's network, which is that of the first entry
    place: str = ""  # where it is written: "addressPools[0]"
    written: str = ""  # as the user wrote the ranges
    ip_pool: str = ""  # the IPPool of Harvester that the ranges are of
    excluded: tuple[Range, ...] = ()  # of that
    fault: str = ""  # why it has no ranges

    @property
    def version(self) -> int:
        """4 or 6, its family; 0 while it has no ranges."""
        return self.ranges[0].first.version if self.ranges else 0

    @cached_property
    def size(self) -> int:
        return sum(one.size for one in self.ranges)

    @cached_property
    def subnet(self) -> Network:
        return ipaddress.ip_network(f"{self.ranges[0].first}/{self.prefix}", strict=False)

    def address_at(self, place: int) -> Address:
        """The address with this number, from 0 to `size` - 1, in the order of the ranges."""
        for one in self.ranges:
            if place < one.size:
                return type(one.first)(int(one.first) + place)
            place -= one.size
        raise IndexError(place)

    def __contains__(self, address: Address) -> bool:
        return any(address in one for one in self.ranges)


@dataclass(frozen=True, slots=True)
class IPAddress:
    """The record of one machine's address: a reading."""

    name: str
    uid: str
    address: str
    prefix: int
    network: str
    harvester: str  # scope of the Harvester that the network is on
    machine: str  # "namespace/name" of the Machine
    machine_uid: str
    cluster_uid: str
    gateway: str = ""
    nameservers: tuple[str, ...] = ()
    is_of_node: bool = False  # on the node's network
    server: str = ""  # through which Harvester was read; "" in claims of earlier versions
    resource_version: str = field(default="", compare=False)

    @property
    def ref(self) -> ObjectRef:
        return IP_ADDRESS.ref(self.name)

    @property
    def machine_namespace(self) -> str:
        return self.machine.partition("/")[0]

    @property
    def version(self) -> int:
        return 6 if ":" in self.address else 4

    @property
    def static_address(self) -> StaticAddress:
        return StaticAddress(self.network, self.address, self.prefix, self.gateway, self.nameservers)

    def __str__(self) -> str:
        return f"IPAddress {self.name}"


def address_name(harvester: str, network: str, address: str) -> str:
    """The name of the IPAddress: the same for each claim of that address on that network, and for no other."""
    place = hashlib.sha256(f"{harvester}/{network}".encode()).hexdigest()[:10]
    return f"{place}-{ipaddress.ip_address(address).exploded.replace(':', '-')}"


def new_scope(uid: str, server: str) -> str:
    """The scope of the claims on a server that says it were the Harvester with this uid, and is not."""
    return f"{uid}@{server}"


def uid_of_scope(scope: str) -> str:
    """The uid of Harvester in a scope. The first scope of a uid is that uid."""
    return scope.partition("@")[0]


def read_ip_address(raw: Mapping[str, Any]) -> IPAddress | None:
    """None for an object that was not written here, and names no address."""
    spec = raw.get("spec") or {}
    claim = spec.get("claimRef") or {}
    try:
        address = str(ipaddress.ip_address(str(spec.get("address"))))
    except ValueError:
        return None
    return IPAddress(
        name=name_of(raw),
        uid=uid_of(raw),
        address=address,
        prefix=int(spec.get("prefix") or 0),
        network=str(spec.get("network") or ""),
        harvester=str(spec.get("harvester") or ""),
        machine=f"{claim.get('namespace') or ''}/{claim.get('name') or ''}",
        machine_uid=str(claim.get("uid") or ""),
        cluster_uid=str(nested(raw, "metadata", "annotations", CLUSTER_UID, default="") or ""),
        gateway=str(spec.get("gateway") or ""),
        nameservers=tuple(str(one) for one in spec.get("nameservers") or ()),
        is_of_node=spec.get("nodeNetwork") is True,
        server=str(spec.get("server") or ""),
        resource_version=resource_version_of(raw),
    )


def render_ip_address(claim: IPAddress) -> Raw:
    namespace, _, machine = claim.machine.partition("/")
    spec: Raw = {
        "address": claim.address,
        "prefix": claim.prefix,
        "network": claim.network,
        "harvester": claim.harvester,
        "claimRef": {"namespace": namespace, "name": machine, "uid": claim.machine_uid},
    }
    if claim.is_of_node:
        spec["nodeNetwork"] = True
    if claim.server:
        spec["server"] = claim.server
    if claim.gateway:
        spec["gateway"] = claim.gateway
    if claim.nameservers:
        spec["nameservers"] = list(claim.nameservers)
    annotations = {CLUSTER_UID: claim.cluster_uid, MACHINE_UID: claim.machine_uid}
    return new_object(IP_ADDRESS, claim.name, annotations=annotations, spec=spec)


# -- what the user writes ----------------------------------------------------------------------------------------


def read_address_pools(
    options: Mapping[str, Any], namespace: str, problems: ProblemCollector
) -> tuple[AddressPool, ...]:
    """The address pools of a HarvesterConfig's fields; none where one of them has a fault, which is added to `problems`.

    `namespace` is that of the VMs, where a network without a namespace is.
    """
    if not options.get(FIELD):
        return ()
    own = ProblemCollector()
    fields = Fields(options, "", own)
    pools = [_read_pool(one, namespace, own) for one in fields.items(FIELD, MAX_ADDRESS_POOLS)]
    found = tuple(pool for pool in pools if pool is not None)
    found = tuple(replace(one, is_of_node=one.network == found[0].network) for one in found)
    _check_together(found, own)
    if options.get("networkData"):
        own.add(
            "networkData",
            f"networkData and {FIELD} are both set, and both say which addresses machines have",
            f"remove one of them; {FIELD} is written to each machine as its network data",
        )
    problems.found += own.found
    return () if own.found else found


def _read_pool(fields: Fields, namespace: str, problems: ProblemCollector) -> AddressPool | None:
    before = len(problems.found)
    network = fields.text("network")
    if not network:
        fields.refuse("network", "is not set", "write the networkName of one of the machine's interfaces")
    wanted = _read_ranges(fields, "addresses")
    excluded = _read_ranges(fields, "excludedAddresses")
    if fields.raw.get("ipPool"):
        return _read_named_pool(fields, network if "/" in network else f"{namespace}/{network}", excluded)
    if not wanted and not problems.has(fields.at("addresses")):
        fields.refuse("addresses", "is empty", "write addresses there, such as [192.168.5.10-192.168.5.50]")
    for one in wanted:
        if purpose := _find_purpose(one):
            fields.refuse("addresses", f"has {one}, of {purpose}", "write addresses that machines can have")
    if len({one.first.version for one in wanted}) > 1:
        fields.refuse(
            "addresses", "has IPv4 and IPv6 addresses", f"write two entries of {FIELD}, one for each"
        )
    if len(problems.found) > before:
        return None
    version = wanted[0].first.version
    prefix = fields.count("prefix", 0, 32 if version == 4 else 128)
    if not prefix and not problems.has(fields.at("prefix")):
        fields.refuse(
            "prefix",
            "is not set",
            f"write the prefix length of the subnet, such as {24 if version == 4 else 64}",
        )
    gateway = _read_address(fields, "gateway", fields.text("gateway"))
    servers = [_read_address(fields, "nameservers", text) for text in fields.texts("nameservers")]
    if len(problems.found) > before:
        return None
    subnet = ipaddress.ip_network(f"{wanted[0].first}/{prefix}", strict=False)
    for one in wanted:
        if one.first not in subnet or one.last not in subnet:
            fields.refuse(
                "addresses",
                f"has {one}, which is not in {subnet}",
                "write addresses of one subnet, or correct prefix",
            )
    if gateway is not None and gateway not in subnet:
        fields.refuse("gateway", f"is {gateway}, which is not in {subnet}", "write an address of that subnet")
    if (
        gateway is not None
        and any(gateway in one for one in wanted)
        and not any(gateway in one for one in excluded)
    ):
        fields.refuse(
            "addresses",
            f"has {gateway}, which is the gateway",
            "leave it out, or add it to excludedAddresses",
        )
    ranges = subtract(wanted, (*excluded, *_unusable(subnet)))
    if not ranges and len(problems.found) == before:
        fields.refuse("addresses", "has no address that a machine can have", "write more, or exclude fewer")
    if len(problems.found) > before:
        return None
    return AddressPool(
        network=network if "/" in network else f"{namespace}/{network}",
        ranges=ranges,
        prefix=prefix,
        gateway=str(gateway or ""),
        nameservers=tuple(str(one) for one in servers if one is not None),
        place=fields.path,
        written=", ".join(map(str, wanted)),
    )


def _read_named_pool(fields: Fields, network: str, excluded: tuple[Range, ...]) -> AddressPool | None:
    """An entry whose ranges, prefix and gateway are those of an IPPool of Harvester, which is read there."""
    before = len(fields.problems.found)
    name = fields.text("ipPool")
    if not is_dns_subdomain(name):
        fields.refuse(
            "ipPool", f"is {abbreviate(name)}, which is no name of an IPPool", "write the name of one"
        )
    for key in ("addresses", "prefix", "gateway"):
        if fields.raw.get(key):
            fields.refuse(key, "is set, and so is ipPool, which has it", f"remove {key}, or ipPool")
    servers = [_read_address(fields, "nameservers", text) for text in fields.texts("nameservers")]
    if len(fields.problems.found) > before:
        return None
    return AddressPool(
        network,
        (),
        0,
        nameservers=tuple(str(one) for one in servers if one is not None),
        place=fields.path,
        written=f"IPPool {name}",
        ip_pool=name,
        excluded=excluded,
        fault=f"IPPool {name} of Harvester was not read yet",
    )


_NOT_FOR_MACHINES = tuple(
    (Range.parse(network), purpose)
    for network, purpose in (
        ("0.0.0.0/8", "which no host may have"),
        ("127.0.0.0/8", "of which every host has its own"),
        ("169.254.0.0/16", "which are link-local"),
        ("224.0.0.0/3", "which are for multicast, or reserved"),
        ("::/127", "of which every host has its own, or none"),
        ("fe80::/10", "which are link-local"),
        ("ff00::/8", "which are for multicast"),
    )
)


def _find_purpose(wanted: Range) -> str:
    """What the network is for that has some of the addresses and no machine's; "" for none."""
    return next(
        (f"{network}, {purpose}" for network, purpose in _NOT_FOR_MACHINES if network.overlaps(wanted)), ""
    )


def _read_ranges(fields: Fields, key: str) -> tuple[Range, ...]:
    texts = fields.texts(key)
    if len(texts) > MAX_RANGES:
        fields.refuse(key, f"has {len(texts)} entries", f"write {MAX_RANGES} at most")
        return ()
    found = []
    for text in texts:
        try:
            found.append(Range.parse(text[:MAX_TEXT]))
        except NotAddress:
            fields.refuse(
                key,
                f"has {abbreviate(text)}, which is neither an address nor a range",
                "write 192.168.5.10-192.168.5.50, 192.168.5.0/26 or one address",
            )
    return tuple(found)


MAX_TEXT = 100  # two IPv6 addresses have 79 characters


def _read_address(fields: Fields, key: str, text: str) -> Address | None:
    if not text:
        return None
    try:
        return parse_address(text[:MAX_TEXT])
    except NotAddress:
        fields.refuse(key, f"has {abbreviate(text)}, which is no address", "write an IP address")
        return None


def _unusable(subnet: Network) -> tuple[Range, ...]:
    """The addresses of a subnet that no host may have: network and broadcast, and in IPv6 that of the routers (RFC 4291)."""
    if subnet.prefixlen >= subnet.max_prefixlen - 1:  # /31 (RFC 3021) and /127 (RFC 6164), or one address
        return ()
    ends = [subnet.network_address] + ([subnet.broadcast_address] if subnet.version == 4 else [])
    return tuple(Range(one, one) for one in ends)


def subtract(ranges: Iterable[Range], excluded: Iterable[Range]) -> tuple[Range, ...]:
    """What is left of `ranges`, each address once, in rising order."""
    left = _join(ranges)
    for hole in excluded:
        left = [part for one in left for part in _cut(one, hole)]
    return tuple(left)


def _join(ranges: Iterable[Range]) -> list[Range]:
    joined: list[Range] = []
    for one in sorted(ranges, key=lambda one: (one.first.version, int(one.first))):
        if joined and joined[-1].overlaps(one):
            joined[-1] = Range(joined[-1].first, max(joined[-1].last, one.last, key=int))
        else:
            joined.append(one)
    return joined


def _cut(one: Range, hole: Range) -> list[Range]:
    if not one.overlaps(hole):
        return [one]
    kind, parts = type(one.first), []
    if int(one.first) < int(hole.first):
        parts.append(Range(one.first, kind(int(hole.first) - 1)))
    if int(hole.last) < int(one.last):
        parts.append(Range(kind(int(hole.last) + 1), one.last))
    return parts


# -- IPPools of Harvester ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IPPool:
    """An IPPool of Harvester: a reading. `allocated` are the addresses that its LoadBalancers have.

    `is_chosen`: load balancers that name no pool are given addresses of it. Their controller knows of no machine.
    """

    name: str
    ranges: tuple[Range, ...] = ()
    subnets: tuple[Network, ...] = ()
    gateways: tuple[str, ...] = ()
    network: str = ""
    is_chosen: bool = False
    allocated: tuple[tuple[str, str], ...] = ()  # address and namespace/name of the LoadBalancer


def read_ip_pool(raw: Mapping[str, Any]) -> IPPool:
    """What of its ranges, and of what its status has allocated, cannot be read is left out, as Harvester writes none such."""
    ranges: list[Range] = []
    subnets: dict[Network, None] = {}
    gateways: dict[str, None] = {}
    for one in mappings_at(raw, "spec", "ranges")[:MAX_RANGES]:
        try:
            subnet = ipaddress.ip_network(str(one.get("subnet")), strict=False)
            usable = subtract((Range.parse(str(subnet)),), _unusable(subnet))
            first, last = (
                parse_address(str(one[key])) if one.get(key) else default
                for key, default in (("rangeStart", usable[0].first), ("rangeEnd", usable[-1].last))
            )
            if one.get("gateway"):
                gateways[str(parse_address(str(one["gateway"])))] = None
        except ValueError:
            continue
        if first in subnet and last in subnet:
            ranges.append(Range(*sorted((first, last), key=int)))
            subnets[subnet] = None
    labels = nested(raw, "metadata", "labels", default={})
    return IPPool(
        name_of(raw),
        tuple(ranges),
        tuple(subnets),
        tuple(gateways),
        str(nested(raw, "spec", "selector", "network", default="") or ""),
        bool(mappings_at(raw, "spec", "selector", "scope")) or labels.get(GLOBAL_IP_POOL) == "true",
        tuple(sorted(_read_allocated(raw))),
    )


def _read_allocated(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    allocated = nested(raw, "status", "allocated")
    for text, holder in allocated.items() if isinstance(allocated, Mapping) else ():
        try:
            address = parse_address(str(text)[:MAX_TEXT])
        except NotAddress:
            continue
        yield str(address), str(holder)


def resolve_ip_pools(
    pools: Sequence[AddressPool], found: Mapping[str, IPPool] | None
) -> tuple[AddressPool, ...]:
    """The entries with the ranges of the IPPools that they name, else with why they have none. `found` are the IPPools of
    Harvester by name; None: they were not read."""
    resolved: list[AddressPool] = []
    for number, one in enumerate(pools, 1):
        if one.ip_pool and found is not None:
            one = _resolve(one, found.get(one.ip_pool), (*resolved, *pools[number:]))
        resolved.append(one)
    return tuple(resolved)


def _resolve(entry: AddressPool, pool: IPPool | None, others: Sequence[AddressPool]) -> AddressPool:
    if fault := find_ip_pool_fault(entry, pool):
        return replace(entry, fault=f"{fault[0]} ({fault[1]})")
    assert pool is not None  # else that is its fault
    (subnet,) = pool.subnets
    if any((one.network, one.version) == (entry.network, subnet.version) for one in others):
        what = f"another entry has IPv{subnet.version} addresses of network {entry.network}"
        return replace(entry, fault=f"IPPool {pool.name} has IPv{subnet.version} addresses, and {what}")
    has_gateway = any(one.gateway and one.version == subnet.version for one in others)
    return replace(
        entry,
        ranges=_list_free(entry, pool),
        prefix=subnet.prefixlen,
        gateway="" if has_gateway else next(iter(pool.gateways), ""),
        fault="",
    )


def _list_free(entry: AddressPool, pool: IPPool) -> tuple[Range, ...]:
    gateways = (Range.parse(text) for text in pool.gateways)
    return subtract(pool.ranges, (*entry.excluded, *gateways, *_unusable(pool.subnets[0])))


def find_ip_pool_fault(entry: AddressPool, pool: IPPool | None) -> tuple[str, str] | None:
    """Why machines can have no addresses of the IPPool, and what to do; None where they can."""
    what = f"IPPool {entry.ip_pool}"
    if pool is None:
        return f"there is no {what} on Harvester", "create it there, or write the name of one that exists"
    if not pool.ranges:
        return f"{what} has no range", "add one to it"
    if len(pool.subnets) > 1 or len(pool.gateways) > 1:
        return f"{what} has ranges of several subnets", "name an IPPool of one subnet"
    if pool.is_chosen:
        return (
            f"{what} is for load balancers: its selector has a scope, so that they are given its addresses, those of machines among "
            "them",
            "create an IPPool without a scope for machines, and let no LoadBalancer name it",
        )
    if pool.network and pool.network != entry.network:
        return (
            f"{what} is of network {pool.network}, and {entry.place} is on {entry.network}",
            "name an IPPool of that network",
        )
    if not _list_free(entry, pool):
        return f"{what} has no address that a machine can have", "widen it, or exclude fewer"
    return None


def _check_together(pools: Sequence[AddressPool], problems: ProblemCollector) -> None:
    seen: dict[tuple[str, int], AddressPool] = {}
    gateways: dict[int, AddressPool] = {}
    for pool in pools:
        if not pool.ranges:
            continue  # its IPPool says which family it is of
        other = seen.setdefault((pool.network, pool.version), pool)
        if other is not pool:
            problems.add(
                f"{pool.place}.network",
                f"{pool.place} and {other.place} are both IPv{pool.version} addresses of network {pool.network}",
                "write all ranges into one of them: a machine has one address of each family there",
            )
        if pool.gateway:
            first = gateways.setdefault(pool.version, pool)
            if first is not pool:
                problems.add(
                    f"{pool.place}.gateway",
                    f"{first.place} and {pool.place} both have an IPv{pool.version} gateway",
                    "leave out that of the network that does not lead to other networks",
                )
