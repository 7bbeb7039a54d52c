"""The step Preflight: what only the machine knows is asked before its Node is cordoned."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from windrow.clusters.api.updates.turn import LIVE, SERVICE_RESTART, VM_RESTART
from windrow.clusters.plan.actions import (
    BeginUpdate,
    DropUpdate,
    EvictPods,
    FailUpdate,
    FinishUpdate,
    MarkNode,
    PartialPlan,
    PreflightUpdate,
    RecordUpdateStep,
)
from windrow.clusters.plan.planner import Plan
from windrow.clusters.plan.updates.failures import IMAGE_TIMEOUT, POD_TIMEOUT
from windrow.clusters.plan.updates.jobs.preflight import PREFLIGHT_TIMEOUT, preflight
from windrow.clusters.plan.updates.wanted import WantedUpdate, new_update
from windrow.clusters.state import MachineState, Pod
from windrow.clusters.updates.observed import ObservedJob

from .builders import NOON, a_machine, look, of_kind, silent, some, subjects
from .test_update_turns import (
    JOB,
    NEW,
    OLD,
    SERVERS,
    WORKERS,
    a_turn,
    an_update,
    at,
    drained_cluster,
    in_turn,
    plan_of,
    upgraded,
)

ASKING = f"{JOB}-preflight"
W1 = a_machine("w1", WORKERS)


def asking(state: Any = "running", message: str = "", **rest: Any) -> MachineState:
    """A worker that is asked; its Job is in that state, None for one that was not observed."""
    job = None if state is None else ObservedJob(ASKING, state, message, rest.pop("is_image_missing", False))
    machine = in_turn(W1, an_update(step="Preflight"), update_job=job, **rest)
    assert machine.node is not None
    return replace(machine, node=replace(machine.node, applied_revision="before"))


def touched(plan: Plan) -> list[Any]:
    return of_kind(plan, MarkNode, EvictPods, RecordUpdateStep, FinishUpdate)


@pytest.mark.parametrize(
    ("change", "version", "step"),
    [
        (SERVICE_RESTART, NEW, "Preflight"),
        (SERVICE_RESTART, OLD, "Drain"),
        (VM_RESTART, OLD, "Drain"),
        (LIVE, OLD, "Drain"),
    ],
)
def test_a_turn_for_another_version_begins_with_the_preflight_and_others_do_not(
    change: str, version: str, step: str
) -> None:
    state = look(upgraded(SERVERS, WORKERS), [W1, *some("w", 3, WORKERS)[1:]])
    update = new_update(W1, WantedUpdate("w1", change, version, "hash", "it changed"), state)
    assert (update.step, update.cordoned) == (step, change == VM_RESTART)


def test_a_machine_that_is_asked_is_neither_marked_nor_cordoned_nor_drained() -> None:
    pod = (Pod("shop", "cart-0"),)
    for state in (None, "absent", "waiting", "running"):
        plan = a_turn(asking(state, pods=pod), drained_cluster())
        assert touched(plan) == []
        (wait,) = [one for one in plan.waits if one.machine == "w1"]
        assert wait.what.startswith(f"Job kube-system/{ASKING} to ask Node w1 for disk and images")
        assert subjects(plan, PreflightUpdate) == (["w1"] if state == "absent" else [])


def test_nothing_is_asked_while_the_guest_does_not_answer() -> None:
    plan = a_turn(asking("absent"), guest=silent())
    assert of_kind(plan, PreflightUpdate, FailUpdate) == []
    assert any("guest API server" in one.what for one in plan.waits if one.machine == "w1")


def test_a_machine_that_can_take_the_release_is_drained_next() -> None:
    now = NOON + timedelta(minutes=1)
    (step,) = touched(a_turn(asking("succeeded"), drained_cluster(), now=now))
    assert (step.update.step, step.update.step_since, step.update.cordoned) == ("Drain", now, True)


def test_a_node_that_a_person_cordons_while_it_is_asked_is_not_taken_for_cordoned_by_the_turn() -> None:
    machine = asking("succeeded")
    assert machine.node is not None
    cordoned = replace(machine, node=replace(machine.node, unschedulable=True))
    (step,) = touched(a_turn(cordoned, drained_cluster()))
    assert (step.update.step, step.update.cordoned) == ("Drain", False)


def test_a_machine_that_cannot_take_it_fails_its_turn_with_what_it_said_and_no_other_begins() -> None:
    plan = a_turn(asking("failed", "/var/lib/rancher/rke2 has 5 KiB free; nothing was changed"))
    (failed,) = of_kind(plan, FailUpdate)
    assert failed.update.failure.step == "Preflight"  # type: ignore[attr-defined]
    assert "has 5 KiB free" in failed.update.failure.message  # type: ignore[attr-defined]
    assert "have it tried again: kubectl" in failed.update.failure.hint  # type: ignore[attr-defined]
    assert not failed.update.cordoned  # type: ignore[attr-defined]
    assert touched(plan) == []
    assert subjects(plan, BeginUpdate) == []


@pytest.mark.parametrize(
    ("state", "rest", "limit"),
    [
        ("running", {}, PREFLIGHT_TIMEOUT),
        (None, {}, PREFLIGHT_TIMEOUT),
        ("waiting", {}, POD_TIMEOUT),
        ("waiting", {"is_image_missing": True, "message": "ErrImagePull"}, IMAGE_TIMEOUT),
    ],
)
def test_a_job_that_is_late_fails_the_turn_and_not_a_second_sooner(
    state: Any, rest: dict[str, Any], limit: timedelta
) -> None:
    machine = asking(state, **rest)
    early = a_turn(machine, now=NOON + limit - timedelta(seconds=1))
    assert not of_kind(early, FailUpdate)
    assert [one.until for one in early.waits if one.machine == "w1"] == [NOON + limit]
    (failed,) = of_kind(a_turn(machine, now=NOON + limit), FailUpdate)
    message = failed.update.failure.message  # type: ignore[attr-defined]
    assert f"Job kube-system/{ASKING} was not over after {int(limit.total_seconds()) // 60}m" in message
    told = " (ErrImagePull)" if rest else ""
    assert message.endswith(f"m{told}; nothing was changed")


def test_a_node_that_runs_the_release_already_is_not_asked() -> None:
    update = an_update(step="Preflight", config_hash="hash")
    machine = in_turn(W1, update, update_job=ObservedJob(ASKING, "absent"))
    assert machine.node is not None
    shown = replace(machine, node=replace(machine.node, applied_revision="hash", kubelet_version=NEW))
    partial = PartialPlan()
    preflight(shown, update, look(upgraded(SERVERS, WORKERS), [shown]), partial)
    assert [type(one) for one in partial.actions] == [FinishUpdate]


def test_a_turn_whose_machine_could_not_take_the_release_is_dropped_when_the_spec_is_put_back() -> None:
    failure = replace(an_update(step="Preflight"), failure=None)
    machine = in_turn(W1, failure, former_jobs=())
    servers = some("s", 3, SERVERS)
    plan = plan_of(upgraded(SERVERS, WORKERS, version=OLD), [*servers, machine, *some("w", 3, WORKERS)[1:]])
    assert subjects(plan, DropUpdate) == ["w1"]


def test_another_version_while_a_machine_is_asked_begins_another_turn() -> None:
    servers = [at(one, "v1.35.5+rke2r1") for one in some("s", 3, SERVERS)]
    cluster = upgraded(SERVERS, WORKERS, version="v1.35.5+rke2r1")
    plan = plan_of(cluster, [*servers, asking(former_jobs=()), *some("w", 3, WORKERS)[1:]])
    (begun,) = [one for one in of_kind(plan, BeginUpdate) if one.subject == "w1"]
    assert (begun.update.step, begun.update.version) == ("Preflight", "v1.35.5+rke2r1")  # type: ignore[attr-defined]
