"""What the addresses of a machine become in the options of its driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windrow.core.formats.yaml import load
from windrow.emulator.guest_os.cloudinit.network_data import read_network_data
from windrow.machines.port import MachineSpec, StaticAddress
from windrow.machines.static_addresses import derive_mac, driver_options, find_pool_problems

CARDS = {
    "interfaces": [
        {"networkName": "vlan-50"},
        {"networkName": "default/storage", "macAddress": "02:00:00:00:00:07"},
    ]
}
FOUR = StaticAddress("default/vlan-50", "10.9.0.5", 24, "10.9.0.1", ("10.9.0.2",))
SIX = StaticAddress("default/vlan-50", "fd00:9::5", 64, "fd00:9::1", ("10.9.0.2", "fd00:9::2"))


def a_spec(*addresses: StaticAddress, **options: Any) -> MachineSpec:
    given = {"networkInfo": CARDS, "addressPools": [{"network": "vlan-50"}], "cpuCount": "2", **options}
    return MachineSpec("m", "uid-m", "c", "uid-c", "ns:cc", given, "", addresses=addresses)


def test_a_driver_is_given_no_address_pools_and_without_addresses_nothing_else_changes():
    assert driver_options(a_spec()) == {"networkInfo": CARDS, "cpuCount": "2"}


def test_each_card_is_found_by_its_mac_address_and_has_both_families():
    options = driver_options(a_spec(FOUR, SIX))

    first = derive_mac("uid-m", 0)
    assert [one["macAddress"] for one in options["networkInfo"]["interfaces"]] == [first, "02:00:00:00:00:07"]
    assert load(options["networkData"]) == {
        "version": 2,
        "ethernets": {
            "nic-0": {
                "match": {"macaddress": first},
                "dhcp4": False,
                "dhcp6": False,
                "accept-ra": False,
                "addresses": ["10.9.0.5/24", "fd00:9::5/64"],
                "routes": [{"to": "0.0.0.0/0", "via": "10.9.0.1"}, {"to": "::/0", "via": "fd00:9::1"}],
                "nameservers": {"addresses": ["10.9.0.2", "fd00:9::2"]},
            },
            "nic-1": {
                "match": {"macaddress": "02:00:00:00:00:07"},
                "dhcp4": True,
                "dhcp4-overrides": {"route-metric": 1000},
            },
        },
    }


@pytest.mark.parametrize(("addresses", "refuses"), [((FOUR,), False), ((SIX,), True), ((FOUR, SIX), True)])
def test_a_card_with_an_ipv6_address_takes_no_second_one_from_the_router(
    addresses: tuple[StaticAddress, ...], refuses: bool
) -> None:
    card = load(driver_options(a_spec(*addresses))["networkData"])["ethernets"]["nic-0"]
    assert card.get("accept-ra", True) is not refuses


def test_of_two_cards_on_one_network_the_first_has_the_address_and_the_other_dhcp() -> None:
    cards = {"interfaces": [{"networkName": "vlan-50"}, {"networkName": "default/vlan-50"}]}
    found = load(driver_options(a_spec(FOUR, networkInfo=cards))["networkData"])["ethernets"]
    assert (found["nic-0"]["addresses"], found["nic-0"]["dhcp4"]) == (["10.9.0.5/24"], False)
    assert ("addresses" in found["nic-1"], found["nic-1"]["dhcp4"]) == (False, True)


def test_an_address_without_gateway_or_name_servers_has_no_route_and_no_name_servers() -> None:
    bare = StaticAddress("default/vlan-50", "10.9.0.5", 24, "", ())
    card = load(driver_options(a_spec(bare))["networkData"])["ethernets"]["nic-0"]
    assert card.keys() == {"match", "dhcp4", "dhcp6", "addresses"}


def test_machines_that_have_no_uid_yet_have_the_mac_addresses_of_their_names() -> None:
    def first_mac(name: str) -> str:
        options = driver_options(replace(a_spec(FOUR), name=name, machine_uid=""))
        return str(options["networkInfo"]["interfaces"][0]["macAddress"])

    assert first_mac("m") == derive_mac("m", 0) != first_mac("n")


def test_the_emulated_guest_reads_it_as_it_is_meant():
    first, second = read_network_data(driver_options(a_spec(FOUR, SIX))["networkData"]).interfaces or ()
    assert (first.addresses, first.gateway, first.dhcp) == (
        ("10.9.0.5/24", "fd00:9::5/64"),
        "10.9.0.1",
        False,
    )
    assert (second.mac, second.dhcp) == ("02:00:00:00:00:07", True)


def test_the_older_single_network_becomes_a_list_of_one():
    spec = a_spec(FOUR, networkInfo=None, networkName="vlan-50", networkModel="e1000")
    (card,) = driver_options(spec)["networkInfo"]["interfaces"]
    assert (card["networkName"], card["model"]) == ("vlan-50", "e1000")
    assert "networkName" not in driver_options(spec)


def test_a_mac_address_is_local_and_another_for_each_machine_and_card():
    made = {derive_mac(uid, place) for uid in ("a", "b") for place in (0, 1)}
    assert len(made) == 4
    assert all(mac.startswith("02:") and len(mac) == 17 for mac in made)


def test_an_entry_without_an_interface_is_refused_and_one_that_is_not_the_first_is_warned_of():
    def found(*networks: str) -> list[tuple[str, str]]:
        pools = [
            {"network": network, "gateway": "10.9.0.1", "nameservers": ["10.9.0.1"]} for network in networks
        ]
        problems = find_pool_problems({"networkInfo": CARDS, "addressPools": pools})
        return [(one.severity, one.field) for one in problems]

    assert found("vlan-50", "storage") == []
    assert found("elsewhere") == [("error", "addressPools[0].network")]
    assert found("storage", "vlan-50") == [("warning", "addressPools[0].network")]


def test_machines_without_dhcp_are_warned_of_where_no_entry_has_a_gateway_or_name_servers():
    def found(*pools: dict[str, Any]) -> list[str]:
        return [str(one) for one in find_pool_problems({"networkInfo": CARDS, "addressPools": list(pools)})]

    bare, storage = {"network": "vlan-50"}, {"network": "storage"}
    assert found(bare, storage) == [
        "no entry of addressPools has gateway, and no interface has DHCP, so machines reach their own subnets only; write gateway "
        "into one: the router of the network that leads to others",
        "no entry of addressPools has nameservers, and no interface has DHCP, so machines resolve no names; write nameservers into "
        "one: the name servers of the network",
    ]
    assert found(bare) == []  # what it has not is learnt by DHCP on the other
    assert found({**bare, "gateway": "10.9.0.1"}, {**storage, "nameservers": ["10.9.0.1"]}) == []
    fields = [
        one.field for one in find_pool_problems({"networkInfo": CARDS, "addressPools": [bare, storage]})
    ]
    assert fields == ["addressPools[0].gateway", "addressPools[0].nameservers"]


@pytest.mark.parametrize("pools", [None, [], "vlan-50", [None], [{}]])
def test_without_a_named_network_there_is_nothing_to_find_between_pools_and_cards(pools: Any) -> None:
    assert find_pool_problems({"networkInfo": CARDS, "addressPools": pools}) == []
