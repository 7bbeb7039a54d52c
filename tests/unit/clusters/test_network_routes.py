"""Addresses for machines and load balancers that do not fit to the subnet and gateway of their network on Harvester."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.clusters.builders import SERVER, a_cluster, a_pool
from tests.unit.clusters.test_addresses import NETWORK, an_address_pool

from windrow.clusters.api import names
from windrow.clusters.api.addresses import AddressPool
from windrow.clusters.api.endpoint import ControlPlaneEndpoint, field_of
from windrow.clusters.sources.endpoint_pools import check_address_pools, check_endpoint
from windrow.core.formats.json import dumps
from windrow.harvester.references import Route, read_route
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER
from windrow.harvester.resources import NETWORK as NETWORKS
from windrow.kubernetes.errors import Forbidden
from windrow.machines.port import Problem

ROUTE = {"mode": "manual", "cidr": "10.9.0.0/24", "gateway": "10.9.0.1"}
ANNOTATION = "(annotation network.harvesterhci.io/route)"
SUBNET = f"and network {NETWORK} has the subnet 10.9.0.0/24 {ANNOTATION}"
GATEWAY = f"which is the gateway of network {NETWORK} {ANNOTATION}"


def a_network(route: Any = ROUTE) -> dict[str, Any]:
    text = route if isinstance(route, str) else dumps(route).decode()
    return {"metadata": {"name": "vlan-50", "annotations": {"network.harvesterhci.io/route": text}}}


class Site:
    """A Harvester with one network and one IPPool; a number is the status by which it refuses."""

    def __init__(self, network: Any, ip_pool: Any = None) -> None:
        self.network, self.ip_pool = network, ip_pool

    async def find(self, ref: Any) -> Any:
        if ref.kind in (NETWORKS, IP_POOL, LOAD_BALANCER):
            found = {NETWORKS: self.network, IP_POOL: self.ip_pool}.get(ref.kind)
            if found == 403:
                raise Forbidden(f"{ref.kind.plural} is forbidden", status=403)
            return found
        raise AssertionError(ref)


def told(entry: AddressPool, site: Any) -> list[Problem]:
    pool = replace(a_pool("workers", 1), address_pools=(replace(entry, place="addressPools[0]"),))
    return asyncio.run(check_address_pools(site, pool, "fleet-default"))


def facts(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(one.severity, one.message) for one in problems]


FIELD = "HarvesterConfig fleet-default/nc-workers: addressPools[0].addresses"


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("10.9.0.10-10.9.0.19", []),
        ("10.9.0.2-10.9.0.254", []),
        ("10.8.0.10-10.8.0.19", [("warning", f"{FIELD} has 10.8.0.10-10.8.0.19, {SUBNET}")]),
        ("10.9.0.250-10.9.1.5", [("warning", f"{FIELD} has 10.9.0.250-10.9.1.5, {SUBNET}")]),
        ("10.8.255.250-10.9.0.0", [("warning", f"{FIELD} has 10.8.255.250-10.9.0.0, {SUBNET}")]),
        ("10.9.0.1-10.9.0.19", [("error", f"{FIELD} has 10.9.0.1, {GATEWAY}")]),
        ("fd00::10-fd00::19", []),  # its route has IPv4 alone
    ],
)
def test_addresses_beside_the_subnet_of_their_network_are_a_warning_and_its_gateway_is_refused(
    written: str, found: list[tuple[str, str]]
) -> None:
    problems = told(an_address_pool(written), Site(a_network()))

    assert facts(problems) == found
    assert {one.field for one in problems} <= {"addressPools[0].addresses"}
    assert all("excludedAddresses" in one.hint for one in problems if one.severity == "error")
    assert all("correct the network's route" in one.hint for one in problems if one.severity == "warning")


@pytest.mark.parametrize(
    "network",
    [None, 403, {"metadata": {"name": "vlan-50"}}, a_network(""), a_network("{"), a_network("[1]"), a_network({})],
    ids=["absent", "forbidden", "no annotation", "empty", "no JSON", "a list", "nothing in it"],
)  # fmt: skip
def test_a_network_that_says_no_subnet_is_nothing_to_compare_with(network: Any) -> None:
    assert told(an_address_pool("10.9.0.1-10.9.0.19"), Site(network)) == []


def test_of_a_route_what_cannot_be_read_is_left_out() -> None:
    assert read_route(a_network({"cidr": "10.9.0.7/24", "gateway": "<nil>"})).gateway is None
    assert str(read_route(a_network({"cidr": "10.9.0.7/24"})).subnet) == "10.9.0.0/24"
    assert read_route(a_network({"cidr": "", "gateway": "10.9.0.1"})).subnet is None
    assert read_route(a_network({"cidr": 5, "gateway": ["x"]})) == Route()


def ip_pool(**ends: str) -> dict[str, Any]:
    ranges = [{"subnet": "10.0.0.0/8", **ends}]
    return {
        "metadata": {"name": "machines"},
        "spec": {"ranges": ranges, "selector": {"network": NETWORK}},
        "status": {"available": 9},
    }


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        ({"rangeStart": "10.9.0.10", "rangeEnd": "10.9.0.19"}, []),
        ({"rangeStart": "10.9.0.1", "rangeEnd": "10.9.0.9", "gateway": "10.9.0.1"}, []),
        ({"rangeStart": "10.9.0.1", "rangeEnd": "10.9.0.9"}, [("error", f"10.9.0.1, {GATEWAY}")]),
        ({"rangeStart": "10.7.0.1", "rangeEnd": "10.7.0.9"}, [("warning", f"10.7.0.1-10.7.0.9, {SUBNET}")]),
    ],
)
def test_the_ranges_of_an_ip_pool_are_compared_likewise(
    ends: dict[str, str], found: list[tuple[str, str]]
) -> None:
    site: Any = Site(a_network(), ip_pool(**ends))
    entry = AddressPool(NETWORK, (), 0, ip_pool="machines", written="IPPool machines")

    where = "HarvesterConfig fleet-default/nc-workers: addressPools[0].ipPool has IPPool machines, with"
    assert facts(told(entry, site)) == [(severity, f"{where} {text}") for severity, text in found]

    endpoint = ControlPlaneEndpoint("loadBalancer", pool="machines")
    cluster = a_cluster(a_pool("servers", 1, SERVER), control_plane_endpoint=endpoint)
    where = f"{field_of(names.ENDPOINT_IP_POOL)}: IPPool machines has"
    problems = asyncio.run(check_endpoint(site, cluster))
    assert facts(problems) == [(severity, f"{where} {text}") for severity, text in found]
