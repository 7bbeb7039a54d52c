"""Addresses as the API shows them: reference 05 §2.6."""

from __future__ import annotations

from windrow.emulator.guest_os.hardware import AgentReport, Nic
from windrow.emulator.vms.instances.interfaces import MAX_REPORTED, render_planned, render_running

VLAN = Nic("nic-0", "02:00:00:00:00:01", "ns/net")
POD = Nic("default", "02:00:00:00:00:02", "")


def report(**addresses):
    return AgentReport("m-1", {name.replace("_", "-"): found for name, found in addresses.items()})


def test_before_the_domain_starts_only_names_are_listed():
    assert render_planned([VLAN]) == [{"name": "nic-0", "infoSource": "multus-status"}]


def test_a_bridge_card_has_a_mac_but_no_address_without_an_agent():
    (entry,) = render_running([VLAN], "10.52.0.9", None)

    assert entry["mac"] == VLAN.mac
    assert entry["infoSource"] == "domain, multus-status"
    assert "ipAddress" not in entry


def test_the_agent_brings_addresses_ipv4_first():
    (entry,) = render_running([VLAN], "", report(nic_0=("fe80::1", "192.168.50.20", "fd00::7")))

    assert entry["ipAddress"] == "192.168.50.20"
    assert entry["ipAddresses"] == ["192.168.50.20", "fe80::1", "fd00::7"]
    assert entry["infoSource"] == "domain, guest-agent, multus-status"
    assert entry["interfaceName"] == "enp1s0"


def test_an_agent_may_speak_of_cards_by_the_guests_names():
    (entry,) = render_running([VLAN], "", report(enp1s0=("192.168.50.20",)))

    assert entry["ipAddress"] == "192.168.50.20"


def test_the_pod_network_is_listed_first_and_needs_no_agent():
    first, second = render_running([VLAN, POD], "10.52.0.9", None)

    assert (first["name"], first["ipAddress"]) == ("default", "10.52.0.9")
    assert "ipAddress" not in second


def test_interfaces_of_the_guest_itself_come_after_and_without_a_name():
    entries = render_running([VLAN], "", report(nic_0=("192.168.50.20",), cni0=("10.42.0.1",)))

    assert entries[1] == {
        "interfaceName": "cni0",
        "ipAddress": "10.42.0.1",
        "ipAddresses": ["10.42.0.1"],
        "infoSource": "guest-agent",
    }


def test_at_most_ten_are_shown():
    many = {f"cali{number}": ("10.42.0.1",) for number in range(40)}

    assert len(render_running([VLAN], "", report(nic_0=("192.168.50.20",), **many))) == MAX_REPORTED
