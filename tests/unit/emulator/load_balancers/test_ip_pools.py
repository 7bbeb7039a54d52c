"""Ranges, allocation and selection of IPPools (reference 02 §4.4, §4.5)."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.emulator import kinds
from windrow.emulator.host.networks import Lan, render_network
from windrow.emulator.load_balancers.ip_pools.allocation import (
    NoAddress,
    choose_address,
    recount,
    release,
    reserve,
)
from windrow.emulator.load_balancers.ip_pools.ranges import BadRange, iterate_addresses, read_ranges
from windrow.emulator.load_balancers.ip_pools.selection import Requirement, requirement_of, select_pool
from windrow.emulator.load_balancers.ip_pools.validation import BadPool, check_pool, label_pool, split_network
from windrow.emulator.release import Release
from windrow.kubernetes.objects import Raw, labels_of, new_object

FIRST = "10.0.0.10"
TEN = {"subnet": "10.0.0.0/24", "rangeStart": FIRST, "rangeEnd": "10.0.0.12"}


def span(**fields: str) -> Any:
    return read_ranges([fields])[0]


def why(**fields: str) -> str:
    with pytest.raises(BadRange) as caught:
        span(**fields)
    return str(caught.value)


# --- ranges -------------------------------------------------------------------------------------------------------


def test_a_subnet_alone_gives_all_its_hosts_but_the_gateway():
    found = span(subnet="192.168.1.0/24")

    assert (str(found), str(found.gateway), found.size) == ("192.168.1.1-192.168.1.254", "192.168.1.1", 253)


def test_a_single_address_has_no_gateway():
    found = span(subnet="192.168.1.7/32")

    assert (str(found), found.gateway, found.size) == ("192.168.1.7-192.168.1.7", None, 1)


def test_an_ipv6_subnet_includes_its_last_address():
    found = span(subnet="fd00::/126")

    assert (str(found), found.size) == ("fd00::1-fd00::3", 2)


def test_ends_in_the_wrong_order_are_swapped():
    assert str(span(subnet="10.0.0.0/24", rangeStart="10.0.0.9", rangeEnd="10.0.0.3")) == "10.0.0.3-10.0.0.9"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"subnet": "10.0.0.0"}, "invalid CIDR address: 10.0.0.0, a valid example is 192.168.1.0/24"),
        (
            {"subnet": "10.0.0.0/255.255.255.0"},
            "invalid CIDR address: 10.0.0.0/255.255.255.0, a valid example is 192.168.1.0/24",
        ),
        (
            {"subnet": "10.0.300.0/24"},
            "invalid CIDR address: 10.0.300.0/24, a valid example is 192.168.1.0/24",
        ),
        ({"rangeStart": "x"}, "invalid range start x: invalid IP x"),
        ({"rangeEnd": "10.0.1.1"}, "invalid range end 10.0.1.1: IP 10.0.1.1 is out of subnet 10.0.0.0/24"),
        ({"rangeStart": "10.0.0.0"}, "invalid range start 10.0.0.0: IP 10.0.0.0 is the network address"),
        ({"gateway": "10.0.0.255"}, "invalid gateway 10.0.0.255: IP 10.0.0.255 is the broadcast address"),
    ],
)
def test_an_invalid_range_is_refused_with_harvesters_message(fields: dict[str, str], message: str):
    assert why(**{"subnet": "10.0.0.0/24", **fields}) == message


def test_the_walk_begins_behind_the_last_address_skips_gateways_and_comes_round():
    spans = read_ranges([{"subnet": "10.0.0.0/29"}, {"subnet": "10.0.1.5/32"}])

    assert [str(one)[-3:] for one, _ in iterate_addresses(spans, "10.0.0.4")] == [
        "0.5",
        "0.6",
        "1.5",
        "0.2",
        "0.3",
        "0.4",
    ]
    assert [str(one)[-3:] for one, _ in iterate_addresses(spans, "")][:2] == ["0.2", "0.3"]


# --- allocation --------------------------------------------------------------------------------------------------------


def a_pool(name: str = "pool", *, ranges: list[Raw] | None = None, **selector: Any) -> Raw:
    raw = new_object(
        kinds.IP_POOL, name, spec={"ranges": [TEN] if ranges is None else ranges, "selector": selector}
    )
    label_pool(raw, None)
    if ranges is None:
        recount(raw, read_ranges([TEN]))
    return raw


def take(pool: Raw, holder: str) -> str:
    grant = choose_address(pool, read_ranges(pool["spec"]["ranges"]), holder)
    reserve(pool, grant.address, holder)
    return grant.address


def refused(pool: Raw, holder: str) -> str:
    with pytest.raises(NoAddress) as caught:
        take(pool, holder)
    return str(caught.value)


def test_a_holder_of_an_address_gets_no_second_one():
    pool = a_pool()
    take(pool, "ns/a")

    assert refused(pool, "ns/a") == f"{FIRST} has been allocated to ns/a, duplicate allocation is not allowed"


def test_a_full_pool_names_its_ranges():
    pool = a_pool()
    for name in "abc":
        take(pool, name)

    assert refused(pool, "d") == "no IP addresses available in range set: 10.0.0.10-10.0.0.12"
    assert pool["status"]["available"] == 0


def test_a_former_holder_gets_its_old_address_or_none():
    pool = a_pool()
    take(pool, "a")
    take(pool, "b")
    release(pool, "a")
    for name in ("c", "d"):
        take(pool, name)

    # It was allocated to another holder meanwhile, so its history is gone and `a` is a new holder.
    assert pool["status"]["allocated"][FIRST] == "d"
    assert refused(pool, "a").startswith("no IP addresses available")

    release(pool, "c")
    pool["status"]["allocatedHistory"][FIRST] = "c"
    del pool["status"]["allocatedHistory"]["10.0.0.12"]
    assert (
        refused(pool, "c")
        == f"requested IP address {FIRST} is not available in range set 10.0.0.10-10.0.0.12"
    )


def test_a_remembered_address_outside_of_the_ranges_or_at_the_gateway_is_not_allocated():
    pool = a_pool()
    pool["status"]["allocatedHistory"] = {"10.0.0.99": "a", "10.0.0.1": "b"}
    spans = read_ranges([{**TEN, "rangeStart": "10.0.0.1"}])

    with pytest.raises(NoAddress, match=r"10\.0\.0\.99 not in range set 10\.0\.0\.1-10\.0\.0\.12"):
        choose_address(pool, spans, "a")
    with pytest.raises(NoAddress, match=r"requested ip 10\.0\.0\.1 is subnet's gateway"):
        choose_address(pool, spans, "b")


def test_releasing_twice_counts_once():
    pool = a_pool()
    take(pool, "a")

    release(pool, "a")
    release(pool, "a")

    assert pool["status"]["available"] == 3


def test_new_ranges_drop_history_outside_of_them():
    pool = a_pool()
    take(pool, "a")
    release(pool, "a")
    recount(pool, read_ranges([{"subnet": "10.9.0.0/30"}]))

    assert "allocatedHistory" not in pool["status"]
    assert (pool["status"]["total"], pool["status"]["available"]) == (1, 1)


# --- selection ----------------------------------------------------------------------------------------------------


def scope(project: str = "*", namespace: str = "*", cluster: str = "*") -> Raw:
    return {"project": project, "namespace": namespace, "guestCluster": cluster}


WANTED = Requirement("ns/vlan", "c/p", "ns", "mine")
MINE = scope(cluster="mine")


def chosen(*pools: Raw, loosely: bool = False) -> str:
    found = select_pool(pools, WANTED, loosely=loosely)
    return found["metadata"]["name"] if found else ""


def test_the_network_must_be_equal():
    assert chosen(a_pool(network="ns/vlan", scope=[MINE])) == "pool"
    assert chosen(a_pool(network="", scope=[MINE])) == ""


def test_a_pool_without_scope_matches_nothing():
    assert chosen(a_pool(network="ns/vlan")) == ""


def test_the_highest_priority_wins_and_of_equals_the_last():
    plain = {"network": "ns/vlan", "scope": [MINE]}
    pools = [a_pool("low", priority=1, **plain), a_pool("high", priority=7, **plain)]

    assert chosen(*pools) == chosen(*reversed(pools)) == "high"
    assert chosen(a_pool("first", **plain), a_pool("second", **plain)) == "second"


def test_the_global_pool_is_the_fallback_for_every_network():
    pools = [a_pool("all", network="ns/other", scope=[scope()])]

    assert chosen(*pools) == "all"
    assert chosen(*pools, a_pool("mine", network="ns/vlan", scope=[MINE])) == "mine"


def test_an_empty_project_or_cluster_matches_loosely_only_and_an_empty_namespace_never():
    pool = a_pool(network="ns/vlan", scope=[scope("", "ns", "")])

    assert (chosen(pool), chosen(pool, loosely=True)) == ("", "pool")
    assert chosen(a_pool(network="ns/vlan", scope=[scope("", "", "")]), loosely=True) == ""


def test_the_required_namespace_is_that_of_the_load_balancer_unless_annotated():
    raw = new_object(kinds.LOAD_BALANCER, "web", "here")

    assert str(requirement_of(raw)) == "&{Network: Project: Namespace:here Cluster:}"


def test_loose_matching_came_with_1_7_and_a_build_without_number_is_the_newest():
    assert [Release.of(text).matches_loosely for text in ("v1.6.1", "v1.7.0", "master-abc-head")] == [
        False,
        True,
        True,
    ]


# --- refusals -----------------------------------------------------------------------------------------------------


def objection(pool: Raw, *others: Raw, is_update: bool = False) -> str:
    try:
        check_pool(pool, others, is_update=is_update)
    except BadPool as error:
        return str(error)
    return ""


OTHER = [{"subnet": "10.7.0.0/24"}]


def test_a_pool_needs_a_range():
    assert objection(a_pool(ranges=[])) == "range can't be empty"


def test_ranges_of_one_pool_may_not_overlap():
    one = "{RangeStart:10.0.0.10 RangeEnd:10.0.0.12 Subnet:{IP:10.0.0.0 Mask:ffffff00} Gateway:10.0.0.1}"
    other = "{RangeStart:10.0.0.12 RangeEnd:10.0.0.12 Subnet:{IP:10.0.0.12 Mask:ffffffff} Gateway:<nil>}"

    message = objection(a_pool(ranges=[TEN, {"subnet": "10.0.0.12/32"}]))

    assert message == f"there are overlaps between range {one} and {other}"


def test_ranges_of_two_pools_may_not_overlap():
    message = objection(a_pool(), a_pool("other", ranges=[{"subnet": "10.0.0.11/32"}]))

    assert message.startswith("the ranges [{RangeStart:10.0.0.10 ")
    assert message.endswith("}] overlap with other pools")


def test_an_address_in_use_must_stay_in_the_ranges():
    pool = a_pool()
    take(pool, "a")
    pool["spec"]["ranges"] = OTHER

    assert objection(pool, is_update=True) == f"allocated IP {FIRST} is excluded"


def test_there_is_one_global_pool():
    pools = [a_pool("one", scope=[scope()]), a_pool("two", ranges=OTHER, scope=[scope()])]

    assert labels_of(pools[0])["loadbalancer.harvesterhci.io/global-ip-pool"] == "true"
    assert objection(*pools) == "there is already a global IP pool: two"


def test_scopes_of_one_pool_may_not_overlap():
    message = objection(a_pool(network="ns/vlan", scope=[MINE, scope(namespace="ns")]))

    assert message == (
        "selector {Priority:0 Network:ns/vlan Scope:[{Project:* Namespace:* GuestCluster:mine} "
        "{Project:* Namespace:ns GuestCluster:*}]} is invalid: scope overlaps"
    )


def test_equal_priorities_are_refused_whatever_the_network():
    pools = [
        a_pool("one", network="ns/a", priority=3, scope=[MINE]),
        a_pool("two", ranges=OTHER, network="ns/b", priority=3, scope=[MINE]),
    ]

    assert objection(*pools) == "the priority can't be the same as the pool two"


def test_without_priorities_the_scopes_of_two_pools_on_one_network_may_not_overlap():
    one = a_pool("one", network="ns/a", scope=[MINE])

    assert objection(one, a_pool("two", ranges=OTHER, network="ns/a", scope=[scope(namespace="ns")])) == (
        "scope selector is same as the pool two with priority 0 Project * Namespace * GuestCluster mine, "
        "set a different priority or scope"
    )
    assert not objection(one, a_pool("two", ranges=OTHER, network="ns/b", scope=[MINE]))
    assert not objection(one, a_pool("two", ranges=OTHER, network="ns/a", priority=1, scope=[MINE]))
    assert not objection(one, a_pool("all", ranges=OTHER, scope=[scope()]))


def test_the_vlan_of_the_network_becomes_a_label():
    pool = a_pool(network="ns/net")
    label_pool(pool, render_network("ns", "net", 50, Lan("192.168.50.0/24")))

    assert labels_of(pool)["loadbalancer.harvesterhci.io/vid"] == "50"


def test_a_network_is_written_with_one_slash():
    assert split_network(a_pool(network="ns/net")) == ("ns", "net")
    with pytest.raises(BadPool, match="invalid network net"):
        split_network(a_pool(network="net"))
