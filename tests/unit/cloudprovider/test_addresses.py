from ipaddress import ip_network

import pytest

from windrow.cloudprovider.addresses import missing_provided_ips, node_addresses, preferred
from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.readings import Address, GuestNode, Instance, Interface

PLAIN = Options()
IN_TEN = Options(node_ip_cidr=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")))


def an_instance(*addresses, networks=(("nic-1", "default/vlan1"),), more=()):
    return Instance(
        "w1", "uid", networks=networks, interfaces=(Interface("nic-1", "enp1s0", addresses), *more)
    )


def a_node(provided="", additional=()):
    return GuestNode("w1", "uid", provided_ip=provided, additional_internal_ips=additional)


def shown(addresses):
    return [f"{one.type} {one.address}" for one in addresses]


@pytest.mark.parametrize(
    ("case", "reported", "node", "options", "wanted"),
    [
        ("nothing is reported", (), a_node(), PLAIN, []),
        ("one", ("10.0.0.1",), a_node(), PLAIN, ["InternalIP 10.0.0.1"]),
        (
            "the first of each family is internal",
            ("10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2"),
            a_node(),
            PLAIN,
            ["InternalIP 10.0.0.1", "InternalIP fd00::1", "ExternalIP 10.0.0.2", "ExternalIP fd00::2"],
        ),
        (
            "addresses that lead nowhere do not count",
            ("127.0.0.1", "169.254.1.1", "fe80::1", "224.0.0.1", "0.0.0.0", "255.255.255.255", "10.0.0.1"),
            a_node(),
            PLAIN,
            ["InternalIP 10.0.0.1"],
        ),
        ("one that cannot be read spoils the report", ("10.0.0.1", "ten"), a_node(), PLAIN, []),
        (
            "additional internal ones are hidden",
            ("10.0.0.1", "10.0.0.2"),
            a_node(additional=("10.0.0.2",)),
            PLAIN,
            ["InternalIP 10.0.0.1"],
        ),
        (
            "the kubelet's own is internal, all others external",
            ("10.0.0.1", "10.0.0.2", "fd00::1"),
            a_node("10.0.0.2"),
            PLAIN,
            ["ExternalIP 10.0.0.1", "InternalIP 10.0.0.2", "ExternalIP fd00::1"],
        ),
        (
            "both of the kubelet's families are internal",
            ("10.0.0.1", "10.0.0.2", "fd00::1"),
            a_node("10.0.0.2,fd00::1"),
            PLAIN,
            ["ExternalIP 10.0.0.1", "InternalIP 10.0.0.2", "InternalIP fd00::1"],
        ),
        (
            "the kubelet's own can be ignored",
            ("10.0.0.1", "10.0.0.2"),
            a_node("10.0.0.2"),
            Options(ignore_provided_ip=True),
            ["InternalIP 10.0.0.1", "ExternalIP 10.0.0.2"],
        ),
        (
            "a range chooses",
            ("192.168.0.1", "10.0.0.1", "fd00::1", "10.0.0.2"),
            a_node(),
            IN_TEN,
            ["ExternalIP 192.168.0.1", "InternalIP 10.0.0.1", "InternalIP fd00::1", "ExternalIP 10.0.0.2"],
        ),
        (
            "excluded ranges hide external ones only",
            ("10.0.0.1", "10.0.0.2"),
            a_node(),
            Options(node_ip_cidr=IN_TEN.node_ip_cidr, node_exclude_ip_ranges=(ip_network("10.0.0.0/24"),)),
            ["InternalIP 10.0.0.1"],
        ),
    ],
)
def test_addresses(case, reported, node, options, wanted):
    assert shown(node_addresses(an_instance(*reported), node, options)) == [*wanted, "Hostname w1"], case


TWO_CARDS = (("pod", "default/first"), ("nic-1", "default/vlan1"))


@pytest.mark.parametrize(
    ("network", "wanted"),
    [
        ("", ["InternalIP 10.9.9.9"]),
        ("default/vlan1", ["InternalIP 10.0.0.1"]),
        ("default/other", []),
    ],
)
def test_the_management_network_chooses_the_card(network, wanted):
    instance = an_instance("10.0.0.1", networks=TWO_CARDS, more=(Interface("pod", "enp2s0", ("10.9.9.9",)),))

    found = node_addresses(instance, a_node(), Options(management_network=network))

    assert shown(found) == [*wanted, "Hostname w1"]


def test_the_kubelets_own_address_is_alone_of_its_type_and_first():
    known = (Address("InternalIP", "10.0.0.1"), Address("InternalIP", "10.0.0.2"), Address("Hostname", "w1"))

    assert shown(preferred(a_node("10.0.0.2"), known)) == ["InternalIP 10.0.0.2", "Hostname w1"]


def test_an_address_of_the_kubelet_that_the_host_does_not_know_is_missing():
    known = (Address("InternalIP", "10.0.0.1"),)

    assert missing_provided_ips(a_node("10.0.0.1,fd00::1"), known) == ("fd00::1",)
