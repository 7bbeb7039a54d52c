"""What is recorded in the status of a Cluster."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.clusters.builders import NOON, minutes

from windrow.clusters.api.endpoint import ControlPlaneEndpoint
from windrow.clusters.api.status import (
    Breaker,
    GuestServiceAccount,
    RecordedStatus,
    ReservedName,
    read_recorded_status,
)

LATER = "2026-01-01T12:05:00Z"
TEXTS = ("version", "harvesterUID", "guestUID")


@pytest.mark.parametrize(
    "status", [{}, dict.fromkeys((*TEXTS, "conditions", "pools", "creating", "initialized"))]
)
def test_nothing_is_recorded_of_a_new_cluster(status: dict[str, Any]) -> None:
    assert read_recorded_status(status) == RecordedStatus()


def test_what_was_recorded_is_read() -> None:
    status = {
        "initServer": {"name": "s1", "uid": "uid-s1"},
        "initialized": True,
        "version": "v1.35.1+rke2r1",
        "harvesterUID": "hv",
        "guestUID": "guest",
        "guestServiceAccount": {
            "namespace": "default",
            "serviceAccount": "prod",
            "credential": "ns:cc",
            "harvester": "hv",
            "earlierToken": ["w1"],
        },
        "conditions": [
            {"type": "PreflightPassed", "status": "True"},
            {"type": "Provisioned", "status": "True"},
            {"type": "Initialized", "status": "True", "lastTransitionTime": LATER},
        ],
        "pools": [
            {"name": "a"},
            {"name": "b", "breaker": {"tripped": True}},
            {"name": "c", "breaker": {"tripped": False, "released": LATER}},
        ],
        "creating": [{"pool": "a", "name": "prod-a-1"}],
    }

    assert read_recorded_status(status) == RecordedStatus(
        init_server_name="s1",
        init_server_uid="uid-s1",
        initialized=True,
        service_account=GuestServiceAccount("default", "prod", "ns:cc", "hv", ("w1",)),
        version="v1.35.1+rke2r1",
        preflight_passed=True,
        provisioned=True,
        initialized_since=NOON + minutes(5),
        harvester_uid="hv",
        guest_uid="guest",
        breakers={"b": Breaker(), "c": Breaker(NOON + minutes(5))},
        creating=(ReservedName("a", "prod-a-1"),),
        endpoint=ControlPlaneEndpoint(),  # it has begun, and recorded none
    )
