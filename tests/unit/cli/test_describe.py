"""`windrow describe` and `windrow events`: all about one object, and what was recorded about it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.cli.conftest import Manager, Windrow
from tests.unit.cli.test_commands import enlist, report

from windrow.apiserver.loopback import LoopbackClient
from windrow.cli import exit_codes
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import EVENT

NAME = "orchard-workers-a-b"
CONDITIONS = [
    {"type": "Accepted", "status": "True", "reason": "Valid", "lastTransitionTime": "2026-01-01T12:00:00Z"},
    {"type": "Ready", "status": "False", "reason": "InProgress", "message": "waiting for an address"},
    {"type": "CredentialValid", "status": "False", "reason": "Rejected", "message": "expired; put another one there"},
]  # fmt: skip


def event(kind: str, name: str, reason: str, message: str, **rest: Any) -> dict[str, Any]:
    involved = {"kind": kind, "name": name, "namespace": "fleet-default", "apiVersion": "windrow.io/v1alpha1"}
    fields = {"type": "Normal", "count": 1, "lastTimestamp": "2026-01-01T12:00:00Z", **rest}
    return new_object(
        EVENT,
        f"{name}.{reason.lower()}",
        "fleet-default",
        involvedObject=involved,
        reason=reason,
        message=message,
        **fields,
    )


async def _record(api: LoopbackClient, *events: dict[str, Any]) -> None:
    for one in events:
        await api.create(EVENT, one)


@pytest.fixture
def orchard(windrow: Windrow, manager: Manager) -> Manager:
    """A management API with cluster orchard, a machine of it, and events of it, of a machine that is gone, and of another."""
    assert windrow("apply", "-f", "cluster.yaml").code == exit_codes.OK
    manager.do(report({"phase": "Provisioning", "conditions": CONDITIONS, "version": "v1.34.7+rke2r1"}))
    manager.do(enlist(NAME, "workers", phase="Joining", addresses=["10.0.0.11"], host="node-1"))
    events = (
        event("Cluster", "orchard", "CreateMachine", "Created Machine of pool workers", count=3),
        event("Machine", NAME, "ProvisionVM", "Provisioned VirtualMachine", type="Warning"),
        event("Machine", "orchard-workers-gone", "DeleteVM", "Deleted VirtualMachine"),
        event("Machine", "orchid-workers-a", "DeleteVM", "of another cluster"),
        event("Cluster", "orchid", "CreateMachine", "of another cluster"),
    )
    manager.do(lambda api: _record(api, *events))
    return manager


def test_events_of_a_cluster_are_its_own_and_those_of_its_machines_gone_ones_included(
    windrow: Windrow, orchard: Manager
):
    answer = windrow("events", "orchard")

    assert answer.code == exit_codes.OK
    for reason in (
        "CreateMachine  cluster/orchard (x3 over -)",
        f"ProvisionVM  machine/{NAME}",
        "orchard-workers-gone",
    ):
        assert reason in answer.out
    assert "another cluster" not in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_events_without_a_name_are_those_of_every_cluster_and_come_as_data(
    windrow: Windrow, orchard: Manager
):
    answer = windrow("events", "-o", "json")

    items = json.loads(answer.out)["items"]
    assert len(items) == 5
    assert {one["kind"] for one in items} == {"Event"}


def test_no_events_is_an_answer(windrow: Windrow, manager: Manager):
    answer = windrow("events")

    assert (answer.code, answer.out) == (exit_codes.OK, "No events: an API server keeps them for an hour.\n")


def test_describe_cluster_shows_fields_conditions_tree_and_events(windrow: Windrow, orchard: Manager):
    answer = windrow("describe", "cluster", "orchard")

    assert answer.code == exit_codes.OK
    lines = answer.out.splitlines()
    assert lines[:2] == ["Name:           orchard", "Namespace:      fleet-default"]
    conditions = [
        one.split(":")[0].strip() for one in lines[lines.index("Conditions:") + 1 :] if one[2:3].isupper()
    ]
    assert conditions[:3] == ["Ready", "CredentialValid", "Accepted"]
    assert "    expired" in lines
    assert "    → put another one there" in lines
    assert "Tree:" in lines
    assert f"   └─ {NAME}  joining  10.0.0.11" in lines
    assert "Created Machine of pool workers" in answer.out
    assert max(map(len, lines)) <= 80


def test_describe_machine_shows_where_it_is(windrow: Windrow, orchard: Manager):
    answer = windrow("describe", "machine", f"fleet-default/{NAME}")

    assert answer.code == exit_codes.OK
    assert "Host:           node-1" in answer.out
    assert "ProvisionVM" in answer.out
    assert "CreateMachine" not in answer.out


@pytest.mark.parametrize("kind", ["cluster", "machine"])
def test_describe_of_what_does_not_exist_names_the_command_that_lists(
    windrow: Windrow, manager: Manager, kind: str
):
    answer = windrow("describe", kind, "nowhere")

    assert answer.code == exit_codes.NOT_FOUND
    assert "List the " in answer.err


def test_describe_as_data_is_the_object(windrow: Windrow, orchard: Manager):
    assert json.loads(windrow("describe", "cluster", "orchard", "-o", "json").out)["kind"] == "Cluster"
