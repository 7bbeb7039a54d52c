"""Where the addresses of the demo's service come from."""

from __future__ import annotations

from ipaddress import IPv4Network

from windrow.demo.service_scenarios import addresses_of_pool, find_free_block

LAN = IPv4Network("192.168.50.0/24")


def test_the_block_is_at_the_top_of_the_network_below_the_broadcast_address():
    assert find_free_block(LAN, []) == tuple(f"192.168.50.{last}" for last in range(251, 255))


def test_a_block_with_a_used_address_is_passed_over():
    assert find_free_block(LAN, ["192.168.50.254", "192.168.50.250"])[-1] == "192.168.50.246"


def test_a_network_without_room_gives_none():
    assert find_free_block(IPv4Network("10.0.0.0/30"), ["10.0.0.2"]) == ()


def test_the_addresses_of_a_pool_are_those_of_its_range():
    pool = {"spec": {"ranges": [{"rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.11"}]}}

    assert addresses_of_pool(pool) == ("10.0.0.9", "10.0.0.10", "10.0.0.11")
