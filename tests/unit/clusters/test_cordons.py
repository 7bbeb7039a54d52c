"""Which cordon is whose: the manager takes away what it has put on a Node, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from windrow.clusters.api.names import CORDONED
from windrow.clusters.execute.cordons import render_cordon, render_uncordon
from windrow.clusters.state import Node, read_node

from .builders import a_machine, a_pool

MARK = {"metadata": {"annotations": {CORDONED: "true"}}}
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
