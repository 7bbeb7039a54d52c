"""Site: which Harvester is emulated: its release, its hosts with their sizes, its VM networks with their subnets.

An inventory is a mapping, as of a YAML file; `parse_inventory` tells all of its faults at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Any

from windrow.core.formats.bounds import abbreviate
from windrow.emulator.host.networks import IPV6_PREFIX_LENGTH, Lan
from windrow.emulator.host.nodes import HostSpec, default_hosts
from windrow.emulator.preload import VmNetwork
from windrow.emulator.quantities import BadQuantity, parse_quantity

DEFAULT_VERSION = "v1.8.2"
MAX_HOSTS, MAX_NETWORKS, MAX_CPU = 200, 200, 1024
FIRST_HOST_ADDRESS = IPv4Address("192.168.101.1")
QUOTES = "'\""
LONGEST_PREFIX = 29  # a router, and addresses to lease

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


class BadInventory(ValueError):
    """The inventory cannot be used; `problems` has a sentence for each fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Site:
    """One emulated Harvester. `networks` exist before anything else is made."""

    version: str = DEFAULT_VERSION
    hosts: tuple[HostSpec, ...] = field(default_factory=default_hosts)
    networks: tuple[VmNetwork, ...] = ()


def parse_inventory(raw: object, version: str = DEFAULT_VERSION) -> Site:
    """The site of an inventory: `hosts` and `networks`, either may be left out. Raises BadInventory."""
    if not isinstance(raw, Mapping):
        raise BadInventory([f"wanted a mapping with hosts and networks, found {_show(raw)}"])
    problems = _find_unknown(raw, ("hosts", "networks"), "")
    hosts = [
        _read_host(reader, FIRST_HOST_ADDRESS + place)
        for place, reader in enumerate(_items(raw, "hosts", MAX_HOSTS, problems))
    ]
    networks = [_read_network(reader) for reader in _items(raw, "networks", MAX_NETWORKS, problems)]
    problems += _find_repeated("hosts", (host.name for host in hosts))
    problems += _find_repeated("networks", (network.name for network in networks))
    problems += _find_two_subnets(networks)
    problems += _find_unknown_cluster_networks(networks, hosts or default_hosts())
    if not problems and "hosts" in raw and not hosts:
        problems.append(
            "hosts is empty: name one at least, or leave hosts out for three of 32 CPUs and 128Gi"
        )
    if problems:
        raise BadInventory(problems)
    return Site(version, tuple(hosts) or default_hosts(), tuple(networks))


@dataclass(slots=True)
class _Reader:
    """Reads the fields of one item; a fault is noted with its path, and the default taken."""

    raw: Mapping[str, Any]
    path: str
    problems: list[str]
    known: set[str] = field(default_factory=set)

    def take(self, key: str, default: Any, is_good: Callable[[Any], bool], wanted: str) -> Any:
        self.known.add(key)
        value = self.raw.get(key)
        if value is None:
            return default
        if is_good(value):
            return value
        self.problems.append(f"{self.path}.{key}: wanted {wanted}, found {_show(value)}")
        return default

    def take_name(self, is_good: Callable[[Any], bool], wanted: str) -> str:
        if self.raw.get("name") is None:
            self.problems.append(f"{self.path}.name is missing: write {wanted}")
        return str(self.take("name", "", is_good, wanted))

    def finish(self) -> None:
        self.problems += _find_unknown(self.raw, self.known, self.path)


def _items(raw: Mapping[str, Any], key: str, most: int, problems: list[str]) -> Iterator[_Reader]:
    found = raw.get(key)
    if found is None:
        return
    if not isinstance(found, list) or len(found) > most:
        size = f"{len(found)} of them" if isinstance(found, list) else _show(found)
        problems.append(f"{key}: wanted a list of {most} at most, found {size}")
        return
    for place, item in enumerate(found):
        if isinstance(item, Mapping):
            yield _Reader(item, f"{key}[{place}]", problems)
        else:
            problems.append(f"{key}[{place}]: wanted a mapping, found {_show(item)}")


def _read_host(reader: _Reader, address: IPv4Address) -> HostSpec:
    usual = HostSpec("usual")
    host = HostSpec(
        name=reader.take_name(_matches(_LABEL), "a host name such as host-1"),
        region=reader.take("region", "", _matches(_LABEL_VALUE), "a label value"),
        zone=reader.take("zone", "", _matches(_LABEL_VALUE), "a label value"),
        cpu=reader.take("cpu", usual.cpu, _is_between(1, MAX_CPU), f"a whole number from 1 to {MAX_CPU}"),
        memory=str(reader.take("memory", usual.memory, _is_memory, "a quantity such as 128Gi, at least 1Gi")),
        storage=str(
            reader.take("storage", usual.storage, _is_storage, "a quantity such as 20Ti, at least 1Gi")
        ),
        address=reader.take("address", str(address), _is_address, "an IPv4 address"),
        networks=tuple(
            reader.take("clusterNetworks", usual.networks, _are_names, "a list of names such as mgmt")
        ),
        labels=dict(reader.take("labels", {}, _are_labels, "a mapping of label names to texts")),
        cpu_models=tuple(
            reader.take(
                "cpuModels", usual.cpu_models, _are_models, "a list of CPU models such as Haswell-noTSX"
            )
        ),
        devices=dict(
            reader.take("devices", {}, _are_devices, "a mapping of devices such as nvidia.com/A2 to how many")
        ),
    )
    reader.finish()
    return host


def _read_network(reader: _Reader) -> VmNetwork:
    subnet = f"an IPv4 subnet of /{LONGEST_PREFIX} or larger, such as 10.20.0.0/16"
    network = VmNetwork(
        name=reader.take_name(_is_network_name, "NAMESPACE/NAME"),
        vlan=reader.take("vlan", 0, _is_between(0, 4094), "a VLAN from 1 to 4094, or 0 for none"),
        cidr=reader.take("cidr", "", _is_subnet, subnet),
        gateway=reader.take("gateway", "", _is_address, "an IPv4 address"),
        cluster_network=reader.take("clusterNetwork", "mgmt", _matches(_LABEL), "a name such as mgmt"),
        ipv6_prefix=reader.take(
            "ipv6Prefix", "", _is_ipv6_prefix, "an IPv6 prefix of /64, such as fd00:50::/64"
        ),
    )
    if network.gateway and network.cidr and IPv4Address(network.gateway) not in IPv4Network(network.cidr):
        reader.problems.append(f"{reader.path}.gateway: {network.gateway} is not in {network.cidr}")
    reader.finish()
    return network


def _find_two_subnets(networks: Iterable[VmNetwork]) -> list[str]:
    """Networks of one VLAN share its DHCP server, hence its subnet."""
    first: dict[tuple[str, int], VmNetwork] = {}
    problems = []
    for network in networks:
        before = first.setdefault((network.cluster_network, network.vlan), network)
        if network.cidr and before.cidr and Lan(network.cidr).range != Lan(before.cidr).range:
            problems.append(
                f"networks: {before.name} and {network.name} are both VLAN {network.vlan} of {network.cluster_network}, "
                f"with {before.cidr} and {network.cidr}; write one subnet, or another vlan"
            )
    return problems


def _find_unknown_cluster_networks(networks: Iterable[VmNetwork], hosts: Iterable[HostSpec]) -> list[str]:
    """A cluster network is there because a host has it."""
    known = dict.fromkeys(name for host in hosts for name in host.networks)
    return [
        f"networks[{place}].clusterNetwork: no host has {network.cluster_network}; the hosts' clusterNetworks are "
        f"{', '.join(known)}"
        for place, network in enumerate(networks)
        if network.cluster_network not in known
    ]


def _find_repeated(key: str, names: Iterable[str]) -> list[str]:
    counts = Counter(filter(None, names)).items()
    return [f"{key}: the name {name} is there {count} times" for name, count in counts if count > 1]


def _find_unknown(raw: Mapping[str, Any], known: Iterable[str], path: str) -> list[str]:
    fields = sorted(known)
    prefix = f"{path}." if path else ""
    return [
        f"{prefix}{_show(key).strip(QUOTES)}: not a field; the fields are {', '.join(fields)}"
        for key in raw
        if key not in fields
    ]


def _show(value: object) -> str:
    return "nothing" if value is None else abbreviate(str(value))


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_between(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _is_memory(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(value) <= 20 and 1 << 30 <= parse_quantity(value) <= 1 << 50
    except BadQuantity:
        return False


def _is_storage(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(value) <= 20 and 1 << 30 <= parse_quantity(value) <= 1 << 60
    except BadQuantity:
        return False


def _is_address(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(IPv4Address(value))
    except ValueError:
        return False


def _is_ipv6_prefix(value: object) -> bool:
    try:
        return isinstance(value, str) and IPv6Network(value).prefixlen == IPV6_PREFIX_LENGTH
    except ValueError:
        return False


def _is_subnet(value: Any) -> bool:
    try:
        return isinstance(value, str) and "/" in value and IPv4Network(value).prefixlen <= LONGEST_PREFIX
    except ValueError:
        return False


def _is_network_name(value: Any) -> bool:
    return isinstance(value, str) and value.count("/") == 1 and all(map(_LABEL.fullmatch, value.split("/")))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= 16 and all(map(_matches(_LABEL), value))


def _are_models(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 100 and all(map(_matches(_LABEL_VALUE), value))


def _are_devices(value: Any) -> bool:
    is_name, is_count = _matches(_LABEL_KEY), _is_between(0, MAX_CPU)
    is_short = isinstance(value, Mapping) and len(value) <= 64
    return is_short and all(is_name(key) and "/" in key and is_count(count) for key, count in value.items())


def _are_labels(value: Any) -> bool:
    is_key, is_value = _matches(_LABEL_KEY), _matches(_LABEL_VALUE)
    is_short = isinstance(value, Mapping) and len(value) <= 64
    return is_short and all(is_key(key) and is_value(text) for key, text in value.items())
