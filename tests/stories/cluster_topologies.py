"""What a cluster of a random life can be: distribution, split of roles, endpoint, addresses. A mode is one entry of a table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.stories.cluster_rig import a_cluster, a_pool
from tests.stories.test_addresses import NETWORKS, RANGE, SIX
from tests.stories.test_endpoints import BY_BALANCER, stock_pool
from tests.stories.test_ip_pools import ENTRY, a_range
from tests.support.simulation import Simulation

from windrow.clusters.api.names import ENDPOINT_ADDRESS, ENDPOINT_MODE
from windrow.core.rng import Rng
from windrow.emulator.load_balancers.services import Backend
from windrow.emulator.load_balancers.virtual_listeners import ProxyHandler
from windrow.harvester.resources import IP_POOL
from windrow.kubernetes.objects import Raw, new_object

NAME, NAMESPACE = "orchard", "fleet-default"
STARTUP_TIMEOUT = "5m0s"


@dataclass(frozen=True)
class Mode:
    """What one choice adds: to the spec of the Cluster, its annotations, each HarvesterConfig, and to the site."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Simulation], Awaitable[None]] | None = None
    ranges: tuple[str, ...] = ()  # where machines have static addresses from: "192.168.50.100-192.168.50.119"


ADDRESS = "api.orchard.example"


async def _proxy(sim: Simulation) -> None:
    """What a user runs in front of the servers: each port leads to every machine that listens there."""
    network = sim.harvester.network

    def backends(port: int) -> list[Backend]:
        others = (ADDRESS, sim.harvester.vip)
        return [
            Backend(*place)
            for place in sorted(network.listeners())
            if place[1] == port and place[0] not in others
        ]

    for port in (6443, 9345):
        network.listen(ADDRESS, port, ProxyHandler(network, partial(backends, port)))


DISTRIBUTIONS = {
    "rke2": Mode({"kubernetesVersion": "v1.34.7+rke2r1"}),
    "k3s": Mode(
        {"kubernetesVersion": "v1.34.7+k3s1", "rkeConfig": {"machineGlobalConfig": {"disable": ["traefik"]}}}
    ),
}
ENDPOINTS = {
    "firstServer": Mode(),
    "address": Mode(
        annotations={ENDPOINT_MODE: "address", ENDPOINT_ADDRESS: ADDRESS},
        prepare=_proxy,
    ),
    "loadBalancer": Mode(annotations=BY_BALANCER, prepare=stock_pool),
}
STORAGE = {"network": "storage", "addresses": ["10.77.0.10-10.77.0.40"], "prefix": 24}
# So few that what was released is soon given again, and now and then a machine waits for it.
SCARCE = {**RANGE, "addresses": ["192.168.50.100-192.168.50.106"]}
_SCARCE_COUNT = 7
MANY = {**RANGE, "addresses": ["192.168.50.100-192.168.50.119"]}


def _of_families(families: Sequence[int], stack: str) -> Mapping[str, Any]:
    """The spec of a Cluster with pods and services of these families: 0 is IPv4, 1 is IPv6."""
    cidrs = {key: ",".join(of[family] for family in families) for key, of in NETWORKS.items()}
    return {"rkeConfig": {"machineGlobalConfig": cidrs, "networking": {"stackPreference": stack}}}


def _static(*pools: Mapping[str, Any], stack: str = "", cards: Sequence[str] = ("vlan-50",)) -> Mode:
    """Addresses of these pools; the families of pods and services in the order of the pools' own."""
    config = {
        "addressPools": [dict(pool) for pool in pools],
        "networkInfo": {"interfaces": [{"networkName": f"default/{card}"} for card in cards]},
    }
    ranges = tuple(one for pool in pools for one in pool["addresses"])
    if not stack:
        return Mode(config=config, ranges=ranges)
    families = [int(":" in pool["addresses"][0]) for pool in pools]
    return Mode(
        _of_families(families, stack),
        config=config,
        ranges=ranges,
    )


async def _stock_machine_pool(sim: Simulation) -> None:
    spec = {"ranges": [a_range(150, 169)], "selector": {}}
    await sim.harvester_client.create(IP_POOL, new_object(IP_POOL, "machines", spec=spec))


ADDRESSES = {
    "dhcp": Mode(),
    "dual, dhcp": Mode(_of_families((0, 1), "dual")),
    "static": _static(MANY),
    "scarce": _static(SCARCE),
    "two cards": _static(MANY, STORAGE, cards=("vlan-50", "storage")),
    "dual": _static(MANY, SIX, stack="dual"),
    "dual, IPv6 first": _static(SIX, MANY, stack="dual"),
    "IPv6": _static(SIX, stack="ipv6"),
    "IPPool": Mode(
        config={"addressPools": [dict(ENTRY)]},
        prepare=_stock_machine_pool,
        ranges=("192.168.50.150-192.168.50.169",),
    ),
}
# The roles of each pool: e, c, w. Those with etcd come first.
ROLE_SPLITS = ("ecw", "ec w", "ecw w", "e c w", "e cw", "ew c", "ec ew", "e ec w")


@dataclass(frozen=True)
class Pool:
    name: str
    roles: str
    quantity: int
    drains: bool = False

    @property
    def is_etcd(self) -> bool:
        return "e" in self.roles


@dataclass(frozen=True)
class Topology:
    distribution: str
    endpoint: str
    addresses: str
    pools: tuple[Pool, ...]

    @property
    def modes(self) -> tuple[Mode, ...]:
        return DISTRIBUTIONS[self.distribution], ENDPOINTS[self.endpoint], ADDRESSES[self.addresses]

    @property
    def drains(self) -> bool:
        return self.pools[0].drains

    @property
    def ranges(self) -> tuple[str, ...]:
        """Where the manager takes addresses of machines from."""
        return self.modes[-1].ranges

    @property
    def claims_each(self) -> int:
        """How many addresses a machine claims."""
        return len(self.modes[-1].config.get("addressPools", ()))

    @property
    def most_machines(self) -> int:
        """More would wait for an address without end."""
        return _SCARCE_COUNT if self.addresses == "scarce" else 100

    @property
    def words(self) -> tuple[str, ...]:
        """What it is, for the table of many lives."""
        roles = " ".join(pool.roles for pool in self.pools)
        kinds = f"endpoint {self.endpoint}", f"addresses {self.addresses}", f"roles {roles}"
        return (
            self.distribution,
            *kinds,
            "drained before deletion" if self.drains else "not drained",
            f"{sum(pool.quantity for pool in self.pools if pool.is_etcd)} etcd members",
        )

    def __str__(self) -> str:
        pools = ", ".join(f"{one.quantity} {one.roles}" for one in self.pools)
        end = "; drained" if self.drains else ""
        return (
            f"{self.distribution}, endpoint {self.endpoint}, addresses {self.addresses}, pools: {pools}{end}"
        )


def draw_topology(rng: Rng) -> Topology:
    def pick(options: Sequence[str] | Mapping[str, Mode]) -> str:
        return list(options)[rng.below(len(options))]

    roles = pick(ROLE_SPLITS).split()
    members = [2, 1] if sum("e" in one for one in roles) > 1 else [(1, 1, 3)[rng.below(3)]]
    pools = [
        Pool(
            f"p{place}",
            one,
            members[place] if "e" in one else 1 + rng.below(2) if "c" in one else rng.below(3),
        )
        for place, one in enumerate(roles)
    ]
    distribution, endpoint = pick(DISTRIBUTIONS), pick(ENDPOINTS)
    if distribution == "k3s" and endpoint == "address" and any(("e" in one) != ("c" in one) for one in roles):
        endpoint = (
            "loadBalancer"  # K3s has one port for joining and for its API, so one address is not enough
        )
    addresses = pick(ADDRESSES)
    if endpoint == "loadBalancer" and "IPv6" in addresses:
        endpoint = "firstServer"  # Harvester's load balancers have IPv4 addresses
    drains = bool(rng.below(2))
    return Topology(distribution, endpoint, addresses, tuple(replace(pool, drains=drains) for pool in pools))


def render(topology: Topology) -> list[Raw]:
    pools = [render_pool(pool) for pool in topology.pools]
    documents = a_cluster(*pools, name=NAME, namespace=NAMESPACE)
    cluster = documents[-1]
    for mode in topology.modes:
        rke = mode.spec.get("rkeConfig", {})
        cluster["spec"] |= {key: value for key, value in mode.spec.items() if key != "rkeConfig"}
        for key, value in rke.items():
            cluster["spec"]["rkeConfig"].setdefault(key, {}).update(value)
        cluster["metadata"].setdefault("annotations", {}).update(mode.annotations)
        for config in documents[:-1]:
            config |= mode.config
    if topology.distribution == "k3s":
        del cluster["spec"]["rkeConfig"]["machineGlobalConfig"]["cni"]
    return documents


def render_pool(pool: Pool) -> Raw:
    words = {"e": "etcd", "c": "control", "w": "worker"}
    roles = " ".join(words[one] for one in pool.roles)
    return a_pool(
        pool.name, pool.quantity, roles, nodeStartupTimeout=STARTUP_TIMEOUT, drainBeforeDelete=pool.drains
    )
