from dataclasses import replace
from ipaddress import ip_network

import pytest

from windrow.cloudprovider.nodes.addresses import (
    BadProvidedIp,
    missing_provided_ips,
    node_addresses,
    parse_provided_ips,
    prefer_provided,
)
from windrow.cloudprovider.nodes.readings import Address, GuestNode, Instance, Interface, read_instance
from windrow.cloudprovider.options import Options

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


EXCLUDING = Options(
    node_ip_cidr=IN_TEN.node_ip_cidr,
    node_exclude_ip_ranges=(ip_network("10.0.0.0/24"), ip_network("fd00::9/128")),
)
BOTH = ("10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2")


@pytest.mark.parametrize(
    ("mode", "reported", "node", "options", "wanted"),
    [
        # What the kubelet was started with, first.
        (
            "the annotation goes before the range",
            ("10.0.0.1", "192.168.0.1"),
            a_node("192.168.0.1"),
            IN_TEN,
            ["ExternalIP 10.0.0.1", "InternalIP 192.168.0.1"],
        ),
        (
            "with the annotation excluded ranges mean nothing",
            ("10.0.0.1", "10.0.0.2"),
            a_node("10.0.0.1"),
            EXCLUDING,
            ["InternalIP 10.0.0.1", "ExternalIP 10.0.0.2"],
        ),
        (
            "with the annotation additional internal ones are hidden, unless one is the kubelet's",
            ("10.0.0.1", "10.0.0.2"),
            a_node("10.0.0.1", additional=("10.0.0.1", "10.0.0.2")),
            PLAIN,
            ["InternalIP 10.0.0.1"],
        ),
        (
            "an annotation that nothing reports makes all external",
            ("10.0.0.1", "fd00::1"),
            a_node("10.0.0.7"),
            PLAIN,
            ["ExternalIP 10.0.0.1", "ExternalIP fd00::1"],
        ),
        (
            "an annotation that cannot be read makes all external",
            ("10.0.0.1",),
            a_node("ten"),
            IN_TEN,
            ["ExternalIP 10.0.0.1"],
        ),
        (
            "a family of IPv6 alone",
            ("10.0.0.1", "fd00::1"),
            a_node("fd00::1"),
            PLAIN,
            ["ExternalIP 10.0.0.1", "InternalIP fd00::1"],
        ),
        (
            "IPv6 is compared by value, not by spelling",
            ("FD00:0:0::1",),
            a_node("fd00::1"),
            PLAIN,
            ["InternalIP fd00::1"],
        ),
        # Then the range.
        (
            "a range of one family leaves the other external",
            BOTH,
            a_node(),
            Options(node_ip_cidr=(ip_network("10.0.0.2/32"),)),
            ["ExternalIP 10.0.0.1", "ExternalIP fd00::1", "InternalIP 10.0.0.2", "ExternalIP fd00::2"],
        ),
        (
            "with a range additional internal ones mean nothing",
            ("10.0.0.1", "10.0.0.2"),
            a_node(additional=("10.0.0.2",)),
            IN_TEN,
            ["InternalIP 10.0.0.1", "ExternalIP 10.0.0.2"],
        ),
        (
            "excluded ranges hide both families, and never the internal one",
            ("10.0.0.1", "fd00::1", "10.0.0.2", "fd00::9", "10.0.1.1"),
            a_node(),
            EXCLUDING,
            ["InternalIP 10.0.0.1", "InternalIP fd00::1", "ExternalIP 10.0.1.1"],
        ),
        (
            "with the annotation switched off the range counts",
            ("10.0.0.1", "192.168.0.1"),
            a_node("192.168.0.1"),
            Options(ignore_provided_ip=True, node_ip_cidr=IN_TEN.node_ip_cidr),
            ["InternalIP 10.0.0.1", "ExternalIP 192.168.0.1"],
        ),
        # Then the first.
        (
            "excluded ranges without a range for the node mean nothing",
            ("10.0.0.1", "10.0.0.2"),
            a_node(),
            Options(node_exclude_ip_ranges=EXCLUDING.node_exclude_ip_ranges),
            ["InternalIP 10.0.0.1", "ExternalIP 10.0.0.2"],
        ),
        (
            "with the annotation switched off the additional internal ones are, too",
            ("10.0.0.1", "10.0.0.2"),
            a_node("10.0.0.2", additional=("10.0.0.2",)),
            Options(ignore_provided_ip=True),
            ["InternalIP 10.0.0.1", "ExternalIP 10.0.0.2"],
        ),
        (
            "IPv6 first stays first",
            ("fd00::1", "10.0.0.1"),
            a_node(),
            PLAIN,
            ["InternalIP fd00::1", "InternalIP 10.0.0.1"],
        ),
        (
            "a link-local address of IPv6 is none",
            ("fe80::1%enp1s0", "10.0.0.1"),
            a_node(),
            PLAIN,
            ["InternalIP 10.0.0.1"],
        ),
    ],
)
def test_each_mode_chooses_and_hides_by_its_own_rules(mode, reported, node, options, wanted):
    assert shown(node_addresses(an_instance(*reported), node, options)) == [*wanted, "Hostname w1"], mode


@pytest.mark.parametrize(
    ("reported", "node", "options", "wanted"),
    [
        (("10.0.0.1", "10.0.0.50"), a_node(), PLAIN, ["InternalIP 10.0.0.1"]),
        (("10.0.0.50", "10.0.0.1"), a_node(), PLAIN, ["InternalIP 10.0.0.1"]),
        (("10.0.0.50", "10.0.0.1"), a_node(), IN_TEN, ["InternalIP 10.0.0.1"]),
        (("10.0.0.1", "10.0.0.50"), a_node("10.0.0.1"), PLAIN, ["InternalIP 10.0.0.1"]),
        # A service that shows a node's own address does not take it from the node.
        (("10.0.0.50",), a_node(), PLAIN, ["InternalIP 10.0.0.50"]),
        (
            ("10.0.0.50", "10.0.0.1"),
            a_node("10.0.0.50"),
            PLAIN,
            ["InternalIP 10.0.0.50", "ExternalIP 10.0.0.1"],
        ),
    ],
)
def test_the_address_of_a_service_is_no_address_of_the_node(reported, node, options, wanted):
    found = node_addresses(an_instance(*reported), node, options, {"10.0.0.50"})

    assert shown(found) == [*wanted, "Hostname w1"]


@pytest.mark.parametrize(
    ("options", "held", "wanted"),
    [
        (IN_TEN, {"10.0.0.50", "10.0.0.1"}, ["InternalIP 10.0.0.50"]),
        (PLAIN, {"10.0.0.50", "10.0.0.1"}, ["InternalIP 10.0.0.50"]),
        (PLAIN, {"10.0.0.50"}, ["InternalIP 10.0.0.50", "ExternalIP 10.0.0.1"]),
        (PLAIN, {"10.0.0.1"}, ["InternalIP 10.0.0.50"]),
        (Options(ignore_provided_ip=True), {"10.0.0.50"}, ["InternalIP 10.0.0.50", "ExternalIP 10.0.0.1"]),
    ],
)
def test_what_is_internal_stays_so_whatever_a_load_balancer_holds(options, held, wanted):
    before = replace(
        a_node(), addresses=(Address("InternalIP", "10.0.0.50"), Address("ExternalIP", "10.0.0.1"))
    )
    found = node_addresses(an_instance("10.0.0.50", "10.0.0.1"), before, options, held)

    assert shown(found) == [*wanted, "Hostname w1"]


TWO_CARDS = (("pod", "default/first"), ("nic-1", "default/vlan1"))


@pytest.mark.parametrize(
    ("network", "wanted"),
    [
        ("", ["InternalIP 10.9.9.9"]),
        ("default/vlan1", ["InternalIP 10.0.0.1"]),
        ("default/other", []),
        ("other/vlan1", []),
    ],
)
def test_the_management_network_chooses_the_card(network, wanted):
    instance = an_instance("10.0.0.1", networks=TWO_CARDS, more=(Interface("pod", "enp2s0", ("10.9.9.9",)),))

    found = node_addresses(instance, a_node(), Options(management_network=network))

    assert shown(found) == [*wanted, "Hostname w1"]


def a_raw_instance(networks, interfaces):
    return {
        "metadata": {"name": "w1", "namespace": "default", "uid": "uid"},
        "spec": {"networks": networks},
        "status": {"interfaces": interfaces},
    }


ON_VLAN = [{"name": "nic-1", "multus": {"networkName": "default/vlan1"}}]


@pytest.mark.parametrize(
    ("case", "networks", "interfaces", "wanted"),
    [
        (
            "the list",
            ON_VLAN,
            [{"name": "nic-1", "ipAddresses": ["10.0.0.1"], "ipAddress": "10.0.0.9"}],
            ["10.0.0.1"],
        ),
        ("one where there is no list", ON_VLAN, [{"name": "nic-1", "ipAddress": "10.0.0.9"}], ["10.0.0.9"]),
        (
            "one where the list is empty",
            ON_VLAN,
            [{"name": "nic-1", "ipAddresses": [], "ipAddress": "10.0.0.9"}],
            ["10.0.0.9"],
        ),
        ("another card's", ON_VLAN, [{"name": "nic-2", "ipAddress": "10.0.0.9"}], []),
        ("a card without a name", ON_VLAN, [{"interfaceName": "vip-1", "ipAddress": "10.0.0.9"}], []),
        ("the pod network's", [{"name": "pod", "pod": {}}], [{"name": "pod", "ipAddress": "10.52.0.9"}], []),
        (
            "the first that is not the pod network",
            [{"name": "pod", "pod": {}}, *ON_VLAN],
            [{"name": "pod", "ipAddress": "10.52.0.9"}, {"name": "nic-1", "ipAddress": "10.0.0.1"}],
            ["10.0.0.1"],
        ),
    ],
)
def test_which_reports_count(case, networks, interfaces, wanted):
    found = node_addresses(read_instance(a_raw_instance(networks, interfaces)), a_node(), PLAIN)

    assert [one.address for one in found if one.type != "Hostname"] == wanted, case


def test_the_kubelets_own_address_is_alone_of_its_type_and_first():
    known = (Address("InternalIP", "10.0.0.1"), Address("InternalIP", "10.0.0.2"), Address("Hostname", "w1"))

    assert shown(prefer_provided(a_node("10.0.0.2"), known)) == ["InternalIP 10.0.0.2", "Hostname w1"]


def test_the_kubelets_addresses_come_in_the_kubelets_order():
    known = (
        Address("InternalIP", "10.0.0.1"),
        Address("ExternalIP", "10.0.0.2"),
        Address("InternalIP", "fd00::1"),
        Address("Hostname", "w1"),
    )

    assert shown(prefer_provided(a_node("fd00::1,10.0.0.1"), known)) == [
        "InternalIP fd00::1",
        "InternalIP 10.0.0.1",
        "ExternalIP 10.0.0.2",
        "Hostname w1",
    ]


@pytest.mark.parametrize("text", ["ten", "10.0.0.1,", "10.0.0.1,10.0.0.2", "10.0.0.1,fd00::1,fd00::2"])
def test_what_is_neither_one_address_nor_one_of_each_family_is_refused(text):
    with pytest.raises(BadProvidedIp, match="failed to parse node IP"):
        parse_provided_ips(text)


def test_an_address_of_the_kubelet_that_the_host_does_not_know_is_missing():
    known = (Address("InternalIP", "10.0.0.1"),)

    assert missing_provided_ips(a_node("10.0.0.1,fd00::1"), known) == ("fd00::1",)
