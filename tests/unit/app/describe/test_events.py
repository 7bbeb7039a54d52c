"""Which events are of a cluster, and in which order conditions are read."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.app.describe.conditions import condition_health, list_conditions
from windrow.app.describe.events import list_events, read_event, select_events
from windrow.kubernetes.conditions import Condition


def an_object(name: str, namespace: str = "a", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def an_event(kind: str, name: str, namespace: str = "a", **rest: Any) -> dict[str, Any]:
    involved = {"kind": kind, "name": name, "namespace": namespace}
    return {
        "metadata": {"name": f"{kind}.{name}", "namespace": namespace},
        "involvedObject": involved,
        **rest,
    }


@pytest.mark.parametrize(
    ("event", "is_of_prod"),
    [
        (an_event("Cluster", "prod"), True),
        (an_event("HarvesterConfig", "nc-prod"), False),
        (an_event("Machine", "prod-a-1"), True),
        (an_event("Machine", "prod-eu-a-1"), False),
        (an_event("Machine", "prod-eu-is-mine"), True),
        (an_event("Machine", "production-1"), False),
        (an_event("Cluster", "prod", "b"), False),
    ],
)
def test_a_machine_that_is_gone_belongs_to_the_longest_name_that_its_own_begins_with(
    event: dict[str, Any], is_of_prod: bool
):
    clusters = [an_object("prod"), an_object("prod-eu"), an_object("prod-eu-a", "b")]
    machines = [an_object("prod-eu-is-mine", clusterName="prod")]

    assert bool(select_events(list_events([event]), clusters[0], clusters, machines)) is is_of_prod


def test_events_are_in_the_order_of_their_last_time_whichever_api_wrote_them():
    old = an_event("Cluster", "old", lastTimestamp="2026-01-01T12:00:00Z")
    new = an_event("Cluster", "new", eventTime="2026-01-01T12:00:01.5Z", series={"count": 4})
    undated = an_event("Cluster", "undated", lastTimestamp="noon")

    shown = list_events([new, old, undated])

    assert [one.name for one in shown] == ["undated", "old", "new"]
    assert shown[2].count == 4


def test_an_event_without_any_field_is_read():
    assert read_event({"metadata": {"name": "x"}}).object == "/"


def test_ready_comes_first_and_then_what_is_not_as_it_should_be():
    raw = {
        "status": {
            "conditions": [
                {"type": "Accepted", "status": "True"},
                {"type": "Updating", "status": "True"},
                {"type": "Zoned", "status": "Unknown"},
                {"type": "Ready", "status": "True"},
                "nonsense",
                {"type": "Odd", "status": 7},
            ]
        }
    }

    found = list_conditions(raw)

    assert [(one.type, condition_health(one)) for one in found] == [
        ("Ready", "good"),
        ("Updating", "busy"),
        ("Zoned", "busy"),
        ("Accepted", "good"),
    ]


@pytest.mark.parametrize(
    ("type", "status", "reason", "health"),
    [
        ("RollingOut", "False", "NotRollingOut", "good"),
        ("RollingOut", "True", "Updating", "busy"),
        ("RollingOut", "False", "UpdateFailed", "bad"),
        ("RollingOut", "False", "Held", "busy"),
        ("Updating", "False", "NotUpdating", "good"),
        ("Updating", "False", "UpdateFailed", "bad"),
        ("DiskPressure", "False", "", "good"),
        ("MemoryPressure", "False", "", "good"),
        ("PIDPressure", "True", "", "bad"),
        ("StorageLiveMigratable", "False", "", "good"),
        ("DiskPressure", "True", "", "bad"),
        ("RestartRequired", "True", "", "busy"),
        ("RestartRequired", "Unknown", "", "busy"),
        ("LiveMigratable", "False", "", "good"),
        ("UpToDate", "False", "", "bad"),
        ("Accepted", "False", "Invalid", "bad"),
    ],
)
def test_a_condition_is_good_at_the_status_that_its_type_says(
    type: str, status: Any, reason: str, health: str
):
    assert condition_health(Condition(type, status, reason)) == health
