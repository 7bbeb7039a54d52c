"""`windrow why`: the chain to the first cause at 80 columns, and what is left out where Harvester cannot be read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Manager, Windrow
from tests.unit.cli.test_commands import READY, enlist, report, with_credential

from windrow.app.describe.causes import Link
from windrow.cli import exit_codes
from windrow.cli.output.causes import render_chain
from windrow.cli.output.lines import to_text

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAME = "orchard-workers-a-b"
WAIT = {
    "for": f"VirtualMachine default/{NAME} to report an IP address (guest agent not connected)",
    "since": "2026-01-01T12:00:00Z",
    "next": "it joins the cluster",
}
NOT_READY = [{"type": "Ready", "status": "False", "reason": "InProgress", "message": "waiting for it"}]


@pytest.fixture
def waiting(windrow: Windrow, manager: Manager) -> Manager:
    """A management API with cluster orchard, which waits for one of its machines."""
    assert windrow("apply", "-f", "cluster.yaml").code == exit_codes.OK
    manager.do(report({"waiting": WAIT, "conditions": NOT_READY}))
    manager.do(enlist(NAME, "workers", phase="Provisioning", waiting=WAIT, conditions=NOT_READY))
    return manager


@pytest.mark.parametrize("name", ["orchard", "fleet-default/orchard"])
def test_why_goes_from_the_cluster_to_the_machine_that_it_waits_for(
    windrow: Windrow, waiting: Any, name: str
):
    answer = windrow("why", name)

    assert answer.code == exit_codes.OK
    lines = answer.out.splitlines()
    assert lines[0] == "Cluster fleet-default/orchard: condition Ready is False (InProgress)"
    assert lines[1] == "  → windrow status fleet-default/orchard"
    assert lines[2].startswith(f"First cause: Machine fleet-default/{NAME}, ")
    assert max(map(len, lines)) <= 80
    assert "What Harvester says is not known here" in answer.err


def test_why_of_a_machine_ends_at_what_harvester_says(windrow: Windrow, waiting: Any, tmp_path: Path):
    """The credential leads to a server that has no such kind, so that nothing is known of the VM."""
    with_credential(waiting, tmp_path)

    answer = windrow("why", NAME)

    assert answer.code == exit_codes.OK
    assert answer.out.startswith(f"Machine fleet-default/{NAME}, ")
    assert f"First cause: VirtualMachine default/{NAME}: cannot be read: " in answer.out
    assert answer.err == ""


def test_the_chain_is_printed_as_data(windrow: Windrow, waiting: Any):
    answer = windrow("why", "orchard", "-o", "json")

    links = json.loads(answer.out)["chain"]
    assert [one["kind"] for one in links] == ["Cluster", "Machine"]
    assert links[1]["since"] == "2026-01-01T12:00:00Z"
    assert links[1]["message"] == f"waits for {WAIT['for']}; then it joins the cluster"


def test_a_cluster_that_is_ready_waits_for_nothing(windrow: Windrow, waiting: Any):
    waiting.do(report({"waiting": None, "conditions": READY}))

    assert windrow("why", "orchard").out.splitlines()[0].endswith("condition Ready is True (Ready)")


def test_what_is_neither_a_cluster_nor_a_machine_is_told(windrow: Windrow, manager: Manager):
    answer = windrow("why", "nowhere")

    assert answer.code == exit_codes.NOT_FOUND
    assert "No Cluster and no Machine is named 'nowhere' in any namespace" in answer.err


def test_a_command_is_on_one_line_and_other_hints_are_wrapped_under_their_arrow():
    command = f"kubectl --kubeconfig HARVESTER.yaml -n default describe vm {'m' * 40}"
    links = [Link("A", "a", "", "is", None, command), Link("B", "b", "", "is", None, "widen " * 20)]

    lines = to_text(render_chain(links, NOON))

    assert lines[1] == f"  → {command}"
    assert [one[:4] for one in lines[3:]] == ["  → ", "    "]
