"""Records that are older than what machines run, as after a backup was put back: no former release is installed again."""

from __future__ import annotations

from dataclasses import replace
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
    of_kind,
    planned,
    record_of,
    sighted,
    silent,
    stopped,
    unready,
)

from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.updates.turn import (
    LIVE,
    SERVICE_RESTART,
    VM_RESTART,
    MachineUpdate,
    render_machine_update,
)
from windrow.clusters.api.version_steps import is_newer
from windrow.clusters.change.pending import pending_changes
from windrow.clusters.plan.actions import (
    Action,
    BeginUpdate,
    FinishUpdate,
    MarkNode,
    PartialPlan,
    PowerVM,
    RecordRunning,
    RecordUpdateStep,
    RecordVersion,
)
from windrow.clusters.plan.planner import Plan
from windrow.clusters.plan.updates import turns
from windrow.clusters.plan.updates.drain import drain
from windrow.clusters.plan.updates.evidence import is_applied_already
from windrow.clusters.plan.updates.records import correct_records
from windrow.clusters.state import MachineState, Node

OLD, NEW, NEXT = "v1.35.1+rke2r1", "v1.35.4+rke2r1", "v1.36.0+rke2r1"
SERVERS, WORKERS = a_pool("servers", 1, SERVER), a_pool("workers", 1)


def shows(machine: MachineState, version: str, revision: str = "1") -> MachineState:
    assert machine.node is not None
    return replace(machine, node=replace(machine.node, kubelet_version=version, applied_revision=revision))


def a_server(shown: str = NEW, **record: Any) -> MachineState:
    return shows(record_of(a_machine("s1", SERVERS), **record), shown)


def a_worker(shown: str = NEW, **record: Any) -> MachineState:
    return shows(record_of(a_machine("w1", WORKERS), **record), shown)


def asking(version: str = OLD, recorded: str = OLD) -> Cluster:
    cluster = a_cluster(SERVERS, WORKERS, version_wish=version)
    return replace(cluster, recorded=replace(cluster.recorded, version=recorded))


def kinds(plan: Plan, *wanted: type[Action]) -> list[tuple[type[Action], str]]:
    return [(type(one), one.subject) for one in of_kind(plan, *wanted)]


RECORDS = (RecordRunning, RecordVersion, BeginUpdate)


@pytest.mark.parametrize(
    ("running", "recorded", "newer"),
    [
        (NEW, OLD, True),
        ("v1.35.1+rke2r2", OLD, True),
        (OLD, OLD, False),
        (OLD, NEW, False),
        ("v1.35.4+k3s1", OLD, False),
        ("v1.35.4", OLD, False),
        ("v1.35.4", "v1.35.1", False),  # of no distribution that could be installed
        ("1.35.4+rke2r1", OLD, False),  # not as a kubelet writes it
        ("", OLD, False),
        (NEW, "", False),
        ("v1.35.4+rke2r1; reboot", OLD, False),
    ],
)
def test_a_version_that_a_guest_reports_is_believed_where_it_is_a_newer_one_of_its_distribution(
    running: str, recorded: str, newer: bool
) -> None:
    assert is_newer(running, recorded) is newer


def test_what_nodes_run_is_recorded_before_any_turn_begins() -> None:
    plan = planned(asking(NEXT), [a_server(), a_worker(OLD)], version_problems=())

    (action,) = of_kind(plan, *RECORDS)
    assert isinstance(action, RecordRunning)
    assert (action.machine, action.version) == ("s1", NEW)
    assert action.because == f"its Node runs {NEW}, and {OLD} was recorded: the record is older"


@pytest.mark.parametrize(
    "machine",
    [
        a_server(OLD),
        unready(a_server()),
        replace(a_server(), node=None),
        a_server(conditions=()),
        a_server(
            status={
                "update": render_machine_update(
                    MachineUpdate("x", SERVICE_RESTART, NEW, "", "Apply", NOON, NOON)
                )
            }
        ),
    ],
)
def test_no_record_is_behind_a_node_that_shows_nothing_newer_or_whose_machine_has_its_turn(
    machine: MachineState,
) -> None:
    assert kinds(planned(asking(), [machine]), RecordRunning) == []


def test_nothing_is_recorded_of_a_guest_that_does_not_answer() -> None:
    assert kinds(planned(asking(), [a_server()], guest=silent()), RecordRunning) == []


def test_the_version_of_the_cluster_follows_once_all_its_machines_are_recorded() -> None:
    machines = [a_server(version=NEW), a_worker(version=NEW)]
    plan = planned(asking(), machines)

    (action,) = of_kind(plan, *RECORDS)
    assert isinstance(action, RecordVersion)
    assert action.version == NEW
    assert kinds(planned(asking(), [machines[0], a_worker(OLD)]), *RECORDS) == []


def test_a_version_lower_than_what_a_node_shows_is_refused_also_before_it_is_recorded() -> None:
    (problem,) = pending_changes(look(asking(), [a_server()])).refused
    assert f"is {OLD}, lower than {NEW}, which the cluster runs" in problem.message


# -- turns of an older record --------------------------------------------------------------------------------------


def an_update(change: str = SERVICE_RESTART, config_hash: str = "2", **rest: Any) -> MachineUpdate:
    step = rest.pop("step", "Drain")
    return MachineUpdate("digest", change, NEW, config_hash, step, NOON - minutes(1), NOON, "job", **rest)


@pytest.mark.parametrize(
    ("version", "revision", "is_done"),
    [(NEW, "2", True), (OLD, "2", False), (NEW, "1", False), (NEW, "updating-digest", False)],
)
def test_a_turn_ends_at_once_where_its_node_shows_all_that_was_asked_for(
    version: str, revision: str, is_done: bool
) -> None:
    machine = shows(a_machine("w1", WORKERS), version, revision)
    state = look(asking(NEW), [a_server(OLD), machine])
    partial = PartialPlan()
    drain(machine, an_update(), state, partial)
    assert isinstance(partial.actions[0], FinishUpdate if is_done else (MarkNode, RecordUpdateStep))


@pytest.mark.parametrize(
    ("update", "is_done"),
    [
        (an_update(), True),
        (an_update(LIVE), True),
        (an_update(VM_RESTART), False),
        (an_update(restart="order"), False),
        (an_update(config_hash=""), False),
    ],
)
def test_an_order_to_restart_is_followed_though_its_node_shows_what_it_showed_before(
    update: MachineUpdate, is_done: bool
) -> None:
    machine = shows(a_machine("w1", WORKERS), NEW, "2" if update.config_hash else "")
    assert is_applied_already(machine, update, look(asking(NEW), [machine])) is is_done


def restart_plan(machine: MachineState, *, cordoned: bool = True, **rest: Any) -> PartialPlan:
    update = an_update(VM_RESTART, step="Stop", cordoned=cordoned)
    machine = record_of(machine, status={"update": render_machine_update(update)})
    return turns.plan(look(asking(), [shows(a_machine("s1", SERVERS), OLD), machine], **rest))


CORDONED = replace(a_worker(OLD), node=replace(a_worker(OLD).node or Node("w1"), unschedulable=True))


def test_a_node_that_takes_workloads_again_is_drained_again_before_its_vm_stops() -> None:
    (action,) = restart_plan(a_worker(OLD)).actions
    assert isinstance(action, RecordUpdateStep)
    assert (action.update.step, action.update.step_since) == ("Drain", NOON)
    assert isinstance(restart_plan(CORDONED).actions[0], PowerVM)
    assert isinstance(restart_plan(a_worker(OLD), cordoned=False).actions[0], PowerVM)


def test_no_vm_stops_while_its_guest_says_nothing_of_its_node() -> None:
    unseen = replace(CORDONED, node=None)
    partial = restart_plan(unseen, guest=silent())
    assert partial.actions == []
    (wait,) = [one for one in partial.waits if one.machine == "w1"]
    assert "the guest API server" in wait.what


@pytest.mark.parametrize("machine", [stopped(CORDONED), sighted(CORDONED, state="stopping")])
def test_a_vm_that_stops_goes_on_without_its_guest(machine: MachineState) -> None:
    partial = restart_plan(machine, guest=silent())
    (wait,) = [one for one in partial.waits if one.machine == "w1"]
    assert "guest" not in wait.what


def corrected(
    recorded: str, wanted: str, *machines: MachineState, **rest: Any
) -> tuple[bool, list[type[Action]]]:
    """Whether turns wait for a record to be corrected, and what is proposed for it."""
    partial = PartialPlan()
    is_held = correct_records(look(asking(wanted, recorded), machines, **rest), partial)
    return is_held, [type(one) for one in partial.actions]


IN_TURN = {"update": render_machine_update(MachineUpdate("x", SERVICE_RESTART, NEW, "", "Apply", NOON, NOON))}


def test_turns_wait_while_a_record_is_corrected_and_for_nothing_else() -> None:
    behind, new, old = a_server(), a_server(version=NEW), a_worker(OLD)
    assert corrected(OLD, OLD, behind, old) == (True, [RecordRunning])
    assert corrected(OLD, OLD, new) == (True, [RecordVersion])
    assert corrected(OLD, OLD, new, a_worker(version=NEW, status=IN_TURN)) == (False, [])
    assert corrected(OLD, OLD, new, old) == (False, [])
    assert corrected(OLD, NEW, new) == (False, [])  # the end of an upgrade records that
    assert corrected(NEW, OLD, new) == (False, [])
    assert corrected(NEXT, OLD, new) == (False, [])
    assert corrected(OLD, OLD, behind, guest=silent()) == (False, [])
