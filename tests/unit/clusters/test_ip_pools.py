"""IPPools of Harvester as addresses of machines: what is read of one, which may be used, and what a machine waits for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.client.test_informer import Server

from windrow.clusters.api.addresses import (
    AddressPool,
    IPPool,
    find_ip_pool_fault,
    read_address_pools,
    read_ip_pool,
    resolve_ip_pools,
)
from windrow.clusters.api.fields import ProblemCollector
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.plan.actions import ClaimAddresses
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.sources.endpoint_pools import check_address_pools
from windrow.clusters.sources.harvester_objects import HarvesterObjects
from windrow.core.formats.cidr import Range
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.harvester.resources import IP_POOL
from windrow.harvester.resources import NETWORK as NETWORKS
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.requests import Reply

from .builders import a_machine, look, of_kind, some, unordered
from .test_addresses import NETWORK, SERVERS, WORKERS, the_cluster

ENTRY = {"network": "vlan-50", "ipPool": "machines"}
SPAN = {"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.10", "rangeEnd": "10.9.0.19", "gateway": "10.9.0.1"}
WANT = AddressPool(NETWORK, (), 0, place="addressPools[0]", ip_pool="machines", is_of_node=True)


def a_raw_pool(*ranges: Any, selector: Any = None, labels: Any = None, allocated: Any = None) -> Any:
    return {
        "metadata": {"name": "machines", "labels": labels},
        "spec": {"ranges": list(ranges), "selector": selector},
        "status": {"allocated": allocated},
    }


POOL = read_ip_pool(a_raw_pool(SPAN))


def read(*entries: Any) -> tuple[tuple[AddressPool, ...], list[str]]:
    problems = ProblemCollector()
    found = read_address_pools({"addressPools": list(entries)}, "default", problems)
    return found, [one.message for one in problems.found]


def resolved(*entries: AddressPool, pool: IPPool = POOL) -> tuple[AddressPool, ...]:
    return resolve_ip_pools(entries, {pool.name: pool})


# -- what is read ------------------------------------------------------------------------------------------------


def test_an_ip_pool_is_read_with_its_ranges_and_with_who_has_addresses_of_it():
    raw = a_raw_pool(
        SPAN, selector={"network": "default/vlan-50"}, allocated={"10.9.0.12": "b/y", "10.9.0.11": "a/x"}
    )
    assert read_ip_pool(raw) == IPPool(
        "machines",
        (Range.parse("10.9.0.10-10.9.0.19"),),
        POOL.subnets,
        ("10.9.0.1",),
        "default/vlan-50",
        False,
        (("10.9.0.11", "a/x"), ("10.9.0.12", "b/y")),
    )
    assert list(map(str, POOL.subnets)) == ["10.9.0.0/24"]


def test_what_is_allocated_and_is_no_address_is_left_out():
    keys = ("10.9.0.12", "router", "", "10.9.0.300", "10.9.0.13/24", "9" * 10_000, "FD00:9::0A")

    pool = read_ip_pool(a_raw_pool(SPAN, allocated=dict.fromkeys(keys, "b/y")))

    assert pool.allocated == (("10.9.0.12", "b/y"), ("fd00:9::a", "b/y"))
    for other in (["10.9.0.12"], "10.9.0.12", None):
        assert read_ip_pool(a_raw_pool(SPAN) | {"status": {"allocated": other}}).allocated == ()


@pytest.mark.parametrize(
    ("span", "ranges"),
    [
        ({"subnet": "10.9.0.0/29"}, ["10.9.0.1-10.9.0.6"]),
        ({"subnet": "10.9.0.7/32"}, ["10.9.0.7"]),
        ({"subnet": "fd00:9::/126"}, ["fd00:9::1-fd00:9::3"]),
        ({"subnet": "10.9.0.0/29", "rangeStart": "10.9.0.5"}, ["10.9.0.5-10.9.0.6"]),
        ({"subnet": "10.9.0.0/29", "rangeStart": "10.9.0.5", "rangeEnd": "10.9.0.2"}, ["10.9.0.2-10.9.0.5"]),
        ({"subnet": "10.9.0.0/29", "rangeEnd": "10.9.1.2"}, []),
        ({"subnet": "10.9.0.0/29", "rangeStart": "10.8.0.2"}, []),
        ({"subnet": "10.9.0.0/29", "rangeStart": "fd00::1"}, []),
        ({"subnet": "10.9.0.0/29", "gateway": "router"}, []),
        ({"subnet": "everything"}, []),
        ({}, []),
    ],
)
def test_ends_that_are_not_written_are_those_of_the_subnet_and_nonsense_is_no_range(span: Any, ranges: Any):
    assert list(map(str, read_ip_pool(a_raw_pool(span)).ranges)) == ranges


def test_an_object_of_another_shape_is_a_pool_without_ranges():
    assert read_ip_pool({"metadata": {"name": "machines"}}) == IPPool("machines")


# -- which may be used -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (a_raw_pool(SPAN), ""),
        (None, "there is no IPPool machines on Harvester"),
        (a_raw_pool(), "IPPool machines has no range"),
        (a_raw_pool(SPAN, {"subnet": "10.8.0.0/24"}), "IPPool machines has ranges of several subnets"),
        (a_raw_pool(SPAN, {**SPAN, "rangeStart": "10.9.0.30", "rangeEnd": "10.9.0.31", "gateway": "10.9.0.2"}), "several subnets"),
        (a_raw_pool(SPAN, selector={"scope": [{"namespace": "a"}]}), "is for load balancers: its selector has a scope"),
        (a_raw_pool(SPAN, labels={"loadbalancer.harvesterhci.io/global-ip-pool": "true"}), "is for load balancers"),
        (a_raw_pool(SPAN, labels={"loadbalancer.harvesterhci.io/global-ip-pool": "false"}, selector={"scope": []}), ""),
        (a_raw_pool(SPAN, selector={"network": NETWORK}), ""),
        (a_raw_pool(SPAN, selector={"network": "default/other"}), "IPPool machines is of network default/other, and addressPools[0] is on default/vlan-50"),
        (a_raw_pool({**SPAN, "rangeStart": "10.9.0.1", "rangeEnd": "10.9.0.1"}), "IPPool machines has no address that a machine can have"),
    ],
)  # fmt: skip
def test_a_pool_that_machines_cannot_share_safely_is_refused(raw: Any, fault: str):
    pool = read_ip_pool(raw) if raw is not None else None
    found = find_ip_pool_fault(WANT, pool)
    assert bool(found) == bool(fault)
    assert fault in (found or ("",))[0]
    (entry,) = resolve_ip_pools([WANT], {pool.name: pool} if pool else {})
    assert bool(entry.ranges) == (not fault)
    assert fault in entry.fault


def test_an_entry_has_the_ranges_prefix_and_gateway_of_its_pool_without_what_no_machine_can_have():
    wide = read_ip_pool(a_raw_pool({"subnet": "10.9.0.0/28", "gateway": "10.9.0.3"}))
    (entry,) = resolved(replace(WANT, excluded=(Range.parse("10.9.0.7-10.9.0.8"),)), pool=wide)
    assert list(map(str, entry.ranges)) == ["10.9.0.1-10.9.0.2", "10.9.0.4-10.9.0.6", "10.9.0.9-10.9.0.14"]
    assert (entry.version, entry.prefix, entry.gateway, entry.fault) == (4, 28, "10.9.0.3", "")


def test_of_two_entries_of_one_family_the_first_has_the_gateway_and_on_one_network_the_second_has_none():
    storage = replace(WANT, network="default/storage")
    assert [one.gateway for one in resolved(WANT, storage)] == ["10.9.0.1", ""]
    first, second = resolved(WANT, WANT)
    assert first.ranges
    assert not second.ranges
    assert "another entry has IPv4 addresses of network default/vlan-50" in second.fault
    inner = AddressPool("default/storage", (Range.parse("10.7.0.5"),), 24)
    assert [one.gateway for one in resolved(inner, WANT)] == ["", "10.9.0.1"]
    six = AddressPool(NETWORK, (Range.parse("fd00::5"),), 64, gateway="fd00::1")
    assert [one.gateway for one in resolved(six, WANT)] == ["fd00::1", "10.9.0.1"]


def test_what_is_written_after_an_entry_of_a_pool_goes_before_what_the_pool_has():
    """Of two gateways a machine has two default routes, and with two addresses on one network nothing tells them apart."""
    storage = AddressPool("default/storage", (Range.parse("10.7.0.5"),), 24, gateway="10.7.0.1")
    assert [one.gateway for one in resolved(WANT, storage)] == ["", "10.7.0.1"]
    first, second = resolved(WANT, replace(storage, network=NETWORK))
    assert "another entry has IPv4 addresses of network default/vlan-50" in first.fault
    assert (first.ranges, second.ranges) == ((), storage.ranges)
    six = AddressPool("default/storage", (Range.parse("fd00::5"),), 64, gateway="fd00::1")
    assert [one.gateway for one in resolved(WANT, six)] == ["10.9.0.1", "fd00::1"]


def test_before_the_pools_were_read_an_entry_says_so():
    (entry,), problems = read(ENTRY)
    assert problems == []
    assert resolve_ip_pools([entry], None) == (entry,)
    assert entry.fault == "IPPool machines of Harvester was not read yet"
    assert (entry.version, entry.size, entry.network, entry.is_of_node) == (0, 0, NETWORK, True)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"addresses": ["10.9.0.5"]}, "addressPools[0].addresses is set, and so is ipPool, which has it"),
        ({"prefix": 24}, "addressPools[0].prefix is set, and so is ipPool, which has it"),
        ({"gateway": "10.9.0.1"}, "addressPools[0].gateway is set, and so is ipPool, which has it"),
        ({"ipPool": "Machines!"}, "addressPools[0].ipPool is 'Machines!', which is no name of an IPPool"),
        ({"ipPool": 7}, "addressPools[0].ipPool"),
        ({"nameservers": ["dns"]}, "addressPools[0].nameservers has 'dns', which is no address"),
        ({"network": ""}, "addressPools[0].network is not set"),
    ],
)
def test_an_entry_with_a_fault_is_refused_with_the_path_of_the_field(change: Any, fault: str):
    found, problems = read({**ENTRY, **change})
    assert found == ()
    assert any(fault in one for one in problems), problems


def test_an_entry_keeps_what_is_its_own():
    (entry,), _ = read({**ENTRY, "excludedAddresses": ["10.9.0.12"], "nameservers": ["10.9.0.53"]})
    assert entry.excluded == (Range.parse("10.9.0.12"),)
    assert entry.nameservers == ("10.9.0.53",)
    assert entry.written == "IPPool machines"


# -- what is planned, and asked before ---------------------------------------------------------------------------


def test_a_machine_waits_for_a_pool_that_has_no_ranges_and_says_why():
    pool = replace(WORKERS, address_pools=resolve_ip_pools([WANT], {}))
    cluster = replace(the_cluster(), pools=(SERVERS, pool))
    plan = plan_cluster(look(cluster, [*some("s", 1, SERVERS), unordered(a_machine("w1", pool))]))

    assert not of_kind(plan, ClaimAddresses)
    assert plan.diagnoses["w1"].waiting_for == (
        f"an address of network {NETWORK}: there is no IPPool machines on Harvester (create it there, or write the name of one that "
        "exists)"
    )
    pool = replace(WORKERS, address_pools=resolved(WANT))
    cluster = replace(the_cluster(), pools=(SERVERS, pool))
    plan = plan_cluster(look(cluster, [*some("s", 1, SERVERS), unordered(a_machine("w1", pool))]))
    assert of_kind(plan, ClaimAddresses)


def test_the_ip_pools_are_known_once_they_were_listed_and_no_longer_than_a_cluster_names_one():
    server = Server()
    listed = {**a_raw_pool(SPAN), "metadata": {"name": "machines", "resourceVersion": "7"}}
    server.answer = Reply(200, dumps({"metadata": {"resourceVersion": "7"}, "items": [listed]}))
    known: list[Any] = []

    async def whole() -> None:
        clients: Any = SimpleNamespace(
            get_client=lambda *_: SimpleNamespace(transport=server), get_config=lambda *_: None
        )
        objects = HarvesterObjects(clients, LoopClock(), Rng(1), lambda *_: None, lambda _: None)
        async with asyncio.TaskGroup() as group:
            cluster = CLUSTER.ref("prod", "ns")
            objects.watch_ip_pools(group, cluster, frozenset({"ns:cc"}))
            known.append(objects.find_ip_pools("ns:cc", "ns"))
            await asyncio.sleep(5)
            known.append(objects.find_ip_pools("ns:cc", "ns"))
            known.append(objects.find_ip_pools("ns:cc", "other"))
            assert objects.list_ip_pool_users() == {cluster}
            objects.watch_ip_pools(group, cluster, frozenset())
            known.append(objects.find_ip_pools("ns:cc", "ns"))
            assert objects.list_ip_pool_users() == frozenset()

    run_driven(whole())
    assert known == [None, {"machines": POOL}, None, None]


class Site:
    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def find(self, ref: Any) -> Any:
        if ref.kind == NETWORKS:
            return None
        assert ref == IP_POOL.ref("machines")
        if self.raw == 403:
            raise Forbidden("ippools is forbidden", status=403)
        return self.raw


@pytest.mark.parametrize(
    ("raw", "fault"),
    [(a_raw_pool(SPAN), ""), (None, "there is no IPPool machines"), (a_raw_pool(), "has no range"), (403, "is forbidden")],
)  # fmt: skip
def test_the_preflight_asks_for_each_pool_that_is_named(raw: Any, fault: str):
    other = AddressPool(NETWORK, (Range.parse("10.9.0.5"),), 24)
    pool = replace(WORKERS, address_pools=(other, replace(WANT, place="addressPools[1]")))
    site: Any = Site(raw)
    problems = asyncio.run(check_address_pools(site, pool, "fleet-default"))

    assert [fault in one.message for one in problems] == [True] * bool(fault)
    assert [one.field for one in problems] == ["addressPools[1].ipPool"] * bool(fault)
    named = "HarvesterConfig fleet-default/nc-workers: addressPools[1].ipPool: "
    assert all(one.message.startswith(named) for one in problems)
