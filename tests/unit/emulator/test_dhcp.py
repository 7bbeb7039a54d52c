"""Addresses on the simulated VLANs."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as some

from windrow.emulator.guest_os.hardware import Nic
from windrow.emulator.host.networks import (
    DhcpServer,
    Lan,
    Vlans,
    label_network,
    read_lan,
    render_network,
    vlan_of,
)

LAN = Lan("192.168.50.0/24")


def mac(number: int) -> str:
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


def test_the_same_mac_gets_the_same_address_again():
    server = DhcpServer(LAN)
    first = server.lease("02:00:00:00:00:0A")
    server.lease(mac(2))

    assert first == server.lease("02:00:00:00:00:0a")
    assert (first.gateway, first.prefix) == ("192.168.50.1", 24)


def test_a_forgotten_address_is_the_last_to_be_given_again():
    server = DhcpServer(LAN)
    first = server.lease(mac(1))
    server.release(mac(1))

    assert first.address != server.lease(mac(1)).address


@given(some.sets(some.integers(0, 5000), max_size=300), some.integers(22, 29))
def test_no_two_machines_share_an_address_and_all_lie_in_the_range(machines, prefix):
    lan = Lan(f"10.0.0.0/{prefix}")
    server = DhcpServer(lan)

    given_out = [lease.address for number in machines if (lease := server.lease(mac(number))) is not None]

    assert len(given_out) == len(set(given_out))
    network = IPv4Network(lan.cidr)
    ends = {network.network_address, network.broadcast_address, IPv4Address(lan.router)}
    assert all(IPv4Address(address) in network and IPv4Address(address) not in ends for address in given_out)


@pytest.mark.parametrize(
    ("prefix", "address"),
    [
        ("fd00:50::/64", "fd00:50::5054:ff:feab:cdef"),
        ("", ""),
        ("fd00:50::/48", ""),  # machines make addresses in a /64 alone
        ("10.0.0.0/24", ""),
        ("fd00", ""),
    ],
)
def test_a_router_of_ipv6_gives_an_address_made_of_the_mac(prefix, address):
    nad = render_network("default", "lan", 0, Lan(LAN.cidr, ipv6_prefix=prefix))
    vlans = Vlans({("default", "lan"): nad})
    assert vlans.autoconfigure(Nic("enp1s0", "52:54:00:AB:cd:ef", "default/lan")) == address
    assert vlans.autoconfigure(Nic("enp1s0", "52:54:00:AB:cd:ef", "")) == ""
    assert vlans.autoconfigure(Nic("enp1s0", "52:54:00:AB:cd:ef", "default/other")) == ""


def test_a_full_range_gives_nothing():
    server = DhcpServer(Lan("10.0.0.0/29"))
    leases = [server.lease(mac(number)) for number in range(10)]

    assert leases[-1] is None
    assert any(leases)


def _vlans(*nads, **rest):
    return Vlans({("ns", nad["metadata"]["name"]): nad for nad in nads}, **rest)


def _nic(network="ns/net", number=1):
    return Nic("nic-0", mac(number), network)


def test_networks_of_one_vlan_share_their_server():
    segments = _vlans(render_network("ns", "net", 50, LAN), render_network("ns", "twin", 50, LAN))

    assert segments.lease(_nic()) == segments.lease(_nic("ns/twin"))
    assert segments.lease(_nic(number=1)) != segments.lease(_nic("ns/twin", number=2))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda nad: nad["metadata"]["labels"].update({"network.harvesterhci.io/ready": "false"}),
        lambda nad: nad["metadata"].pop("annotations"),
    ],
)
def test_a_network_not_ready_or_without_subnet_has_no_dhcp(spoil):
    nad = render_network("ns", "net", 50, LAN)
    spoil(nad)

    assert _vlans(nad).lease(_nic()) is None


def test_a_network_that_was_not_ready_keeps_its_leases():
    nad = render_network("ns", "net", 50, LAN)
    segments = _vlans(nad)
    before = segments.lease(_nic())
    nad["metadata"]["labels"]["network.harvesterhci.io/ready"] = "false"
    assert segments.lease(_nic()) is None

    nad["metadata"]["labels"]["network.harvesterhci.io/ready"] = "true"
    assert before == segments.lease(_nic())


def test_leases_of_deleted_machines_are_released_when_the_range_is_exhausted():
    nad = render_network("ns", "net", 50, Lan("10.0.0.0/29"))
    alive = set()
    segments = _vlans(nad, is_wanted=alive.__contains__)
    while segments.find_dhcp_server("ns/net").lease(mac(len(segments.find_dhcp_server("ns/net").leases()))):
        pass
    alive.add(mac(0))

    assert segments.lease(_nic(number=99)) is not None
    assert mac(0) in segments.find_dhcp_server("ns/net").leases()


def test_the_pod_network_shows_the_inside_of_masquerade():
    assert _vlans().lease(_nic("")).address == "10.0.2.2"


def test_labels_follow_the_config():
    nad = render_network("ns", "net", 7, LAN, "storage")
    nad["metadata"]["labels"] = {}
    label_network(nad)

    assert nad["metadata"]["labels"] == {
        "network.harvesterhci.io/clusternetwork": "storage",
        "network.harvesterhci.io/type": "L2VlanNetwork",
        "network.harvesterhci.io/vlan-id": "7",
        "network.harvesterhci.io/ready": "true",
    }
    assert vlan_of(nad) == ("storage", 7)


def test_a_network_without_a_vlan_loses_the_label_of_one():
    nad = render_network("ns", "net", 7, LAN)
    nad["spec"] = render_network("ns", "net", 0, LAN)["spec"]
    label_network(nad, is_ready=False)

    assert nad["metadata"]["labels"] == {
        "network.harvesterhci.io/clusternetwork": "mgmt",
        "network.harvesterhci.io/type": "UntaggedNetwork",
        "network.harvesterhci.io/ready": "false",
    }


def test_a_route_that_makes_no_sense_is_no_subnet():
    nad = render_network("ns", "net", 0, LAN)
    for route in ("", "{", "[]", '{"cidr":"x"}', '{"cidr":"10.0.0.1/32"}'):
        nad["metadata"]["annotations"]["network.harvesterhci.io/route"] = route
        assert read_lan(nad) is None


def a_nic(network: str, number: int) -> Nic:
    return Nic("nic-0", mac(number), network)


def test_the_network_says_why_there_is_no_lease():
    small = render_network("ns", "small", 50, Lan("10.0.0.0/29"))
    without = render_network("ns", "without", 60, Lan("10.1.0.0/24"))
    del without["metadata"]["annotations"]
    broken = render_network("ns", "broken", 70, Lan("10.2.0.0/24"))
    label_network(broken, is_ready=False)
    vlans = Vlans({("ns", "small"): small, ("ns", "without"): without, ("ns", "broken"): broken})
    while vlans.lease(
        a_nic("ns/small", len(vlans.servers()[vlan_of(small)].leases()) if vlans.servers() else 0)
    ):
        pass

    assert vlans.explain_no_lease(a_nic("ns/small", 99)) == (
        "the DHCP server of ns/small has leased all 5 addresses of 10.0.0.0/29; "
        "give the network a larger subnet (--inventory)"
    )
    assert "ns/without has no subnet (annotation network.harvesterhci.io/route)" in vlans.explain_no_lease(
        a_nic("ns/without", 1)
    )
    assert "ns/broken is not ready" in vlans.explain_no_lease(a_nic("ns/broken", 1))
    assert "ns/absent has no subnet" in vlans.explain_no_lease(a_nic("ns/absent", 1))


def test_a_static_address_is_used_by_one_card_of_a_vlan_until_its_vm_is_gone():
    machines = {mac(1), mac(2), mac(3)}
    segments = _vlans(
        render_network("ns", "net", 50, LAN),
        render_network("ns", "twin", 50, LAN),
        render_network("ns", "other", 60, LAN),
        is_wanted=lambda found: found in machines,
    )
    leased = segments.lease(_nic(number=3))
    assert leased is not None

    assert segments.use(_nic(), "fd00::5") == ""
    assert segments.use(_nic(), "fd00::5") == ""
    assert segments.use(_nic("ns/twin", number=2), "fd00::5") == mac(1)
    assert segments.use(_nic("ns/other", number=2), "fd00::5") == ""
    assert segments.use(_nic(number=2), leased.address) == mac(3)
    machines.discard(mac(1))
    assert segments.use(_nic("ns/twin", number=2), "fd00::5") == ""
    assert segments.use(_nic("elsewhere"), "fd00::5") == ""
