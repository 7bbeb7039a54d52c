from __future__ import annotations

from typing import Any, get_args

from windrow.clusters.plan import actions
from windrow.clusters.plan.operations import actions as operations
from windrow.demo.report import SHOWN, describe_event


def an_event(kind: str, name: str, reason: str, message: str) -> dict[str, Any]:
    return {"involvedObject": {"kind": kind, "name": name}, "reason": reason, "message": message}


def test_an_event_of_a_machine_is_told_as_kubectl_shows_it():
    event = an_event("Machine", "orchard-w-a-b", "DeleteMachine", "Deleted Machine orchard-w-a-b: not found")

    assert describe_event(event) == "Deleted Machine orchard-w-a-b: not found"


def test_what_a_cluster_repeats_of_its_machine_is_told_once():
    event = an_event("Cluster", "orchard", "DeleteMachine", "Deleted Machine orchard-w-a-b: not found")

    assert describe_event(event) is None


def test_a_whole_cluster_s_end_is_not_told_machine_by_machine():
    message = "Deleted Machine orchard-w-a-b: the Cluster is deleted"

    assert describe_event(an_event("Machine", "orchard-w-a-b", "DeleteMachine", message)) is None


def test_the_servers_that_a_restore_replaces_are_not_told_one_by_one():
    message = "Deleted Machine orchard-s-a-b: etcd is restored from snapshot on-demand-1-2-orchard-s-a-b-2"

    assert describe_event(an_event("Machine", "orchard-s-a-b", "DeleteMachine", message)) is None


def test_small_steps_and_strangers_are_left_out():
    assert describe_event(an_event("Machine", "orchard-w-a-b", "LabelNode", "kubelet may not")) is None
    assert describe_event(an_event("Pod", "x", "StartVM", "y")) is None


def test_every_reason_is_of_an_action_that_exists():
    found = [*get_args(actions.Action), *vars(operations).values()]
    known = {getattr(one, "reason", "") for one in found} | {"RemediationRestricted"}

    assert SHOWN["Cluster"] | SHOWN["Machine"] <= known
