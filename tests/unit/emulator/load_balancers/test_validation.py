"""Mutation and validation of LoadBalancers (reference 02 §4.6)."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.emulator import kinds
from windrow.emulator.load_balancers.validation import (
    find_create_problem,
    find_update_problem,
    mutate_balancer,
)
from windrow.emulator.release import Release
from windrow.kubernetes.objects import Raw, annotations_of, new_object
from windrow.kubernetes.resources import NAMESPACE

GROUP = "loadbalancer.harvesterhci.io"
NEW, V18 = Release(), Release((1, 8))
CREATOR = {"harvesterhci.io/creator": "docker-machine-driver-harvester"}
HERE = new_object(NAMESPACE, "ns")


def listener(name: str = "http", port: int = 80, backend: int = 8080, protocol: str = "TCP") -> Raw:
    return {"name": name, "port": port, "backendPort": backend, "protocol": protocol}


def of_machines(*listeners: Raw, check: Raw | None = None, **spec: Any) -> Raw:
    given = {"ipam": "pool", "workloadType": "vm", "listeners": list(listeners), **spec}
    if check is not None:
        given["healthCheck"] = check
    return new_object(kinds.LOAD_BALANCER, "lb", "ns", spec=given)


def of_cluster(cluster: str = "mine", annotations: dict[str, str] | None = None, **spec: Any) -> Raw:
    return new_object(
        kinds.LOAD_BALANCER,
        "lb",
        "ns",
        labels={"cloudprovider.harvesterhci.io/cluster": cluster} if cluster else {},
        annotations={f"{GROUP}/cluster": cluster, **(annotations or {})},
        spec={"ipam": "pool", "workloadType": "cluster", **spec},
    )


def a_machine(name: str, network: str, cluster: str = "", **annotations: str) -> Raw:
    labels = {**CREATOR, **({"guestcluster.harvesterhci.io/name": cluster} if cluster else {})}
    networks = [{"name": "nic-0", "multus": {"networkName": network}}]
    return new_object(
        kinds.VMI, name, "ns", labels=labels, annotations=annotations, spec={"networks": networks}
    )


def refusal(balancer: Raw, *machines: Raw, release: Release = NEW) -> str:
    return find_create_problem(balancer, machines, release).removeprefix("create loadbalancer ns/lb failed")


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ([], "the loadbalancer needs to have at least one listener"),
        ([listener("a"), listener("a", 81, 8081)], "listener has duplicate name a"),
        ([listener("a"), listener("b", 80, 8081)], "listener b has duplicate port TCP:80 with listener a"),
        (
            [listener("a"), listener("b", 81)],
            "listener b has duplicate backend port TCP:8080 with listener a",
        ),
        ([listener(port=65536)], "listener port 65536 must <= 65535"),
        ([listener(port=0)], "listener port 0 must >= 1"),
        ([listener(backend=70000)], "listener backend port 70000 must <= 65535"),
        ([listener(backend=-1)], "listener backend port -1 must >= 1"),
    ],
)
def test_listeners_of_machines_are_checked(listeners: list[Raw], message: str):
    assert refusal(of_machines(*listeners)) == f": {message}"


def test_the_same_port_by_two_protocols_is_fine():
    assert not refusal(of_machines(listener("a"), listener("b", protocol="UDP")))


def test_the_load_balancer_of_a_cluster_needs_no_listener():
    assert not refusal(of_cluster())


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ({"port": 9}, "healthcheck port 9 is not in listener backend port list"),
        ({"port": 53}, "healthcheck port 53 can only be a TCP backend port"),
    ],
)
def test_a_health_check_is_checked(check: Raw, message: str):
    balancer = of_machines(listener(), listener("dns", 53, 53, "UDP"), check=check)

    assert refusal(balancer) == f" with healthyCheck: {message}"


def test_missing_numbers_of_a_health_check_are_filled_in_before_the_check():
    balancer = of_machines(listener(), check={"port": 8080, "periodSeconds": 9})
    mutate_balancer(balancer, HERE, [], NEW)

    assert balancer["spec"]["healthCheck"] == {
        "port": 8080,
        "successThreshold": 2,
        "failureThreshold": 2,
        "periodSeconds": 9,
        "timeoutSeconds": 1,
    }
    assert not refusal(balancer)


REMOVED = {"harvesterhci.io/removeAllPersistentVolumeClaims": "true"}


def test_a_cluster_that_is_being_removed_gets_no_load_balancer_unless_it_has_no_name():
    going = a_machine("mine-1", "ns/net", "mine", **REMOVED)
    default = a_machine("k-1", "ns/net", "kubernetes", **REMOVED)

    assert refusal(of_cluster(), going) == (
        " with guest cluster check: the vm ns/mine-1 shows guest cluster mine is being removed"
    )
    assert not refusal(of_cluster(), going, release=Release((1, 7)))
    assert not refusal(of_cluster("other"), going)
    assert not refusal(of_cluster(""), going)
    assert not refusal(of_cluster("kubernetes"), default)


def test_an_empty_mode_counts_as_its_default():
    old, new = of_machines(listener()), of_machines(listener())
    del new["spec"]["ipam"], new["spec"]["workloadType"]

    assert not find_update_problem(new, old)
    dhcp = of_machines(listener(), ipam="dhcp")
    message = "update loadbalancer ns/lb failed: can't change the IPAM from  to dhcp"
    assert find_update_problem(dhcp, new) == message


# --- annotations --------------------------------------------------------------------------------------------------


def network(balancer: Raw, *machines: Raw, release: Release = NEW) -> str:
    mutate_balancer(balancer, HERE, machines, release)
    return annotations_of(balancer)[f"{GROUP}/network"]


ANNOTATED = {
    f"{GROUP}/network": "ns/annotated",
    "cloudprovider.harvesterhci.io/managementNetwork": "ns/management",
}
MACHINES = (a_machine("mine-b-1", "ns/b"), a_machine("mine-1", "ns/own", "mine"))


def test_since_1_9_the_annotation_counts_then_the_management_network_then_the_members_then_the_prefix():
    assert network(of_cluster(annotations=ANNOTATED), *MACHINES) == "ns/annotated"
    only = {key: value for key, value in ANNOTATED.items() if key.endswith("managementNetwork")}
    assert network(of_cluster(annotations=only), *MACHINES) == "ns/management"
    assert network(of_cluster(), *MACHINES) == "ns/own"
    assert network(of_cluster(), MACHINES[0]) == "ns/b"
    assert network(of_cluster(""), *MACHINES) == ""


def test_before_1_9_the_first_machine_whose_name_begins_like_the_cluster_decides():
    assert network(of_cluster(annotations=ANNOTATED), *MACHINES, release=V18) == "ns/b"
    assert network(of_cluster(annotations=ANNOTATED), release=V18) == ""
    assert network(of_cluster(""), *MACHINES, release=V18) == ""


def test_before_1_9_one_without_a_workload_type_is_annotated_as_of_a_cluster_without_a_network():
    balancer = of_cluster()
    del balancer["spec"]["workloadType"]
    assert network(balancer, *MACHINES, release=V18) == ""

    del balancer["metadata"]["annotations"]
    mutate_balancer(balancer, HERE, [], NEW)
    assert annotations_of(balancer) == {f"{GROUP}/namespace": "ns"}


def test_load_balancers_of_machines_get_the_namespace_annotation_alone():
    balancer = of_machines(listener())
    mutate_balancer(balancer, HERE, [], NEW)

    assert annotations_of(balancer) == {f"{GROUP}/namespace": "ns"}
