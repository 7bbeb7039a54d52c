"""The driver's rules for network data, and the forms that crash or confuse it."""

from __future__ import annotations

import pytest

from windrow.nodedriver.validate.network_data import find_network_problems

NIC = "- type: physical\n  name: {name}\n  subnets: [{subnets}]\n"
DNS = "- type: nameserver\n  address: [8.8.8.8]\n"
DHCP, GATE = "{type: dhcp}", "{type: static, address: 10.0.0.2/24, gateway: 10.0.0.1}"
BARE = "{type: static, address: 10.0.0.3/24}"


def document(*entries: str, head: str = "version: 1\nconfig:\n") -> str:
    return head + "".join(entries)


def nic(*subnets: str, name: str = "nic0") -> str:
    return NIC.format(name=name, subnets=", ".join(subnets))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 2\nethernets: {}\n",
        "network:\n  version: 2\n",
        document(nic(DHCP)),
        document(nic(DHCP), nic(DHCP, name="nic1")),
        document(nic(DHCP), nic(GATE, name="nic1")),
        document(nic(GATE), DNS),
        document(nic(GATE), nic(BARE, name="nic1"), DNS),
        document(nic(BARE), nic(DHCP, name="nic1")),
        document(nic("{type: dhcp4}")),
        document(nic("{type: dhcp6}")),
        document(nic("{type: static6, address: '2001:db8::2/64', gateway: '2001:db8::1'}"), DNS),
        document(nic("{type: static, gateway: 10.0.0.1, dns_nameservers: [8.8.8.8]}")),
        document(nic("{type: ipv6_slaac}")),
        document(nic("{type: ipv6_dhcpv6-stateful}")),
        document(nic("{type: ipv6_dhcpv6-stateless}")),
        *(
            document(f"- type: {device}\n  name: x0\n  subnets: [{{type: dhcp}}]\n")
            for device in ("bond", "bridge", "vlan", "infiniband")
        ),
        document(nic(GATE), "- type: nameserver\n  address: 8.8.8.8\n"),
        'version: "1"\nconfig:\n' + nic(DHCP),
        "network:\n  version: 1\n  config:\n  - type: physical\n    subnets: [{type: dhcp}]\n",
    ],
)
def test_a_machine_with_a_way_out_and_a_name_server_passes(text: str) -> None:
    assert find_network_problems(text) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("config: []\n", "missing section: version"),
        ("version: 1\n", "missing section: config"),
        ("version: 1\nconfig: text\n", "missing section: config"),
        ("version: 1\nconfig:\n- name: x\n", "missing section: type"),
        ("version: 1\nconfig:\n- type: physical\n", "missing section: subnets"),
        (document(nic("{address: 10.0.0.2}")), "missing section: type"),
        (document(nic("5")), "missing section: type"),
        (document(nic("a type of subnet")), "missing section: type"),
        (document(nic("[type]")), "missing section: type"),
        (document("- 5\n"), "missing section: type"),
        (document("- the type\n"), "missing section: type"),
        (document("- type: nameserver\n"), "missing section: address"),
        (
            document(nic(GATE), nic(GATE, name="nic1"), DNS),
            "the number of default gateway cannot greater than 1, but get: 2",
        ),
        (document(nic(BARE), DNS), "static gateway or dhcp is not configured"),
        (document(nic(GATE)), "nameserver is not configured"),
        ("network: null\n", "networkData is not a map"),
        ("just text\n", "networkData is not a map"),
    ],
)
def test_what_leads_nowhere_is_told_in_the_drivers_words(text: str, message: str) -> None:
    assert [problem.message for problem in find_network_problems(text)] == [message]


def test_broken_yaml_is_told_with_its_place() -> None:
    [problem] = find_network_problems("version: 1\n  config: []\n")
    assert "line 2" in problem.message
