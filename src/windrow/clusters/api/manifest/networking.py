"""Networks of a Cluster: those of its pods and services, their families, and the addresses of its machines beside them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from windrow.bootstrap.node_config import list_of
from windrow.clusters.api import names
from windrow.clusters.api.addresses import AddressPool, subtract
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.endpoint import field_of
from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.manifest.distribution import (
    MAX_CONFIG_KEYS,
    find_distribution_name,
    merge_cluster_wide,
)
from windrow.core.formats.bounds import abbreviate, is_too_long
from windrow.core.formats.cidr import Address, NotAddress, Range, parse_address
from windrow.core.formats.version import NotVersion, Version
from windrow.harvester.problems import Severity
from windrow.machines.port import Problem

MAX_NETWORKS = 16  # of cluster-cidr, service-cidr and cluster-dns each; a dual-stack cluster has two


_STACKS: Mapping[str, frozenset[int]] = {
    "ipv4": frozenset({4}),
    "ipv6": frozenset({6}),
    "dual": frozenset({4, 6}),
}


def read_stack(fields: Fields) -> str:
    key = "stackPreference"
    stack = fields.short_text(key)
    if stack and stack not in _STACKS:
        fields.refuse(key, f"is {stack}", f"write one of {', '.join(_STACKS)}")
        return ""
    return stack


def find_families(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The IP families of the networks of pods, in their order: the first is the family of the cluster's own traffic."""
    texts = _texts(config.get("cluster-cidr"))[:MAX_NETWORKS]
    found = dict.fromkeys(6 if ":" in text else 4 for text in texts)
    return tuple(found) or (4,)


# The keys of the distribution that are networks, with the networks that they have unless set.
_NETWORKS = {"cluster-cidr": "10.42.0.0/16", "service-cidr": "10.43.0.0/16"}


def check_networks(cluster: Cluster, problems: ProblemCollector) -> None:
    """Networks that the distribution refuses at its start, or with which no service would be reached."""
    where = "spec.rkeConfig.machineGlobalConfig"
    merged = merge_cluster_wide(cluster.global_config, cluster.selector_config)
    networks: dict[str, list[Range]] = {}
    for key, default in _NETWORKS.items():
        networks[key] = []
        for text in _addresses(cluster, merged.get(key) or default, key, problems):
            try:
                if "/" not in text:
                    raise NotAddress("it has no prefix length")
                networks[key].append(Range.parse(text))
            except NotAddress:
                problems.add(
                    f"{where}.{key}",
                    f"{key} is {abbreviate(text)}, which is not a network",
                    f"write it as {default}",
                )
    _check_families(networks, problems)
    _check_service_size(cluster, networks["service-cidr"], problems)
    _check_pod_network_size(cluster, merged, networks["cluster-cidr"], problems)
    _check_endpoint_address(cluster, networks, problems)
    _check_range_sizes(cluster, problems)
    _check_stack(cluster, networks, problems)
    _check_pool_addresses(cluster, networks, problems)
    pods, services = networks.values()
    if any(one.overlaps(other) for one in pods for other in services):
        problems.add(
            f"{where}.service-cidr",
            "cluster-cidr and service-cidr have addresses in common",
            "give pods and services networks of their own",
        )
    for text in _addresses(cluster, merged.get("cluster-dns") or [], "cluster-dns", problems):
        try:
            server = parse_address(text)
        except NotAddress:
            problems.add(
                f"{where}.cluster-dns",
                f"cluster-dns is {abbreviate(text)}, which is not an IP address",
                "write one of service-cidr",
            )
            continue
        if services and not any(server in one for one in services):
            problems.add(
                f"{where}.cluster-dns",
                f"cluster-dns {text} is not in service-cidr",
                "write an address of service-cidr",
            )


def _check_families(networks: Mapping[str, Sequence[Range]], problems: ProblemCollector) -> None:
    """Networks of pods and services without a family in common, and those that machines cannot serve yet."""
    where = "spec.rkeConfig.machineGlobalConfig"
    pods, services = ({one.first.version for one in ranges} for ranges in networks.values())
    if pods and services and not pods & services:
        problems.add(
            f"{where}.service-cidr",
            f"cluster-cidr is {_family_text(pods)} and service-cidr {_family_text(services)}, so that no service reaches a pod",
            "give both a network of the same family",
        )
    elif pods and services and len({ranges[0].first.version for ranges in networks.values()}) > 1:
        first = [f"{key} is IPv{ranges[0].first.version}" for key, ranges in networks.items()]
        problems.add(
            f"{where}.service-cidr",
            f"the first network of {first[0]} and of {first[1]}, and kube-apiserver starts only where both are of one family",
            "write the families of both in the same order",
        )
    for key, ranges in networks.items():
        counts = Counter(one.first.version for one in ranges)
        for version, count in counts.items():
            if count > 1:
                problems.add(
                    f"{where}.{key}",
                    f"{key} has {count} IPv{version} networks",
                    "write one network of each family: Kubernetes takes no more",
                )


# kube-apiserver takes service networks of any size from this version on; before, with at most so many bits for hosts.
_ANY_SERVICE_NETWORK = Version.parse("v1.34.0")

_SERVICE_BITS = 20


def _check_service_size(cluster: Cluster, services: Sequence[Range], problems: ProblemCollector) -> None:
    """Service networks with which kube-apiserver does not start."""
    try:
        if Version.parse(cluster.version) >= _ANY_SERVICE_NETWORK:
            return
    except NotVersion:
        return  # which is refused
    for one in services:
        if one.size > 2**_SERVICE_BITS:
            least = one.first.max_prefixlen - _SERVICE_BITS
            problems.add(
                "spec.rkeConfig.machineGlobalConfig.service-cidr",
                f"service-cidr has {one}, and kube-apiserver of {cluster.version} takes no IPv{one.first.version} network larger than "
                f"/{least}",
                f"write {one.first}/{least + 4}, or Kubernetes 1.34 or later",
            )


# How long the prefix of a Node's part of cluster-cidr is, by family, unless an argument of kube-controller-manager says so.
_NODE_PREFIXES = {4: 24, 6: 64}

_NODE_PREFIX_ARGUMENT = "node-cidr-mask-size"


_CONTROLLER_MANAGER_KEYS = ("kube-controller-arg", "kube-controller-manager-arg")
# The network plugins whose pods have addresses of their Node's part; others divide cluster-cidr by themselves.
_PLUGINS_BY_NODE = frozenset({"canal", "flannel"})


def _check_pod_network_size(
    cluster: Cluster, config: Mapping[str, Any], pods: Sequence[Range], problems: ProblemCollector
) -> None:
    """Networks of pods with parts for fewer Nodes than there are to be: the others would have no pod that starts."""
    machines = sum(pool.quantity for pool in cluster.pools)
    for one in pods:
        family = one.first.version
        prefix, bits = _find_node_prefix(config, family), one.first.max_prefixlen
        own_prefix = bits + 1 - one.size.bit_length()
        parts = 2 ** (prefix - own_prefix) if own_prefix <= prefix <= bits else 0
        if machines <= parts:
            continue
        least = max(0, prefix - (machines - 1).bit_length())
        hint = (
            f"write a network with a prefix of /{least} or shorter in cluster-cidr, or ask for fewer machines"
        )
        if cluster.recorded.initialized:
            hint = f"ask for {_count_text(parts)} at most: a cluster keeps its cluster-cidr"
        is_error = parts == 0 or _gives_pods_addresses_by_node(cluster, config)
        problems.add(
            "spec.rkeConfig.machinePools",
            f"cluster-cidr {one.first}/{own_prefix} has room for {parts} Node{'s' * (parts != 1)}, each of which is given a "
            f"/{prefix}, and the machine pools ask for {_count_text(machines)}",
            hint,
            # What runs is not stopped: its lost machines are replaced all the same.
            "error" if is_error and not cluster.recorded.has_started else "warning",
        )


def _count_text(machines: int) -> str:
    return f"{machines} machine{'s' * (machines != 1)}"


def _find_node_prefix(config: Mapping[str, Any], family: int) -> int:
    given = [
        str(one) for key in _CONTROLLER_MANAGER_KEYS for one in list_of(config.get(key))[:MAX_CONFIG_KEYS]
    ]
    values = dict(text.lstrip("-").split("=", 1) for text in given if "=" in text)
    text = values.get(f"{_NODE_PREFIX_ARGUMENT}-ipv{family}") or values.get(_NODE_PREFIX_ARGUMENT) or ""
    is_number = text.isdecimal() and not is_too_long(text)
    return int(text) if is_number else _NODE_PREFIXES[family]


def _gives_pods_addresses_by_node(cluster: Cluster, config: Mapping[str, Any]) -> bool:
    if find_distribution_name(cluster.recorded.version or cluster.version) == "k3s":
        return config.get("flannel-backend") != "none"
    plugins = ",".join(map(str, list_of(config.get("cni"))[:MAX_NETWORKS])) or "canal"
    return any(plugin.strip() in _PLUGINS_BY_NODE for plugin in plugins.split(","))


def _check_endpoint_address(
    cluster: Cluster, networks: Mapping[str, Sequence[Range]], problems: ProblemCollector
) -> None:
    """Virtual addresses that are a pod's, a service's or a machine's too. Those of a cluster that exists stay what they are."""
    endpoint = cluster.control_plane_endpoint
    severity: Severity = "warning" if cluster.recorded.endpoint is not None else "error"
    given = ((names.ENDPOINT_ADDRESS, endpoint.host), (names.ENDPOINT_JOIN_ADDRESS, endpoint.join_host))
    for annotation, text in given if endpoint.mode == "address" else ():
        try:
            address, where = parse_address(text), field_of(annotation)
        except NotAddress:
            continue  # a name
        for key, ranges in networks.items():
            if own := next((one for one in ranges if address in one), None):
                problems.add(
                    where,
                    f"{where} is {text}, and {key} is {own}, which has it",
                    "write an address outside of it, that no pod or service is given",
                    severity,
                )
        for pool in cluster.pools:
            for one in pool.address_pools:
                if address in one:
                    problems.add(
                        where,
                        f"{where} is {text}, and HarvesterConfig {pool.config_name}: {one.place} has it in {one.written}, so that a "
                        "machine may be given it",
                        "add it to excludedAddresses there, or write another",
                        severity,
                    )


def _check_range_sizes(cluster: Cluster, problems: ProblemCollector) -> None:
    """Those of the manifest; those of IPPools are counted once they are read."""
    for group in _group_overlapping(cluster.pools):
        problems.found += _find_small(group, cluster.pools, frozenset())


def find_small_ranges(pools: Sequence[Pool], taken: Mapping[str, Set[Address]]) -> list[Problem]:
    """What reading the Cluster could not tell: ranges of IPPools that are too small, which are resolved in `pools`, and ranges
    that are too small because others have addresses of them. `taken` are those, by network."""
    found: list[Problem] = []
    for group in _group_overlapping(pools):
        of_network = taken.get(group[0][1].network, frozenset())
        others = frozenset(one for one in of_network if any(one in own for _, own in group))
        if any(own.ip_pool for _, own in group) or not _find_small(group, pools, frozenset()):
            found += _find_small(group, pools, others)
    return found


def _find_small(
    group: Sequence[tuple[Pool, AddressPool]], every: Sequence[Pool], taken: Set[Address]
) -> list[Problem]:
    """A warning where the group has fewer addresses than its pools of machines ask for together, or just as many; a machine
    that is replaced keeps its own until its VM is gone."""
    pools = list(dict.fromkeys(pool.name for pool, _ in group))
    wanted = sum(pool.quantity for pool in every if pool.name in pools)
    size = sum(one.size for one in subtract((r for _, own in group for r in own.ranges), ()))
    free = size - len(taken)
    if not wanted or free > wanted:
        return []
    pool, own = group[0]
    place = f"{pool.kind} {pool.config_name}: {own.place}"
    where = f"{place} (IPPool {own.ip_pool})" if own.ip_pool else place
    others = f", of which others have {len(taken)}," if taken else ","
    whose = f"pool {pools[0]} asks" if len(pools) == 1 else f"pools {', '.join(pools)} together ask"
    message = (
        f"{where} has {_count(size, 'address', 'es')}{others} and {whose} for {_count(wanted, 'machine')}"
    )
    what = f"IPPool {own.ip_pool} on Harvester" if own.ip_pool else "it"
    hint = (
        f"widen {what}, or ask for fewer; those without an address wait"
        if free < wanted
        else f"widen {what} by one or more: what replaces a machine waits until the VM of that one is gone"
    )
    return [Problem(message, hint, own.place, "warning")]


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def _group_overlapping(pools: Iterable[Pool]) -> list[list[tuple[Pool, AddressPool]]]:
    """The address pools, those together that have addresses of a network in common, in the order of the pools."""
    every = [(pool, own) for pool in pools for own in pool.address_pools if own.ranges]
    ranges = sorted(
        (own.network, one.first.version, int(one.first), int(one.last), place)
        for place, (_, own) in enumerate(every)
        for one in own.ranges
    )
    group_of = {place: {place} for place in range(len(every))}
    where, end, owner = ("", 0), -1, -1
    for network, version, first, last, place in ranges:
        if where == (network, version) and first <= end:
            joined = group_of[owner] | group_of[place]
            group_of |= dict.fromkeys(joined, joined)
            last = max(last, end)
        where, end, owner = (network, version), last, place
    groups = {min(group): sorted(group) for group in group_of.values()}
    return [[every[place] for place in groups[least]] for least in sorted(groups)]


def _check_stack(
    cluster: Cluster, networks: Mapping[str, Sequence[Range]], problems: ProblemCollector
) -> None:
    """A stackPreference that the networks of pods and services do not keep: the distribution has the last word."""
    where = "spec.rkeConfig.networking.stackPreference"
    wanted = _STACKS.get(cluster.stack)
    for key, ranges in networks.items():
        found = {one.first.version for one in ranges}
        if wanted and found and found != wanted:
            problems.add(
                where,
                f"{where} is {cluster.stack}, and {key} is {_family_text(found)}",
                f"write {_family_text(wanted)} networks in {key} of machineGlobalConfig, or another stackPreference",
            )


def _check_pool_addresses(
    cluster: Cluster, networks: Mapping[str, Sequence[Range]], problems: ProblemCollector
) -> None:
    """Addresses of machines that are pods' or services' too, and families that the cluster has and its machines have not."""
    for pool in cluster.pools:
        where = f"HarvesterConfig {pool.config_name}"
        for one in pool.address_pools:
            for key, ranges in networks.items():
                if shared := next((r for r in ranges for own in one.ranges if own.overlaps(r)), None):
                    problems.add(
                        f"{one.place}.addresses",
                        f"{where}: {one.place} has {one.written}, and {key} is {shared}, with addresses in common",
                        "give machines addresses of another network, or change it in machineGlobalConfig",
                    )
        node = [one for one in pool.address_pools if one.is_of_node]
        static = {one.version for one in node if one.ranges}
        if static and all(one.ranges for one in node) and (missing := set(cluster.families) - static):
            problems.add(
                "addressPools",
                f"{where}: its addressPools give the node {_family_text(static)} addresses, and cluster-cidr is "
                f"{_family_text(set(cluster.families))}",
                f"add an entry with {_family_text(missing)} addresses of network {node[0].network}, or leave "
                f"{_family_text(missing)} out of cluster-cidr",
            )
        if static and (extra := static - set(cluster.families)):
            problems.add(
                "addressPools",
                f"{where}: its addressPools give the node {_family_text(extra)} addresses, and cluster-cidr has no "
                f"{_family_text(extra)} network",
                "write cluster-cidr and service-cidr of both families in machineGlobalConfig, or remove the entry",
            )


def _family_text(versions: Set[int]) -> str:
    return " and ".join(f"IPv{version}" for version in sorted(versions))


def _addresses(cluster: Cluster, value: Any, key: str, problems: ProblemCollector) -> list[str]:
    """The texts of `value`; none where they are too many to be compared with each other."""
    texts = _texts(value)
    written = value if isinstance(value, list) else [value]
    if any(re.search(r"\s", str(one)) for one in written[:MAX_NETWORKS]):
        problems.add(
            f"spec.rkeConfig.machineGlobalConfig.{key}",
            f"{key} is {abbreviate(','.join(map(str, written)))}, with white space, and a server does not start with it",
            "remove the white space" if is_too_long(plain := ",".join(texts)) else f"write {plain}",
            # What runs is not stopped.
            "warning" if cluster.recorded.has_started else "error",
        )
    if len(texts) > MAX_NETWORKS:
        field = f"spec.rkeConfig.machineGlobalConfig.{key}"
        problems.add(field, f"{key} has {len(texts)} entries", f"write {MAX_NETWORKS} at most")
        return []
    return texts


def _texts(value: Any) -> list[str]:
    """The items of a list, or of a text with commas, as the distribution takes both."""
    items = value if isinstance(value, list) else str(value).split(",")
    return [str(item).strip() for item in items]
