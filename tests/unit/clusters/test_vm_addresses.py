"""Which addresses a VM has: those that its network data tells it to have, and those that its guest agent reports."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.cloudinit.network_data import list_static_addresses, read_cards
from windrow.clusters.vm_addresses import NetworkAddress, configured_addresses, reported_addresses

CARDS = (("nic-0", "02:aa:00:00:00:01", "default/vlan-50"), ("nic-1", "02:aa:00:00:00:02", "storage"))
TWO_CARDS = """\
version: 2
ethernets:
  nic-0:
    match: {macaddress: "02:AA:00:00:00:01"}
    addresses: [192.168.50.10/24, "fd00:50::0010/64"]
    nameservers: {addresses: [192.168.50.1]}
    routes: [{to: 0.0.0.0/0, via: 192.168.50.1}]
  nic-1:
    match: {macaddress: "02:aa:00:00:00:02"}
    addresses: [10.77.0.10/24]
"""


def a_vm(inline: str = "", source: str = "cloudInitNoCloud", cards: Any = CARDS) -> dict[str, Any]:
    spec = {
        "domain": {"devices": {"interfaces": [{"name": name, "macAddress": mac} for name, mac, _ in cards]}},
        "networks": [{"name": name, "multus": {"networkName": network}} for name, _, network in cards],
        "volumes": [{"name": "disk-0"}, {"name": "cloudinitdisk", source: {"networkData": inline}}],
    }
    return {"metadata": {"namespace": "fleet", "name": "w1"}, "spec": {"template": {"spec": spec}}}


def test_a_vm_is_told_the_addresses_of_its_network_data_each_on_the_network_of_its_card():
    assert configured_addresses(a_vm(TWO_CARDS)) == (
        ("default/vlan-50", "192.168.50.10"),
        ("default/vlan-50", "fd00:50::10"),
        ("fleet/storage", "10.77.0.10"),
    )
    assert configured_addresses(a_vm(TWO_CARDS, "cloudInitConfigDrive")) == configured_addresses(
        a_vm(TWO_CARDS)
    )


def test_network_data_in_the_secret_counts_as_well():
    assert configured_addresses(a_vm()) == ()
    assert configured_addresses(a_vm(), TWO_CARDS) == configured_addresses(a_vm(TWO_CARDS))


@pytest.mark.parametrize(
    "text",
    [
        "version: 2\nethernets: {enp1s0: {addresses: [10.9.0.7/24]}}",
        'version: 2\nethernets: {a: {match: {macaddress: "02:bb:00:00:00:09"}, addresses: [10.9.0.7/24]}}',
        "network:\n  version: 1\n  config: [{type: physical, subnets: [{type: static, address: 10.9.0.7/24}]}]",
        "version: 2\nbonds: {bond0: {addresses: [10.9.0.7/24]}}\nethernets: {enp1s0: {dhcp4: true}}",
    ],
    ids=["by name", "of another card", "version 1", "bond"],
)
def test_an_address_of_a_card_that_cannot_be_told_counts_on_every_network_of_the_vm(text: str):
    assert configured_addresses(a_vm(text)) == (
        ("default/vlan-50", "10.9.0.7"),
        ("fleet/storage", "10.9.0.7"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "- 1",
        "version: 2\nethernets: [1, 2]",
        "version: 2\nethernets: {a: 1}",
        "version: 2\nethernets: {a: {match: 7, addresses: [no, 127.0.0.1/8, 169.254.0.9/16]}}",
        "version: 2\nethernets: {a: {type: []}}",
        "version: 1\nconfig: [{type: {physical: 1}, subnets: [{type: [static], address: 10.9.0.7/24}]}]",
        "version: 2\nethernets: {a: {addresses: [10.9.0.7/24]}}\n" + "#" * 70_000,
    ],
    ids=[
        "no YAML",
        "list",
        "list of cards",
        "number",
        "none usable",
        "list as type",
        "map as type",
        "too long",
    ],
)
def test_of_network_data_that_is_nothing_of_the_kind_nothing_is_read(text: str):
    assert configured_addresses(a_vm(text)) == ()


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"spec": None},
        {"spec": {"template": {"spec": {"volumes": "no", "networks": [1, {"name": "a"}], "domain": 4}}}},
    ],
)
def test_a_vm_of_another_shape_has_no_addresses(raw: dict[str, Any]):
    named = {"metadata": {"name": "w1"}, **raw}
    assert configured_addresses(named, TWO_CARDS) == ()
    assert reported_addresses(named) == ()


def test_network_data_of_64_kib_is_still_read():
    text = "version: 2\nethernets: {a: {addresses: [10.9.0.7/24]}}\n".ljust(64 * 1024, "#")
    assert len(configured_addresses(a_vm(text))) == 2
    assert configured_addresses(a_vm(f"{text}#")) == ()


def test_only_so_many_addresses_are_read_of_one_card():
    many = ", ".join(f"10.{number >> 8}.{number & 255}.1/32" for number in range(5000))
    one_card = CARDS[:1]
    text = f"version: 2\nethernets: {{a: {{addresses: [{many}]}}}}"[:65_000].rpartition(",")[0] + "]}}"
    assert 3000 < len(configured_addresses(a_vm(text, cards=one_card))) <= 4096


def test_only_so_many_addresses_are_read_of_a_vm_on_however_many_networks():
    """One object must not take gigabytes: a VM may name thousands of networks."""
    cards = [(f"nic-{number}", f"02:aa:00:00:00:{number:02x}", f"default/n{number}") for number in range(40)]
    addresses = ", ".join(f"10.9.{number}.1/32" for number in range(200))
    found = configured_addresses(
        a_vm(f"version: 2\nethernets: {{a: {{addresses: [{addresses}]}}}}", cards=cards)
    )
    assert len(found) == 4096
    assert found[:41] == (
        *(NetworkAddress(f"default/n{number}", "10.9.0.1") for number in range(40)),
        NetworkAddress("default/n0", "10.9.1.1"),
    )


@pytest.mark.parametrize(("length", "is_kept"), [(2048, True), (2049, False)])
def test_long_network_data_is_not_kept_in_memory(length: int, is_kept: bool):
    text = f"version: 2\nethernets: {{a: {{addresses: [10.9.{int(is_kept)}.7/24]}}}}\n".ljust(length, "#")
    assert (read_cards(text) is read_cards(text)) == is_kept
    assert read_cards(text) == (("", (f"10.9.{int(is_kept)}.7",)),)


def test_what_the_guest_agent_reports_is_on_the_network_of_the_card_and_bridges_of_the_guest_do_not_count():
    spec = a_vm()["spec"]["template"]["spec"]
    interfaces = [
        {"name": "nic-0", "ipAddress": "10.9.0.7", "ipAddresses": ["10.9.0.7", "fe80::1", "fd00::0007/64"]},
        {"name": "nic-1", "ipAddress": None},
        {"name": "gone", "ipAddress": "10.9.0.8"},
        {"interfaceName": "cni0", "ipAddress": "10.42.0.1"},
    ]
    raw = {"metadata": {"namespace": "fleet"}, "spec": spec, "status": {"interfaces": interfaces}}

    assert reported_addresses(raw) == (
        NetworkAddress("default/vlan-50", "10.9.0.7"),
        NetworkAddress("default/vlan-50", "fd00::7"),
    )


def test_static_addresses_are_those_of_devices_not_of_routers_and_name_servers():
    assert list_static_addresses(TWO_CARDS) == ["192.168.50.10/24", "fd00:50::0010/64", "10.77.0.10/24"]
    assert list_static_addresses("") == list_static_addresses("{") == []
