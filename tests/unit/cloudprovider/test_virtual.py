import pytest

from windrow.cloudprovider.services.service_readings import Service
from windrow.cloudprovider.virtual import VirtualAddresses, virtual_addresses


def a_service(name="web", **more):
    return Service("default", name, "uid", is_balanced=True, **more)


VIP_HOST = ("kube-vip.io/vipHost",)


@pytest.mark.parametrize(
    ("case", "service", "wanted"),
    [
        ("from a pool", a_service(addresses="10.0.0.50", ingress=("10.0.0.50",)), {"10.0.0.50"}),
        ("before kube-vip binds it", a_service(addresses="10.0.0.50"), {"10.0.0.50"}),
        ("of both families", a_service(addresses="10.0.0.50, fd00::50"), {"10.0.0.50", "fd00::50"}),
        ("by DHCP", a_service(addresses="0.0.0.0", ingress=("10.0.0.51",)), {"10.0.0.51"}),
        ("of kube-vip alone", a_service(traces=VIP_HOST, ingress=("10.0.0.52",)), {"10.0.0.52"}),
        ("K3s shows its nodes", a_service(ingress=("10.0.0.1", "10.0.0.2")), set()),
        (
            "K3s shows its nodes beside ours",
            a_service(addresses="10.0.0.50", ingress=("10.0.0.1",)),
            {"10.0.0.50"},
        ),
        ("no load balancer any more", Service("default", "web", "uid", addresses="10.0.0.50"), set()),
        ("gone", None, set()),
    ],
)
def test_which_addresses_of_a_service_are_virtual(case, service, wanted):
    assert set(virtual_addresses(service)) == wanted, case


def test_an_address_is_virtual_as_long_as_one_of_its_services_is_there():
    known = VirtualAddresses(is_known=True)
    assert list(known.note("default", "web", a_service(addresses="10.0.0.50"))) == ["10.0.0.50"]
    assert list(known.note("default", "dns", a_service("dns", addresses="10.0.0.50"))) == []

    known.note("default", "web", None)
    assert known.all == {"10.0.0.50"}

    known.note("default", "dns", None)
    assert known.all == set()


def test_what_is_noted_twice_counts_once():
    known = VirtualAddresses(is_known=True)
    for _ in range(2):
        known.note("default", "web", a_service(addresses="10.0.0.50"))
    known.note("default", "web", a_service(addresses="10.0.0.51"))

    assert known.all == {"10.0.0.51"}


def test_before_all_services_are_known_no_address_is_anybodys():
    known = VirtualAddresses()
    known.note("default", "web", a_service(addresses="10.0.0.50"))

    assert known.all is None
