"""What a LoadBalancer on Harvester is updated to, field by field."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.clock import NOON
from tests.unit.cloudprovider.services.test_planning import LB, POLICY, TOLD, WEB

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import UpdateLoadBalancer
from windrow.cloudprovider.services.readings import LoadBalancer, Service
from windrow.cloudprovider.services.state import ServiceState
from windrow.cloudprovider.services.updates import plan_update

NETWORKED = replace(POLICY, management_network="default/mgmt")


def update(
    service: Service = TOLD, balancer: LoadBalancer = LB, pool: str = "", settings=POLICY
) -> UpdateLoadBalancer | None:
    return plan_update(ServiceState(service, NOON, settings, load_balancer=balancer), balancer, pool)


def with_annotations(**annotations: str) -> LoadBalancer:
    return replace(LB, annotations={names.LB_CLUSTER: "demo", **annotations})


def test_one_that_is_as_the_service_asks_is_left_alone():
    assert update() is None
    assert update(WEB) is None


@pytest.mark.parametrize(
    ("service", "balancer", "settings", "annotations"),
    [
        (TOLD, replace(LB, annotations={}), POLICY, {names.LB_CLUSTER: "demo"}),
        (TOLD, replace(LB, annotations={names.LB_CLUSTER: "former"}), POLICY, {names.LB_CLUSTER: "demo"}),
        (TOLD, LB, NETWORKED, {names.MANAGEMENT_NETWORK: "default/mgmt"}),
        (
            TOLD,
            with_annotations(**{names.MANAGEMENT_NETWORK: "default/old"}),
            NETWORKED,
            {names.MANAGEMENT_NETWORK: "default/mgmt"},
        ),
        (
            TOLD,
            with_annotations(**{names.MANAGEMENT_NETWORK: "default/old"}),
            POLICY,
            {names.MANAGEMENT_NETWORK: None},
        ),
        (
            replace(TOLD, network="default/vlan"),
            with_annotations(),
            POLICY,
            {names.FIXED_NETWORK: "default/vlan"},
        ),
    ],
)
def test_an_annotation_that_differs_is_written(service, balancer, settings, annotations):
    found = update(service, balancer, settings=settings)
    (key,) = annotations
    assert found == UpdateLoadBalancer(balancer, f"annotation {key} differs", annotations, None, None)


def test_the_network_of_an_address_is_fixed_once():
    fixed = with_annotations(**{names.FIXED_NETWORK: "default/other"})
    assert update(replace(TOLD, network="default/vlan"), fixed) is None
    assert update(replace(TOLD, network="default/vlan")) is None  # also where none was asked for then
    assert update(TOLD, with_annotations()) is None


OF_POOL = replace(LB, pool="pool")
REFUSED = replace(OF_POOL, allocated=(), address="", refusal="fail to allocate ip from pool pool, error")


@pytest.mark.parametrize(
    ("balancer", "pool", "other"),
    [
        (OF_POOL, "pool", None),
        (OF_POOL, "wide", "wide"),
        (LB, "wide", "wide"),
        (OF_POOL, "", None),  # an address that is allocated stays
        (replace(OF_POOL, allocated=()), "", None),  # an administrator chose it
        (LB, "", None),
    ],
)
def test_another_pool_is_asked_for_where_the_service_names_one(balancer, pool, other):
    found = update(WEB, balancer, pool)
    assert (found.pool if found else None) == other
    if found:
        assert found.because == f"the service asks for pool {other}"


def test_a_pool_that_has_refused_is_given_up_where_none_is_named():
    assert REFUSED.refusing_pool == "pool"
    found = update(WEB, REFUSED)
    assert found == UpdateLoadBalancer(REFUSED, "the service asks for no pool any more", {}, "", None)
    assert update(WEB, replace(REFUSED, allocated=("10.1.0.10",))) is None
    assert update(WEB, replace(REFUSED, pool="other")) is None


def test_by_dhcp_no_pool_is_asked_for():
    assert update(replace(WEB, ipam="dhcp"), replace(LB, ipam="dhcp"), "wide") is None


@pytest.mark.parametrize(
    ("service", "balancer", "address"),
    [
        (TOLD, replace(LB, address=""), "10.1.0.10"),
        (TOLD, replace(LB, address="10.1.0.9"), "10.1.0.10"),
        (replace(TOLD, ingress=("10.9.9.9",)), replace(LB, address=""), None),
        (replace(TOLD, ingress=("10.9.9.9", "10.1.0.10")), replace(LB, address=""), "10.1.0.10"),
        (WEB, replace(LB, address=""), None),
        (TOLD, replace(LB, ipam="dhcp", allocated=("0.0.0.0",), address=""), "10.1.0.10"),
        (
            replace(TOLD, primary_label="default.front"),
            replace(LB, ipam="dhcp", allocated=("0.0.0.0",), address=""),
            None,
        ),
        (WEB, replace(LB, ipam="dhcp", allocated=("0.0.0.0",), address=""), None),
    ],
)
def test_the_address_that_kube_vip_announces_is_recorded_as_in_use(service, balancer, address):
    found = update(service, balancer)
    expected = UpdateLoadBalancer(balancer, f"{address} is in use", {}, None, address)
    assert found == (expected if address else None)


def test_all_reasons_are_told_at_once():
    found = update(TOLD, replace(LB, annotations={}, address=""), "wide")
    assert found is not None
    assert found.because == (
        f"annotation {names.LB_CLUSTER} differs; the service asks for pool wide; 10.1.0.10 is in use"
    )
