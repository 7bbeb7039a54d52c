"""The load balancers of the user's that the demo stands in for."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.clusters.api.names import ENDPOINT_ADDRESS, ENDPOINT_JOIN_ADDRESS, ENDPOINT_MODE
from windrow.demo.endpoint_balancers import Frontend, find_addresses, list_frontends

RKE2, K3S = "v1.34.7+rke2r1", "v1.34.7+k3s1"


def a_cluster(version: str = RKE2, **annotations: str) -> dict[str, Any]:
    names = {"mode": ENDPOINT_MODE, "host": ENDPOINT_ADDRESS, "join": ENDPOINT_JOIN_ADDRESS}
    return {
        "kind": "Cluster",
        "metadata": {
            "name": "prod",
            "namespace": "fleet-default",
            "annotations": {names[key]: value for key, value in annotations.items()},
        },
        "spec": {"kubernetesVersion": version},
    }


def frontend(host: str, port: int, role: str) -> Frontend:
    return Frontend("fleet-default", "prod", host, port, role)


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (
            a_cluster(mode="address", host="api.example"),
            [frontend("api.example", 6443, "control-plane"), frontend("api.example", 9345, "etcd")],
        ),
        (a_cluster(K3S, mode="address", host="10.0.0.9"), [frontend("10.0.0.9", 6443, "control-plane")]),
        (
            a_cluster(K3S, mode="address", host="api.example", join="join.example"),
            [frontend("api.example", 6443, "control-plane"), frontend("join.example", 6443, "etcd")],
        ),
        # As urllib and Go ask for it.
        (
            a_cluster(K3S, mode="address", host="FD00::9"),
            [frontend("fd00::9", 6443, "control-plane")],
        ),
        (a_cluster(), []),
        (a_cluster(mode="firstServer"), []),
        (a_cluster(mode="address"), []),  # which is refused
        ({"kind": "HarvesterConfig", "metadata": {"name": "nc"}}, []),
    ],
)
def test_an_endpoint_of_mode_address_has_the_ports_that_are_asked_of_the_user(
    cluster: dict[str, Any], expected: list[Frontend]
) -> None:
    assert list_frontends([cluster]) == expected


def a_machine(*roles: str, cluster: str = "prod", namespace: str = "fleet-default") -> dict[str, Any]:
    return {
        "metadata": {"name": "m", "namespace": namespace},
        "spec": {"clusterName": cluster, "roles": list(roles)},
        "status": {"addresses": ["10.0.0.1", "fd00::1"]},
    }


@pytest.mark.parametrize(
    ("machine", "is_behind"),
    [
        (a_machine("etcd", "control-plane"), True),
        (a_machine("control-plane", "worker"), False),
        (a_machine("etcd", cluster="other"), False),
        (a_machine("etcd", namespace="default"), False),
    ],
)
def test_machines_of_the_cluster_with_the_role_are_behind_it(
    machine: dict[str, Any], is_behind: bool
) -> None:
    expected = ["10.0.0.1", "fd00::1"] if is_behind else []

    assert find_addresses(frontend("api.example", 9345, "etcd"), [machine]) == expected


def test_a_machine_without_an_address_is_behind_nothing_yet() -> None:
    machine = a_machine("etcd")
    del machine["status"]

    assert find_addresses(frontend("api.example", 9345, "etcd"), [machine]) == []


def test_it_is_told_in_the_words_of_the_manifest() -> None:
    told = [str(one) for one in list_frontends([a_cluster(mode="address", host="api.example")])]

    assert told == [
        "api.example passes 6443 on to machines with controlPlaneRole",
        "api.example passes 9345 on to machines with etcdRole",
    ]
