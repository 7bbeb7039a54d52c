from __future__ import annotations

import inspect
from typing import Any

from windrow.clusters.plan import actions
from windrow.demo.timeline import PHRASES, describe_event


def an_event(kind: str, name: str, reason: str, message: str) -> dict[str, Any]:
    return {"involvedObject": {"kind": kind, "name": name}, "reason": reason, "message": message}


def test_an_event_is_described_with_the_machine_the_action_and_its_message():
    event = an_event("Machine", "orchard-w-a-b", "DeleteMachine", "its VM is gone from Harvester")

    assert describe_event(event) == "Machine orchard-w-a-b is deleted: its VM is gone from Harvester"


def test_what_a_cluster_repeats_of_its_machine_is_told_once():
    assert (
        describe_event(an_event("Cluster", "orchard", "DeleteMachine", "orchard-w-a-b: its VM is gone"))
        is None
    )


def test_a_whole_cluster_s_end_is_not_told_machine_by_machine():
    assert (
        describe_event(an_event("Machine", "orchard-w-a-b", "DeleteMachine", "the Cluster is deleted"))
        is None
    )


def test_small_steps_and_strangers_are_left_out():
    assert describe_event(an_event("Machine", "orchard-w-a-b", "LabelNode", "kubelet may not")) is None
    assert describe_event(an_event("Pod", "x", "StartVM", "y")) is None


def test_every_phrase_is_about_an_action_that_exists():
    known = {name for name, value in inspect.getmembers(actions, inspect.isclass)} | {"RemediationRestricted"}

    assert set(PHRASES) <= known
