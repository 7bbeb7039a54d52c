"""Which cordon is whose: the manager takes away what it has put on a Node, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windrow.clusters.api.names import CORDONED
from windrow.clusters.api.updates.maintenance import RecordedMaintenance, render_maintenance
from windrow.clusters.api.updates.turn import SERVICE_RESTART, MachineUpdate, render_machine_update
from windrow.clusters.execute.cordons import render_cordon, render_uncordon
from windrow.clusters.plan.actions import UncordonNode
from windrow.clusters.state import Node, read_node

from .builders import NOON, a_cluster, a_machine, a_pool, of_kind, planned, record_of

MARK = {"metadata": {"annotations": {CORDONED: "true"}}}
TURN = render_machine_update(MachineUpdate("abc", SERVICE_RESTART, "v1.35.1+rke2r1", "", "Apply"))
MAINTENANCE = render_maintenance(RecordedMaintenance("host-1", "maintenance mode", NOON))
UNMARK = {"metadata": {"annotations": {CORDONED: None}}}


def a_node(*, unschedulable: bool = False, by_manager: bool = False) -> Node:
    node = a_machine("w1", a_pool("workers", 1)).node
    assert node is not None
    return replace(node, unschedulable=unschedulable, is_cordoned_by_manager=by_manager)


def test_a_node_that_is_cordoned_says_by_whom() -> None:
    assert render_cordon(a_node()) == {"spec": {"unschedulable": True}, **MARK}
    assert render_cordon(None) == {"spec": {"unschedulable": True}, **MARK}
    assert render_cordon(a_node(unschedulable=True)) == {"spec": {"unschedulable": True}}


def test_a_cordon_of_a_person_stays() -> None:
    """Red before: whatever stood there at the end of a maintenance or a turn was taken away."""
    assert render_uncordon(a_node(unschedulable=True)) == {}
    assert render_uncordon(a_node(unschedulable=True, by_manager=True)) == {
        "spec": {"unschedulable": None},
        **UNMARK,
    }
    assert render_uncordon(a_node(by_manager=True)) == {"spec": {"unschedulable": None}, **UNMARK}
    assert render_uncordon(None) == {"spec": {"unschedulable": None}, **UNMARK}


def test_the_mark_is_read_from_the_node() -> None:
    raw = {
        "metadata": {"name": "w1", "uid": "u", **MARK["metadata"]},
        "spec": {"unschedulable": True},
        "status": {},
    }
    assert read_node(raw).is_cordoned_by_manager
    del raw["metadata"]["annotations"]
    assert not read_node(raw).is_cordoned_by_manager


@pytest.mark.parametrize(
    ("unschedulable", "by_manager", "status", "uncordoned"),
    [
        (True, True, {}, ["w1"]),
        (True, False, {}, []),  # of a person
        (False, True, {}, []),
        (True, True, {"update": TURN}, []),
        (True, True, {"hostMaintenance": MAINTENANCE}, []),
    ],
)
def test_a_cordon_of_the_manager_that_nothing_needs_is_taken_away(
    unschedulable: bool, by_manager: bool, status: dict[str, Any], uncordoned: list[str]
) -> None:
    """Red before: what a restored snapshot, or the late write of a manager that led before, had cordoned stayed so."""
    pool = a_pool("workers", 1)
    machine = record_of(a_machine("w1", pool), status=status)
    node = a_node(unschedulable=unschedulable, by_manager=by_manager)

    plan = planned(a_cluster(pool), [replace(machine, node=node)])

    assert [one.subject for one in of_kind(plan, UncordonNode)] == uncordoned


def test_in_a_paused_cluster_a_cordon_stays() -> None:
    pool = a_pool("workers", 1)
    machine = replace(a_machine("w1", pool), node=a_node(unschedulable=True, by_manager=True))

    assert not of_kind(planned(a_cluster(pool, paused=True), [machine]), UncordonNode)
