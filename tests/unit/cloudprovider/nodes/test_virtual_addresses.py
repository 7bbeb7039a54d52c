from dataclasses import replace

import pytest

from windrow.cloudprovider.nodes.addresses import VirtualAddresses, virtual_addresses
from windrow.cloudprovider.services.readings import LoadBalancer, Owner

OURS = Owner("demo", "default", "web")


def a_balancer(name="web", **more):
    return replace(LoadBalancer("default", name, "uid", owner=OURS), **more)


@pytest.mark.parametrize(
    ("case", "load_balancer", "wanted"),
    [
        ("from a pool", a_balancer(allocated=("10.0.0.50",), address="10.0.0.50"), {"10.0.0.50"}),
        ("before kube-vip binds it", a_balancer(allocated=("10.0.0.50",)), {"10.0.0.50"}),
        ("of both families", a_balancer(allocated=("10.0.0.50", "fd00::50")), {"10.0.0.50", "fd00::50"}),
        ("by DHCP", a_balancer(ipam="dhcp", address="10.0.0.51"), {"10.0.0.51"}),
        ("by DHCP, nothing yet", a_balancer(ipam="dhcp", address="0.0.0.0"), set()),
        ("recorded without a reservation", a_balancer(ipam="pool", address="10.0.0.1"), set()),
        (
            "of another cluster",
            a_balancer(allocated=("10.0.0.50",), owner=Owner("other", "default", "web")),
            set(),
        ),
        ("gone", None, set()),
    ],
)
def test_which_addresses_of_a_load_balancer_are_virtual(case, load_balancer, wanted):
    assert set(virtual_addresses(load_balancer, "demo")) == wanted, case


def test_an_address_is_virtual_as_long_as_one_load_balancer_holds_it():
    known = VirtualAddresses("demo", is_known=True)
    assert list(known.update("web", a_balancer(allocated=("10.0.0.50",)))) == ["10.0.0.50"]
    assert list(known.update("dns", a_balancer("dns", allocated=("10.0.0.50",)))) == []

    known.update("web", None)
    assert known.all == {"10.0.0.50"}

    known.update("dns", None)
    assert known.all == set()


def test_what_is_noted_twice_counts_once():
    known = VirtualAddresses("demo", is_known=True)
    for _ in range(2):
        known.update("web", a_balancer(allocated=("10.0.0.50",)))
    known.update("web", a_balancer(allocated=("10.0.0.51",)))

    assert known.all == {"10.0.0.51"}


def test_before_all_load_balancers_are_known_no_address_is_anybodys():
    known = VirtualAddresses("demo")
    known.update("web", a_balancer(allocated=("10.0.0.50",)))

    assert known.all is None
