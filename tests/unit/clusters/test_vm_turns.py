"""The steps of a turn that restarts a VM."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    look,
    minutes,
    missing,
    of_kind,
    planned,
    record_of,
    sighted,
    silent,
    stopped,
    unknown,
    unready,
)

from windrow.clusters.api.updates.turn import (
    SERVICE_RESTART,
    VM_RESTART,
    MachineUpdate,
    UpdateFailure,
    read_machine_update,
    render_machine_update,
)
from windrow.clusters.plan.actions import EditVM, FailUpdate, FinishUpdate, PowerVM, StartVM
from windrow.clusters.plan.updates.failures import RECHECK
from windrow.clusters.plan.updates.vm_turns import (
    START_TIMEOUT,
    STOP_TIMEOUT,
    VmStep,
    find_vm_step,
    is_vm_restart,
)
from windrow.clusters.state import MachineState

SERVERS, WORKERS = a_pool("servers", 1, SERVER), a_pool("workers", 1)


A_MINUTE = minutes(1)
SERVING = replace(a_machine("s1", SERVERS), api_problem="")


def an_update(step: str, since: timedelta = A_MINUTE, **rest: Any) -> MachineUpdate:
    return MachineUpdate(
        "digest",
        VM_RESTART,
        "v1.35.1+rke2r1",
        "",
        step,
        step_since=NOON - since,
        cordoned=True,
        boot="b-1",
        **rest,
    )


def in_turn(machine: MachineState, update: MachineUpdate) -> MachineState:
    return record_of(machine, status={"update": render_machine_update(update)})


def booted(machine: MachineState, boot: str) -> MachineState:
    assert machine.node is not None
    return replace(machine, node=replace(machine.node, boot_id=boot))


RUNNING = booted(a_machine("w1", WORKERS), "b-1")
STOPPED = booted(stopped(a_machine("w1", WORKERS)), "b-1")
BACK = booted(a_machine("w1", WORKERS), "b-2")


def step_of(machine: MachineState, update: MachineUpdate, **rest: Any) -> Any:
    return find_vm_step(machine, update, look(a_cluster(SERVERS, WORKERS), [machine], **rest))


@pytest.mark.parametrize(
    ("machine", "waiting", "action"),
    [
        (
            RUNNING,
            "VirtualMachine default/w1 to stop",
            PowerVM("it is edited while it does not run", "w1", "off"),
        ),
        (sighted(RUNNING, state="stopping"), "VirtualMachine default/w1 to stop", None),
        (STOPPED, "VirtualMachine default/w1 to be edited", EditVM("it is stopped", "w1", "v1.35.1+rke2r1")),
        (unknown(RUNNING), "the state of VirtualMachine default/w1 (401)", None),
    ],
)
def test_a_vm_is_stopped_and_then_edited(machine: MachineState, waiting: str, action: Any) -> None:
    step = step_of(machine, an_update("Stop"))
    assert (step.waiting_for, step.action, step.failed) == (waiting, action, "")


@pytest.mark.parametrize(
    ("machine", "waiting", "action"),
    [
        (STOPPED, "VirtualMachine default/w1 to run", PowerVM("it is edited", "w1", "on")),
        (sighted(RUNNING, state="starting"), "VirtualMachine default/w1 to run", None),
        (RUNNING, "Node w1 to report that it has booted", None),
        (unready(BACK), "Node w1 to become Ready again (kubelet stopped posting)", None),
        (replace(BACK, node=None), "Node w1 to be there again", None),
        (BACK, "", None),
    ],
)
def test_the_turn_ends_when_the_node_is_ready_after_another_boot(
    machine: MachineState, waiting: str, action: Any
) -> None:
    step = step_of(machine, an_update("Start"))
    assert (step.waiting_for, step.action, step.failed) == (waiting, action, "")


def test_a_step_says_until_when_it_waits() -> None:
    begun = NOON - A_MINUTE
    assert step_of(RUNNING, an_update("Stop")).until == begun + STOP_TIMEOUT
    assert step_of(STOPPED, an_update("Stop")).until == begun + STOP_TIMEOUT
    assert step_of(RUNNING, an_update("Start")).until == begun + START_TIMEOUT


@pytest.mark.parametrize("machine", [replace(RUNNING, vm=None), unknown(RUNNING, "")])
def test_a_vm_that_was_not_observed_yet_is_waited_for(machine: MachineState) -> None:
    step = step_of(machine, an_update("Stop"))
    assert step.waiting_for == "the state of VirtualMachine default/w1 (not observed yet)"


def test_a_node_whose_boot_was_never_known_is_not_asked_for_another() -> None:
    node = booted(RUNNING, "")
    assert step_of(node, replace(an_update("Start"), boot="")) == VmStep()


@pytest.mark.parametrize(
    ("machine", "voter"),
    [(SERVING, None), (SERVING, True), (a_machine("w1", WORKERS), False)],
)
def test_a_member_that_says_nothing_of_votes_and_a_worker_are_not_waited_for(
    machine: MachineState, voter: bool | None
) -> None:
    machine = booted(machine, "b-2")
    assert machine.node is not None
    machine = replace(machine, node=replace(machine.node, etcd_voter=voter))
    assert step_of(machine, an_update("Start")) == VmStep()


def test_a_member_of_etcd_has_to_vote_again() -> None:
    server = booted(a_machine("s1", SERVERS), "b-2")
    assert server.node is not None
    learner = replace(server, node=replace(server.node, etcd_voter=False))
    assert step_of(learner, an_update("Start")).waiting_for == "the etcd member of Node s1 to vote"


def test_a_member_that_says_nothing_yet_is_waited_for_where_others_say_it() -> None:
    server = booted(a_machine("s1", SERVERS), "b-2")
    assert server.node is not None
    silent = replace(server, node=replace(server.node, etcd_voter=None, since=NOON), api_problem="")
    state = look(a_cluster(SERVERS), [silent, a_machine("s2", SERVERS)])

    step = find_vm_step(silent, an_update("Start"), state)

    assert step.waiting_for == "the etcd member of Node s1 to vote"
    assert step.until == NOON + timedelta(minutes=2)


@pytest.mark.parametrize(
    ("problem", "told"),
    [(None, ""), ("no answer within 5 s", " (no answer within 5 s)")],
)
def test_the_api_server_of_a_machine_has_to_be_ready_again_and_is_asked_soon(
    problem: str | None, told: str
) -> None:
    """Its Node is Ready before, by another API server."""
    server = booted(replace(a_machine("s1", SERVERS), api_problem=problem), "b-2")

    step = step_of(server, an_update("Start"))

    assert step == VmStep(f"the API server of Node s1 to be ready{told}", until=NOON + RECHECK)


def test_a_guest_that_does_not_answer_is_waited_for() -> None:
    assert "the guest API server" in step_of(BACK, an_update("Start"), guest=silent()).waiting_for


@pytest.mark.parametrize(
    ("machine", "update", "failed"),
    [
        (RUNNING, an_update("Stop", STOP_TIMEOUT), "VirtualMachine default/w1 did not stop within 10m"),
        (RUNNING, an_update("Stop", STOP_TIMEOUT - timedelta(seconds=1)), ""),
        (STOPPED, an_update("Stop", STOP_TIMEOUT), ""),
        (
            RUNNING,
            an_update("Start", START_TIMEOUT),
            "after 15m the turn still waits for Node w1 to report that it has booted",
        ),
        (RUNNING, an_update("Start", START_TIMEOUT - timedelta(seconds=1)), ""),
        (BACK, an_update("Start", START_TIMEOUT), ""),
        (missing(RUNNING), an_update("Stop"), "VirtualMachine default/w1 is gone"),
    ],
)
def test_a_step_that_takes_too_long_fails(machine: MachineState, update: MachineUpdate, failed: str) -> None:
    assert step_of(machine, update).failed == failed


def planned_turn(machine: MachineState, update: MachineUpdate) -> Any:
    return planned(a_cluster(SERVERS, WORKERS), [a_machine("s1", SERVERS), in_turn(machine, update)])


@pytest.mark.parametrize(
    ("change", "failure", "starts"),
    [
        (VM_RESTART, None, True),
        (SERVICE_RESTART, None, False),
        (VM_RESTART, UpdateFailure("Start", "late"), False),
    ],
)
def test_only_a_turn_that_restarts_the_vm_and_has_not_failed_starts_it_itself(
    change: str, failure: UpdateFailure | None, starts: bool
) -> None:
    update = replace(an_update("Drain"), change=change, failure=failure)
    assert is_vm_restart(in_turn(RUNNING, update)) is starts
    assert not is_vm_restart(RUNNING)


def test_a_vm_that_is_stopped_for_its_turn_is_not_started_by_repair() -> None:
    plan = planned_turn(STOPPED, an_update("Stop"))
    assert of_kind(plan, EditVM)
    assert not of_kind(plan, StartVM, PowerVM)


def test_a_vm_that_is_off_after_its_turn_has_failed_is_started_by_repair() -> None:
    update = an_update("Start", failure=UpdateFailure("Start", "late"))
    assert of_kind(planned_turn(STOPPED, update), StartVM)


def test_a_turn_whose_edit_was_refused_fails_once_the_machine_is_back_and_only_then() -> None:
    update = an_update("Start", refused="exceeded quota")
    assert not of_kind(planned_turn(STOPPED, update), FailUpdate, FinishUpdate)
    [failed] = of_kind(planned_turn(BACK, update), FailUpdate)
    assert "step Edit: exceeded quota" in str(failed)
    assert of_kind(planned_turn(BACK, an_update("Start")), FinishUpdate)


def test_a_turn_that_was_late_ends_once_the_node_is_well() -> None:
    update = an_update("Start", failure=UpdateFailure("Start", "late"))
    assert of_kind(planned_turn(BACK, update), FinishUpdate)


def test_the_record_of_a_turn_is_read_as_it_is_written() -> None:
    update = an_update("Start", refused="exceeded quota")
    assert read_machine_update({"update": render_machine_update(update)}) == update
