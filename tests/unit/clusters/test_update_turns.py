"""Turns of changes in place: which begin, which step is next, and what stops them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    ALL_ROLES,
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    condition,
    held,
    leaving,
    look,
    minutes,
    missing,
    nodeless,
    of_kind,
    planned,
    record_of,
    silent,
    some,
    subjects,
    unready,
)

from windrow.bootstrap.spec import Role
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.operations.recorded import Operations
from windrow.clusters.api.operations.rotations import RecordedTokenRotation
from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.api.updates.strategy import DrainOptions, UpgradeStrategy
from windrow.clusters.api.updates.turn import (
    SERVICE_RESTART,
    MachineUpdate,
    UpdateFailure,
    UpgradeSnapshot,
    job_name,
    read_machine_update,
    read_upgrade_snapshot,
    render_machine_update,
    update_id,
)
from windrow.clusters.bootstrap_data import find_config_hashes, list_left_versions
from windrow.clusters.execute.update_actions import inherits_charts
from windrow.clusters.plan.actions import (
    ApplyUpdate,
    BeginUpdate,
    DeleteFormerJobs,
    DeleteMachine,
    DropUpdate,
    EvictPods,
    FailUpdate,
    FinishUpdate,
    MarkNode,
    RecordUpdateStep,
    RecordVersion,
    UpdateNode,
    Wait,
)
from windrow.clusters.plan.operations.actions import SaveUpgradeSnapshot
from windrow.clusters.plan.operations.snapshots import request_name
from windrow.clusters.plan.planner import Plan
from windrow.clusters.plan.updates.evidence import mark_of
from windrow.clusters.plan.updates.failures import (
    APPLY_TIMEOUT,
    IMAGE_TIMEOUT,
    NODE_TIMEOUT,
    POD_TIMEOUT,
)
from windrow.clusters.plan.updates.upgrade_snapshot import REQUEST as UPGRADE_REQUEST
from windrow.clusters.state import MachineState, Pod
from windrow.clusters.updates.observed import ObservedJob
from windrow.clusters.updates.status import is_api_away_for_update, rolling_out_condition, with_updating
from windrow.kubernetes.conditions import Condition, find_condition
from windrow.machines.port import Problem

OLD, NEW = "v1.35.1+rke2r1", "v1.35.4+rke2r1"
SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 3)
JOB = "windrow-update-1"


def upgraded(*pools: Pool, version: str = NEW, **rest: Any) -> Cluster:
    return a_cluster(*pools, version_wish=version, **rest)


def plan_of(cluster: Cluster, machines: list[MachineState], **rest: Any) -> Plan:
    rest.setdefault("version_problems", ())
    made = rest.pop("snapshot", {"version": cluster.version, "generation": 1, "name": "upgrade-1"})
    raw = {**cluster.recorded.raw, "upgradeSnapshot": made}
    cluster = replace(cluster, recorded=replace(cluster.recorded, raw=raw))
    return planned(cluster, machines, **rest)


def at(machine: MachineState, version: str) -> MachineState:
    """The machine as it is once it runs that version."""
    assert machine.node is not None
    node = replace(machine.node, kubelet_version=version)
    return replace(record_of(machine, version=version), node=node)


def an_update(**rest: Any) -> MachineUpdate:
    config_hash = rest.pop("config_hash", "")
    update = MachineUpdate(
        id=update_id(SERVICE_RESTART, NEW, config_hash),
        change=SERVICE_RESTART,
        version=NEW,
        config_hash=config_hash,
        step="Drain",
        since=NOON,
        step_since=NOON,
        job=JOB,
    )
    return replace(update, **rest)


def in_turn(machine: MachineState, update: MachineUpdate | None = None, **rest: Any) -> MachineState:
    """In its turn, its Node marked."""
    update = update or an_update()
    assert machine.node is not None
    node = replace(machine.node, applied_revision=mark_of(update), unschedulable=update.cordoned)
    status = {**machine.record.status, "update": render_machine_update(update)}
    return replace(record_of(machine, status=status), node=node, **rest)


def applying(machine: MachineState, job: ObservedJob | None = None, **rest: Any) -> MachineState:
    update = an_update(step="Apply", **rest)
    return in_turn(machine, update, update_job=job or ObservedJob(JOB, "running"))


DONE = ObservedJob(JOB, "succeeded")


def began(plan: Plan) -> list[str]:
    return subjects(plan, BeginUpdate)


# -- which turns begin -------------------------------------------------------------------------------------------


def test_one_server_begins_and_no_worker_before_the_servers_are_done() -> None:
    servers, workers = some("s", 3, SERVERS), some("w", 3, WORKERS)

    plan = plan_of(upgraded(SERVERS, WORKERS), servers + workers)

    assert began(plan) == ["s2"]  # s1, the oldest, is the one that machines join through
    assert held(plan) == {
        "s3": "one server at a time; s2 has its turn",
        "s1": "one server at a time; s2 has its turn",
    }


def test_as_many_workers_begin_as_the_strategy_says_once_the_servers_are_done() -> None:
    servers, workers = [at(one, NEW) for one in some("s", 3, SERVERS)], some("w", 3, WORKERS)
    strategy = UpgradeStrategy(workers=IntOrPercent(70))

    plan = plan_of(upgraded(SERVERS, WORKERS, upgrade_strategy=strategy), servers + workers)

    assert began(plan) == ["w1", "w2"]
    assert "workerConcurrency 70% allows 2 at a time" in held(plan)["w3"]


def test_a_worker_that_is_not_ready_counts_as_one_in_its_turn_and_has_none() -> None:
    servers = [at(one, NEW) for one in some("s", 3, SERVERS)]
    w1, w2, w3 = some("w", 3, WORKERS)
    strategy = UpgradeStrategy(workers=IntOrPercent(None, 2))

    plan = plan_of(upgraded(SERVERS, WORKERS, upgrade_strategy=strategy), [*servers, unready(w1), w2, w3])

    assert began(plan) == ["w2"]
    assert held(plan)["w1"] == "Node w1 is not Ready"


def test_all_workers_begin_at_once_where_that_is_asked_for() -> None:
    servers = [at(one, NEW) for one in some("s", 3, SERVERS)]
    strategy = UpgradeStrategy(workers=IntOrPercent(None, 0))

    plan = plan_of(upgraded(SERVERS, WORKERS, upgrade_strategy=strategy), servers + some("w", 3, WORKERS))

    assert began(plan) == ["w1", "w2", "w3"]


@pytest.mark.parametrize(
    ("break_other", "because"),
    [
        (unready, "etcd member s3 is not healthy"),
        (lambda one: replace(one, node=replace(one.node, etcd_voter=False)), "etcd member s3 is not healthy"),
        (lambda one: record_of(one, conditions=()), "server s3 has not joined yet"),
        (lambda one: record_of(one, deletion_timestamp=NOON), "one server at a time; s3 is leaving"),
    ],
)
def test_no_server_begins_while_another_one_is_not_well(break_other: Any, because: str) -> None:
    s1, s2, s3 = some("s", 3, SERVERS)

    plan = plan_of(upgraded(SERVERS), [s1, s2, break_other(s3)])

    assert began(plan) == []
    assert because in held(plan)["s2"]


def test_nothing_begins_while_the_guest_does_not_answer() -> None:
    plan = plan_of(upgraded(SERVERS), some("s", 3, SERVERS), guest=silent())

    assert began(plan) == []


@pytest.mark.parametrize(
    "rest",
    [
        {"cluster": {"paused": True}},
        {"version_problems": None},
        {"version_problems": (Problem("too new", "", "spec.kubernetesVersion"),)},
        {"problems": (Problem("no version", "", "spec.kubernetesVersion"),)},
    ],
)
def test_nothing_begins_where_the_cluster_is_paused_or_the_version_is_not_to_be_had(
    rest: dict[str, Any],
) -> None:
    cluster = upgraded(SERVERS, **rest.pop("cluster", {}))

    assert began(plan_of(cluster, some("s", 3, SERVERS), **rest)) == []


def test_the_machines_of_a_paused_pool_stay_and_those_of_others_begin() -> None:
    paused = replace(WORKERS, paused=True)
    others = a_pool("others", 1)
    servers = [at(one, NEW) for one in some("s", 3, SERVERS)]

    machines = [*servers, *some("w", 3, paused), a_machine("o1", others)]

    assert began(plan_of(upgraded(SERVERS, paused, others), machines)) == ["o1"]


def test_a_machine_in_its_turn_keeps_the_next_server_waiting() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)

    plan = plan_of(upgraded(SERVERS), [s1, applying(s2), s3])

    assert began(plan) == []
    assert held(plan)["s3"] == "one server at a time; s2 has its turn"


def test_no_turn_begins_after_a_failure() -> None:
    servers = [at(one, NEW) for one in some("s", 3, SERVERS)]
    w1, w2, w3 = some("w", 3, WORKERS)
    failed = in_turn(w1, an_update(step="Apply", failure=UpdateFailure("Apply", "no", "mend it", NOON)))

    plan = plan_of(upgraded(SERVERS, WORKERS), [*servers, failed, w2, w3])

    assert began(plan) == []
    assert (
        "its update to be mended (step Apply; condition RollingOut says why)"
        in plan.waits_by_machine["w1"].what
    )


def test_the_version_of_the_cluster_is_recorded_once_every_machine_runs_it() -> None:
    servers = [at(one, NEW) for one in some("s", 3, SERVERS)]

    assert of_kind(plan_of(upgraded(SERVERS), servers), RecordVersion) == [
        RecordVersion("all its machines do", NEW)
    ]
    assert not of_kind(plan_of(upgraded(SERVERS), [*servers[:2], at(servers[2], OLD)]), RecordVersion)


def test_a_lone_server_is_neither_cordoned_nor_drained() -> None:
    alone = a_pool("all", 1, ALL_ROLES)

    (action,) = of_kind(plan_of(upgraded(alone), [a_machine("a1", alone)]), BeginUpdate)

    assert isinstance(action, BeginUpdate)
    assert not action.update.cordoned


def test_a_node_that_a_user_has_cordoned_stays_cordoned() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    assert s2.node is not None
    s2 = replace(s2, node=replace(s2.node, unschedulable=True))

    (action,) = of_kind(plan_of(upgraded(SERVERS), [s1, s2, s3]), BeginUpdate)

    assert isinstance(action, BeginUpdate)
    assert not action.update.cordoned


# -- the steps of a turn -----------------------------------------------------------------------------------------


def a_turn(machine: MachineState, cluster: Cluster | None = None, **rest: Any) -> Plan:
    """The plan with this machine, a worker, in its turn, after the servers have had theirs."""
    servers = [at(one, NEW) for one in some("s", 3, SERVERS)]
    return plan_of(
        cluster or upgraded(SERVERS, WORKERS), [*servers, machine, *some("w", 3, WORKERS)[1:]], **rest
    )


W1 = a_machine("w1", WORKERS)


def test_a_node_is_marked_before_anything_is_changed_on_it() -> None:
    marked = in_turn(W1)
    assert marked.node is not None
    unmarked = replace(marked, node=replace(marked.node, applied_revision="other"))

    assert of_kind(a_turn(unmarked), MarkNode, RecordUpdateStep) == [
        MarkNode("Machine w1 is updated", "w1", "w1", False)
    ]
    (step,) = of_kind(a_turn(marked), MarkNode, RecordUpdateStep)
    assert isinstance(step, RecordUpdateStep)
    assert (step.update.step, step.update.step_since) == ("Apply", NOON)


def drained_cluster(**options: Any) -> Cluster:
    strategy = UpgradeStrategy(worker_drain=DrainOptions(enabled=True, **options))
    return upgraded(SERVERS, WORKERS, upgrade_strategy=strategy)


POD = Pod("shop", "cart-0")


def test_pods_are_evicted_before_the_job() -> None:
    machine = in_turn(W1, an_update(cordoned=True), pods=(POD, Pod("shop", "gone", is_deleting=True)))

    plan = a_turn(machine, drained_cluster())

    assert of_kind(plan, EvictPods, RecordUpdateStep) == [
        EvictPods("the Node is drained before it is updated", "w1", (("shop", "cart-0"),))
    ]
    assert "2 pods to be evicted from Node w1 (shop/cart-0, shop/gone)" in plan.waits_by_machine["w1"].what
    for count, named in ((3, "shop/p1, shop/p2, shop/p3)"), (5, "shop/p1, shop/p2, shop/p3 and 2 more)")):
        pods = tuple(Pod("shop", f"p{number}") for number in range(1, count + 1))
        many = a_turn(in_turn(W1, an_update(cordoned=True), pods=pods), drained_cluster())
        assert named in many.waits_by_machine["w1"].what


@pytest.mark.parametrize(("force", "evicted"), [(False, ()), (True, (("shop", "debug"),))])
def test_pods_without_a_controller_stay_unless_force_is_set(force: bool, evicted: Any) -> None:
    bare = Pod("shop", "debug", is_bare=True)
    alone = a_turn(in_turn(W1, an_update(cordoned=True), pods=(bare,)), drained_cluster(force=force))
    both = a_turn(in_turn(W1, an_update(cordoned=True), pods=(POD, bare)), drained_cluster(force=force))

    assert [type(one) for one in of_kind(alone, EvictPods, RecordUpdateStep)] == [
        EvictPods if force else RecordUpdateStep
    ]
    (action,) = of_kind(both, EvictPods)
    assert isinstance(action, EvictPods)
    assert action.pods == (("shop", "cart-0"), *evicted)
    count = "2 pods" if force else "1 pods"
    assert f"{count} to be evicted from Node w1" in both.waits_by_machine["w1"].what


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({}, [FailUpdate]),
        ({"ignore_errors": True}, [RecordUpdateStep]),
        ({"timeout": timedelta(minutes=11)}, [EvictPods]),
    ],
)
def test_pods_that_never_leave_stop_the_turn_unless_errors_are_ignored(
    options: dict[str, Any], kinds: list[Any]
) -> None:
    machine = in_turn(W1, an_update(cordoned=True), pods=(POD,))

    plan = a_turn(machine, drained_cluster(**options), now=NOON + minutes(10))

    found = of_kind(plan, EvictPods, RecordUpdateStep, FailUpdate)
    assert [type(one) for one in found] == kinds
    if kinds == [FailUpdate]:
        assert "shop/cart-0 did not leave Node w1 within 10m" in found[0].because


def test_pods_are_deleted_where_eviction_is_disabled() -> None:
    machine = in_turn(W1, an_update(cordoned=True), pods=(POD,))

    (evict,) = of_kind(a_turn(machine, drained_cluster(disable_eviction=True)), EvictPods)

    assert isinstance(evict, EvictPods)
    assert evict.deletes


def test_the_job_is_created_once() -> None:
    absent = a_turn(applying(W1, ObservedJob(JOB, "absent")))
    unknown = a_turn(replace(applying(W1), update_job=None))

    assert [action.subject for action in of_kind(absent, ApplyUpdate)] == ["w1"]
    assert not of_kind(unknown, ApplyUpdate)
    assert not of_kind(a_turn(applying(W1)), ApplyUpdate)


def shown(machine: MachineState, **node: Any) -> MachineState:
    assert machine.node is not None
    return replace(machine, node=replace(machine.node, **node))


@pytest.mark.parametrize(
    ("machine", "waits_for"),
    [
        (applying(W1), "Job kube-system/windrow-update-1 to write the files and restart the service"),
        (applying(W1, DONE), "Node w1 to report kubelet v1.35.4+rke2r1 (now unknown)"),
        (shown(applying(W1, DONE), kubelet_version=OLD), f"to report kubelet {NEW} (now {OLD})"),
        (shown(applying(W1, DONE), kubelet_version=NEW, ready=False), "Node w1 to become Ready again"),
        (replace(applying(W1), node=None), "Node w1 to be there again"),
    ],
)
def test_a_turn_ends_by_what_the_node_shows_and_says_what_is_missing(
    machine: MachineState, waits_for: str
) -> None:
    plan = a_turn(machine)

    assert waits_for in plan.waits_by_machine["w1"].what
    assert not of_kind(plan, FinishUpdate)


def test_a_node_that_runs_what_was_asked_for_ends_the_turn() -> None:
    plan = a_turn(shown(applying(W1, DONE, cordoned=True), kubelet_version=NEW))

    assert of_kind(plan, FinishUpdate) == [FinishUpdate(f"it runs {NEW}", "w1", "w1", True)]


def test_a_turn_that_was_interrupted_at_its_end_is_ended_without_the_job() -> None:
    machine = applying(W1, ObservedJob(JOB, "absent"), config_hash="abc")

    plan = a_turn(shown(machine, kubelet_version=NEW, applied_revision="abc"))

    assert subjects(plan, FinishUpdate) == ["w1"]
    assert not of_kind(plan, ApplyUpdate)


@pytest.mark.parametrize(
    ("changes", "waits_for"),
    [
        ({"etcd_voter": False}, "the etcd member of Node s1 to vote"),
        ({}, "the static pods of Node s1 to be listed"),
    ],
)
def test_a_server_is_done_when_its_member_votes_and_its_static_pods_are_known(
    changes: dict[str, Any], waits_for: str
) -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    machine = shown(applying(s1, DONE), kubelet_version=NEW, **changes)

    plan = plan_of(upgraded(SERVERS), [machine, s2, s3])

    assert waits_for in plan.waits_by_machine["s1"].what


def test_a_node_that_does_not_say_whether_its_member_votes_is_believed_after_two_minutes() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    ready = NOON - timedelta(seconds=90)
    machine = shown(applying(s1, DONE), kubelet_version=NEW, etcd_voter=None, since=ready)

    plan = plan_of(upgraded(SERVERS), [machine, s2, s3])
    wait = plan.waits_by_machine["s1"]
    assert wait.what == "the etcd member of Node s1 to vote"
    assert wait.until == ready + timedelta(minutes=2)

    late = shown(machine, since=NOON - timedelta(minutes=2))
    assert "to vote" not in plan_of(upgraded(SERVERS), [late, s2, s3]).waits_by_machine["s1"].what
    ahead = shown(machine, since=NOON + timedelta(hours=1))  # by the clock of the guest
    (told,) = [one for one in plan_of(upgraded(SERVERS), [ahead, s2, s3]).waits if one.machine == "s1"]
    assert told.until is not None
    assert told.until <= NOON + timedelta(minutes=2)
    others = [shown(one, etcd_voter=None) for one in (s2, s3)]  # a release that never says it
    silent_ones = plan_of(upgraded(SERVERS), [machine, *others])
    assert "to vote" not in silent_ones.waits_by_machine["s1"].what


@pytest.mark.parametrize(
    ("outdated", "problem", "waits_for"),
    [
        ((), "", ""),
        (("kube-apiserver-s1",), None, "static pod kube-apiserver-s1 to run v1.36.1+rke2r1"),
        ((), None, "the API server of Node s1 to be asked whether it is ready"),
        (
            (),
            "https://10.0.0.1:6443: 500",
            "the API server of Node s1 to be ready (https://10.0.0.1:6443: 500)",
        ),
    ],
)
def test_a_server_is_done_when_its_static_pods_are_of_the_release_and_its_own_api_is_ready(
    outdated: tuple[str, ...], problem: str | None, waits_for: str
) -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    machine = replace(shown(applying(s1, DONE), kubelet_version=NEW), outdated_static_pods=outdated)

    plan = plan_of(upgraded(SERVERS), [replace(machine, api_problem=problem), s2, s3])

    assert bool(of_kind(plan, FinishUpdate)) is not bool(waits_for)
    if waits_for:
        wait = plan.waits_by_machine["s1"]
        assert (wait.what.replace(NEW, "v1.36.1+rke2r1"), wait.until) == (
            waits_for,
            NOON + timedelta(seconds=5),
        )


# -- failures ----------------------------------------------------------------------------------------------------

WAITING = ObservedJob(JOB, "waiting")
NO_IMAGE = ObservedJob(JOB, "waiting", "ErrImagePull: no such host", is_image_missing=True)


@pytest.mark.parametrize(
    ("machine", "passed", "message"),
    [
        (applying(W1, ObservedJob(JOB, "failed", "curl: 404")), timedelta(), "failed on Node w1: curl: 404"),
        (applying(W1), APPLY_TIMEOUT, "the update took longer than 30m"),
        (
            record_of(
                unready(applying(W1)), conditions=(condition("Joined", "True"), condition("Ready", "False"))
            ),
            NODE_TIMEOUT,
            "Node w1 was not Ready for 10m after its service was restarted (kubelet stopped posting)",
        ),
    ],
)
def test_a_turn_fails_with_its_step_and_the_reason_and_not_a_second_sooner(
    machine: MachineState, passed: timedelta, message: str
) -> None:
    (failed,) = of_kind(a_turn(machine, now=NOON + passed), FailUpdate)

    assert isinstance(failed, FailUpdate)
    assert failed.because.startswith("step Apply: ")
    assert message in failed.because
    assert "windrow.io/retry-update=" in failed.because
    if passed:
        sooner = a_turn(machine, now=NOON + passed - timedelta(seconds=1))
        assert not of_kind(sooner, FailUpdate)
        assert sooner.waits_by_machine["w1"].until == NOON + passed


@pytest.mark.parametrize(
    ("job", "passed", "message"),
    [
        (NO_IMAGE, IMAGE_TIMEOUT, "does not run (ErrImagePull: no such host)"),
        (WAITING, POD_TIMEOUT, "the pod of Job kube-system/windrow-update-1 does not run"),
        (ObservedJob(JOB, "absent"), APPLY_TIMEOUT, "the update took longer than 30m"),
    ],
)
def test_a_job_that_has_yet_to_run_is_withdrawn_before_its_turn_fails(
    job: ObservedJob, passed: timedelta, message: str
) -> None:
    machine = applying(W1, job)
    assert not of_kind(a_turn(machine, now=NOON + passed - timedelta(seconds=1)), RecordUpdateStep)

    (step,) = of_kind(a_turn(machine, now=NOON + passed), RecordUpdateStep, FailUpdate)

    assert isinstance(step, RecordUpdateStep)
    assert (step.update.step, step.update.step_since) == ("Withdraw", NOON + passed)
    assert message in step.update.refused


def withdrawing(*jobs: ObservedJob) -> MachineState:
    return in_turn(W1, an_update(step="Withdraw", refused="it is late"), former_jobs=jobs)


def test_a_turn_is_called_failed_once_its_job_and_the_pod_are_gone() -> None:
    (delete,) = of_kind(a_turn(withdrawing(WAITING)), DeleteFormerJobs, FailUpdate)
    assert isinstance(delete, DeleteFormerJobs)
    assert delete.present == ""
    left = a_turn(withdrawing(ObservedJob(JOB, "absent")))
    assert not of_kind(left, DeleteFormerJobs, FailUpdate)
    assert left.waits_by_machine["w1"].what == f"Job kube-system/{JOB} to be gone"

    (failed,) = of_kind(a_turn(withdrawing()), FailUpdate)

    assert isinstance(failed, FailUpdate)
    assert (failed.update.step, failed.update.refused) == ("Apply", "")
    assert failed.because.startswith("step Apply: it is late; ")
    assert "windrow.io/retry-update=" in failed.because


@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_a_job_that_runs_while_it_is_withdrawn_has_its_turn_after_all(state: Any) -> None:
    (step,) = of_kind(a_turn(withdrawing(ObservedJob(JOB, state))), RecordUpdateStep, FailUpdate)

    assert isinstance(step, RecordUpdateStep)
    assert (step.update.step, step.update.refused, step.update.step_since) == ("Apply", "", NOON)


def test_nothing_is_concluded_of_a_job_that_is_withdrawn_while_the_guest_does_not_answer() -> None:
    unknown = replace(withdrawing(), former_jobs=None)
    plan = a_turn(unknown)
    assert not of_kind(plan, FailUpdate)
    assert plan.waits_by_machine["w1"].then == "its Job is withdrawn"
    assert not of_kind(a_turn(withdrawing(), guest=silent()), FailUpdate)


def test_a_pod_that_never_goes_fails_the_turn_once_its_job_has_ended_by_itself() -> None:
    machine = withdrawing(ObservedJob(JOB, "absent"))
    assert not of_kind(a_turn(machine, now=NOON + APPLY_TIMEOUT - timedelta(seconds=1)), FailUpdate)

    (failed,) = of_kind(a_turn(machine, now=NOON + APPLY_TIMEOUT), FailUpdate)

    assert "it is late; its pod is not gone after 30m" in failed.because


FAILURE = UpdateFailure("Apply", "no", "mend it", NOON)


def a_failed(**rest: Any) -> MachineState:
    return in_turn(
        W1, an_update(step="Apply", failure=FAILURE, **rest), update_job=ObservedJob(JOB, "failed", "no")
    )


def test_a_failed_turn_is_tried_again_where_a_user_asks_for_it() -> None:
    (again,) = of_kind(a_turn(record_of(a_failed(), retry_update=True)), BeginUpdate)

    assert isinstance(again, BeginUpdate)
    assert again.update.attempt == 2
    assert again.update.job == job_name("uid-w1", again.update.id, 2, again.update.since)
    assert again.update.failure is None


def test_a_failed_turn_begins_anew_where_the_spec_asks_for_something_else() -> None:
    (again,) = of_kind(a_turn(a_failed(id="another")), BeginUpdate)

    assert isinstance(again, BeginUpdate)
    assert (again.update.version, again.update.attempt) == (NEW, 1)


def test_a_failed_turn_ends_well_once_the_node_shows_that_it_runs_what_was_asked_for() -> None:
    late = replace(shown(a_failed(), kubelet_version=NEW), update_job=DONE)

    assert subjects(a_turn(late), FinishUpdate) == ["w1"]


def test_a_turn_in_which_nothing_was_written_is_dropped_when_the_spec_is_put_back() -> None:
    machine = in_turn(W1, an_update(cordoned=True))
    back = a_cluster(SERVERS, WORKERS)

    plan = plan_of(back, [*some("s", 3, SERVERS), machine])

    assert of_kind(plan, DropUpdate, BeginUpdate) == [
        DropUpdate("the spec asks for what it runs", "w1", "w1", True)
    ]


# -- repair ------------------------------------------------------------------------------------------------------


def long_unready(machine: MachineState) -> MachineState:
    return record_of(
        unready(machine),
        conditions=(condition("Joined", "True"), condition("Ready", "False", NOON - minutes(60))),
    )


def test_a_machine_in_its_turn_is_not_replaced() -> None:
    assert not of_kind(a_turn(long_unready(applying(W1))), DeleteMachine)


def test_a_machine_whose_turn_has_failed_is_replaced_only_where_a_user_asks_for_it() -> None:
    plan = a_turn(long_unready(a_failed()))
    asked = a_turn(record_of(long_unready(a_failed()), replace_now=True))

    assert not of_kind(plan, DeleteMachine)
    assert "its update failed" in held(plan)["w1"]
    assert subjects(asked, DeleteMachine) == ["w1"]


def test_no_etcd_member_is_removed_while_another_one_restarts() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    smaller = replace(SERVERS, quantity=2)

    plan = plan_of(upgraded(smaller), [s1, applying(s2), s3])

    assert not of_kind(plan, DeleteMachine)


def test_a_machine_that_a_user_has_replaced_waits_for_the_turn_of_another_server() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    asked = record_of(s3, replace_now=True)

    plan = plan_of(upgraded(SERVERS), [s1, applying(s2), asked])

    assert not of_kind(plan, DeleteMachine)
    assert "s2" in held(plan)["s3"]


def test_a_server_that_is_lost_during_a_drain_is_replaced_and_holds_the_restart() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)

    plan = plan_of(upgraded(SERVERS), [s1, in_turn(s2), missing(s3)])

    assert not of_kind(plan, RecordUpdateStep)
    assert "etcd member s3 is not healthy" in [one.what for one in plan.waits if one.machine == "s2"]
    assert subjects(plan, DeleteMachine) == ["s3"]


def test_a_healthy_server_is_not_removed_during_the_drain_of_another() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)

    plan = plan_of(upgraded(replace(SERVERS, quantity=2)), [s1, in_turn(s2), s3])

    assert not of_kind(plan, DeleteMachine)
    assert subjects(plan, RecordUpdateStep) == ["s2"]


def test_workers_that_are_lost_meanwhile_hold_a_restart_and_two_in_turn_do_not_hold_each_other() -> None:
    servers = [at(one, NEW) for one in some("s", 3, SERVERS)]
    w1, w2, w3 = some("w", 3, WORKERS)
    cluster = upgraded(SERVERS, WORKERS)

    lost = plan_of(cluster, [*servers, in_turn(w1), w2, unready(w3)])
    both = plan_of(cluster, [*servers, in_turn(w1), in_turn(w2), w3])

    assert not of_kind(lost, RecordUpdateStep)
    assert subjects(both, RecordUpdateStep) == ["w1"]


@pytest.mark.parametrize(("state", "deletes"), [("waiting", True), ("succeeded", True), ("running", False)])
def test_no_job_is_made_before_those_of_former_turns_are_gone(state: Any, deletes: bool) -> None:
    old = ObservedJob("windrow-update-old", state)
    machine = replace(applying(W1, ObservedJob(JOB, "absent")), former_jobs=(old,))

    plan = a_turn(machine)

    assert not of_kind(plan, ApplyUpdate)
    assert bool(of_kind(plan, DeleteFormerJobs)) is deletes
    named = "Job kube-system/windrow-update-old of a former turn to be gone"
    assert named in [one.what for one in plan.waits]
    assert of_kind(a_turn(replace(machine, former_jobs=())), ApplyUpdate)


def test_a_former_job_that_stays_fails_the_turn_with_its_name() -> None:
    old = ObservedJob("windrow-update-old", "running")
    since = NOON - APPLY_TIMEOUT
    machine = replace(in_turn(W1, an_update(step_since=since)), former_jobs=(old,))

    plan = a_turn(machine)
    (failed,) = of_kind(plan, FailUpdate, RecordUpdateStep)

    assert isinstance(failed, FailUpdate)
    assert failed.update.failure is not None
    assert "windrow-update-old of a former turn is not gone" in failed.update.failure.message
    assert not [one for one in plan.waits if "of a former turn to be gone" in one.what]


def test_a_former_job_that_waits_is_deleted_while_another_one_runs() -> None:
    old = tuple(ObservedJob(f"windrow-update-{state}", state) for state in ("running", "waiting"))
    machine = replace(applying(W1, ObservedJob(JOB, "absent")), former_jobs=old)

    assert of_kind(a_turn(machine), DeleteFormerJobs)


def test_a_turn_is_not_dropped_while_a_job_of_a_former_one_runs() -> None:
    old = ObservedJob("windrow-update-old", "running")
    machine = replace(in_turn(W1, an_update(cordoned=True)), former_jobs=(old,))

    assert not of_kind(plan_of(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), machine]), DropUpdate)


def test_each_turn_has_a_job_of_its_own_name() -> None:
    assert job_name("m", "id", 1, NOON) == job_name("m", "id", 1, NOON)
    assert job_name("m", "id", 1, NOON) != job_name("m", "id", 1, NOON + minutes(1))


# -- records -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", [an_update(), an_update(cordoned=True, failure=FAILURE, attempt=3)])
def test_what_is_recorded_is_read_back(update: MachineUpdate) -> None:
    assert read_machine_update({"update": render_machine_update(update)}) == update


def test_without_an_id_nothing_is_recorded() -> None:
    assert read_machine_update({}) is None
    assert read_machine_update({"update": {"version": NEW}}) is None


def test_roles_decide_the_tier_and_not_the_names_of_pools() -> None:
    api, etcd = a_pool("a", 1, frozenset({Role.CONTROL_PLANE})), a_pool("e", 3, frozenset({Role.ETCD}))
    members = some("e", 3, etcd)

    plan = plan_of(upgraded(etcd, api), [*members, a_machine("a9", api)])

    assert began(plan) == ["a9"]
    assert look(upgraded(etcd)).cluster.version == NEW


# -- what needs no restart ---------------------------------------------------------------------------------------


def test_labels_and_taints_of_a_pool_are_those_of_its_nodes_at_once_but_for_what_the_pool_never_had() -> None:
    pool = replace(WORKERS, labels={"tier": "gold", "zone": "b"}, taints=("a=1:NoSchedule", "b:NoExecute"))
    w1 = record_of(
        a_machine("w1", pool),
        labels={"tier": "silver", "old": "x"},
        taints=("a=1:NoSchedule", "c:NoSchedule"),
    )

    plan = plan_of(a_cluster(pool), [w1])

    assert of_kind(plan, UpdateNode) == [
        UpdateNode(
            "labels or taints of pool workers changed",
            "w1",
            "w1",
            {"old": None, "tier": "gold", "zone": "b"},
            ("a=1:NoSchedule", "b:NoExecute"),
            ("c:NoSchedule",),
            {"old": "x", "tier": "gold", "zone": "b"},
            ("a=1:NoSchedule", "c:NoSchedule", "b:NoExecute"),
        )
    ]


@pytest.mark.parametrize(
    ("found", "former", "wanted"),
    [
        ({"tier": "gold"}, {}, None),
        ({}, {}, None),  # a label that was taken away by hand
        ({"tier": "gold", "theirs": "1"}, {"old": "x"}, None),
        ({"tier": "silver"}, {}, {"tier": "gold"}),
        ({"tier": "gold", "old": "x"}, {"old": "x"}, {"old": None, "tier": "gold"}),
        ({"tier": "gold", "old": "y"}, {"old": "x"}, None),  # set by another client since
        ({"tier": "gold"}, {"tier": "silver"}, None),  # it is the pool's again
        ({"tier": "gold"}, "odd", None),
    ],
)
def test_labels_that_a_restart_has_brought_back_are_set_right_again(
    found: dict[str, str], former: Any, wanted: dict[str, Any] | None
) -> None:
    pool = replace(WORKERS, labels={"tier": "gold"})
    w1 = record_of(a_machine("w1", pool), labels={"tier": "gold"}, taints=())
    w1 = record_of(w1, status={**w1.record.status, "formerLabels": former})
    assert w1.node is not None
    w1 = replace(w1, node=replace(w1.node, label_items=frozenset(found.items())))

    actions = of_kind(plan_of(a_cluster(pool), [w1]), UpdateNode)

    assert [one.labels for one in actions if isinstance(one, UpdateNode)] == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("found", "former", "removed"),
    [
        ({"db=1:NoSchedule", "a:NoSchedule"}, ["db=1:NoSchedule"], ("db=1:NoSchedule",)),
        ({"db=2:NoSchedule"}, ["db=1:NoSchedule"], None),  # set by another client since
        ({"a:NoSchedule"}, ["a:NoSchedule"], None),  # it is the pool's again
        (set(), ["db=1:NoSchedule"], None),
        ({"db=1:NoSchedule"}, "db=1:NoSchedule", None),
    ],
)
def test_a_taint_that_was_to_be_given_or_was_brought_back_is_taken_away_where_the_pool_does_not_ask_for_it(
    found: set[str], former: Any, removed: tuple[str, ...] | None
) -> None:
    pool = replace(WORKERS, taints=("a:NoSchedule",))
    w1 = record_of(a_machine("w1", pool), labels={}, taints=("a:NoSchedule",))
    w1 = record_of(w1, status={**w1.record.status, "formerTaints": former})
    assert w1.node is not None
    w1 = replace(w1, node=replace(w1.node, taints=frozenset(found)))

    actions = of_kind(plan_of(a_cluster(pool), [w1]), UpdateNode)

    gone = [one.removed_taints for one in actions if isinstance(one, UpdateNode)]
    assert gone == ([removed] if removed else [])


def test_of_the_taints_that_a_pool_had_the_last_64_are_recorded() -> None:
    pool = replace(WORKERS, taints=("a:NoSchedule",))
    w1 = record_of(a_machine("w1", pool), labels={}, taints=("b:NoSchedule",))
    many = [f"t{number}:NoSchedule" for number in range(80)]
    w1 = record_of(w1, status={**w1.record.status, "formerTaints": many})

    [action] = of_kind(plan_of(a_cluster(pool), [w1]), UpdateNode)

    assert isinstance(action, UpdateNode)
    assert action.former_taints == (*many[18:], "b:NoSchedule", "a:NoSchedule")


@pytest.mark.parametrize(
    ("record", "cluster", "rest"),
    [
        ({"labels": None, "taints": None}, {}, {}),
        ({"labels": {"tier": "gold"}, "taints": ()}, {}, {}),
        ({"labels": {}, "taints": ()}, {"paused": True}, {}),
        ({"labels": {}, "taints": ()}, {}, {"guest": silent()}),
    ],
)
def test_a_node_is_left_alone_where_its_labels_are_right_or_unknown_or_nothing_is_to_change(
    record: dict[str, Any], cluster: dict[str, Any], rest: dict[str, Any]
) -> None:
    pool = replace(WORKERS, labels={"tier": "gold"})

    assert not of_kind(
        plan_of(a_cluster(pool, **cluster), [record_of(a_machine("w1", pool), **record)], **rest), UpdateNode
    )


def of_revisions(*pools: Pool, hashes: dict[str, str], **rest: Any) -> Cluster:
    cluster = a_cluster(*pools, **rest)
    return replace(cluster, recorded=replace(cluster.recorded, revisions={one: {} for one in hashes}))


def test_files_that_servers_apply_by_themselves_are_written_on_all_api_servers_at_once() -> None:
    servers = [record_of(one, config_hash="old") for one in some("s", 3, SERVERS)]
    workers = [record_of(one, config_hash="old") for one in some("w", 2, WORKERS)]
    present = {"servers": "new", "workers": "new"}
    cluster = of_revisions(SERVERS, replace(WORKERS, quantity=2), hashes={"old": "", "new": ""})

    plan = plan_of(cluster, servers + workers, config_hashes=present)

    begun = of_kind(plan, BeginUpdate)
    assert [(one.subject, one.update.change) for one in begun if isinstance(one, BeginUpdate)] == [
        ("s1", "live"),
        ("s2", "live"),
        ("s3", "live"),
    ]


def test_workers_have_their_turns_after_servers_whose_files_are_written_first() -> None:
    """Red before: while the servers got the files with a new token, a worker restarted for the change that they had yet to get."""
    token = RecordedTokenRotation(generation=1, phase="PostRotateRestart", id="token-1-7", since=NOON)
    cluster = upgraded(SERVERS, WORKERS)
    operations = replace(cluster.recorded.operations, token=token)
    cluster = replace(cluster, recorded=replace(cluster.recorded, operations=operations))

    plan = plan_of(cluster, [*some("s", 3, SERVERS), *some("w", 3, WORKERS)])

    assert [
        (one.subject, one.update.change) for one in of_kind(plan, BeginUpdate) if isinstance(one, BeginUpdate)
    ] == [
        ("s1", "live"),
        ("s2", "live"),
        ("s3", "live"),
    ]


def test_a_server_whose_credential_is_for_new_machines_applies_files_all_the_same() -> None:
    server = record_of(a_machine("s1", SERVERS), config_hash="old", credential="fleet-default:former")

    plan = plan_of(
        of_revisions(SERVERS, hashes={"old": "", "new": ""}), [server], config_hashes={"servers": "new"}
    )

    begun = of_kind(plan, BeginUpdate)
    assert [one.update.change for one in begun if isinstance(one, BeginUpdate)] == ["live"]


def test_no_turn_begins_before_it_is_recorded_what_the_machine_will_be() -> None:
    """Were it lost with the status, a spec that changes would leave the machine with a configuration of which nothing is known."""
    server = record_of(a_machine("s1", SERVERS), config_hash="old")
    cluster = of_revisions(SERVERS, hashes={"old": ""})

    assert began(plan_of(cluster, [server], config_hashes={"servers": "new"})) == []


def plan_of_left_release(config_hash: str, **revisions: dict[str, Any]) -> Plan:
    """Of a cluster that was asked for a newer release and is asked for its own again: one of its servers has the newer one."""
    server = at(record_of(a_machine("s1", SERVERS), config_hash=config_hash), NEW)
    cluster = a_cluster(SERVERS, WORKERS)
    cluster = replace(cluster, recorded=replace(cluster.recorded, revisions=revisions))
    hashes = {"config_hashes": {"servers": "present"}, "left_hashes": {NEW: {"servers": "new"}}}
    return plan_of(cluster, [server, *some("w", 3, WORKERS)], **hashes)


@pytest.mark.parametrize(
    ("was", "change"),
    [({"spec.rkeConfig.machineGlobalConfig.kubelet-arg": ["max-pods=9"]}, SERVICE_RESTART), ({}, "live")],
)
def test_a_machine_with_a_release_that_is_left_is_known_after_its_turn(
    was: dict[str, Any], change: str
) -> None:
    """Without the hash of its configuration no later edit was compared with it: chart values never reached the cluster."""
    (begun,) = of_kind(plan_of_left_release("old", old=was, new={}), BeginUpdate)

    assert isinstance(begun, BeginUpdate)
    update = begun.update
    assert (update.change, update.version, update.config_hash) == (change, NEW, "new")


def test_a_release_is_left_where_machines_have_it_that_is_neither_run_nor_asked_for() -> None:
    cluster = a_cluster(SERVERS, WORKERS)
    s1, s2 = (machine.record for machine in some("s", 2, SERVERS))
    records = [replace(s1, version=NEW), s2, replace(s2, version=""), replace(s1, version="latest")]

    assert list_left_versions(cluster, records) == ["latest", NEW]
    assert list_left_versions(replace(cluster, version=NEW), records[:3]) == []
    assert list_left_versions(replace(cluster, recorded=replace(cluster.recorded, version="")), records) == []
    assert find_config_hashes(cluster, "latest") == {"servers": "", "workers": ""}


def test_no_turn_begins_before_the_revision_with_a_release_that_is_left_is_recorded() -> None:
    assert began(plan_of_left_release("old", old={})) == []


def test_a_machine_with_a_release_that_is_left_and_all_that_is_asked_for_has_no_turn() -> None:
    assert began(plan_of_left_release("new", new={})) == []


def test_what_is_not_recorded_of_a_configuration_writes_no_files() -> None:
    servers = [record_of(one, config_hash="older-release") for one in some("s", 3, SERVERS)]

    plan = plan_of(of_revisions(SERVERS, hashes={"old": ""}), servers, config_hashes={"servers": "new"})

    assert began(plan) == []


def test_a_turn_that_writes_files_ends_with_its_job() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    update = an_update(step="Apply", change="live", version=OLD)
    machine = in_turn(s1, update, update_job=DONE)

    plan = plan_of(a_cluster(SERVERS), [machine, s2, s3])

    assert of_kind(plan, FinishUpdate) == [FinishUpdate("its configuration is applied", "s1", "s1", False)]


def test_a_worker_has_its_turn_while_a_server_is_replaced_and_a_server_has_none() -> None:
    done = [at(one, NEW) for one in some("s", 3, SERVERS)]
    lost = [done[0], done[1], missing(done[2])]
    plan = plan_of(upgraded(SERVERS, WORKERS), [*lost, *some("w", 3, WORKERS)])
    assert (subjects(plan, DeleteMachine), began(plan)) == (["s3"], ["w1"])

    outdated = [*some("s", 2, SERVERS), missing(done[2])]
    plan = plan_of(upgraded(SERVERS, WORKERS), [*outdated, *some("w", 3, WORKERS)])
    assert (subjects(plan, DeleteMachine), began(plan)) == (["s3"], [])
    assert held(plan)["s2"] == "one server at a time; s3 is leaving"


def test_the_replacement_of_a_server_that_never_joined_counts_no_members() -> None:
    never = missing(nodeless(a_machine("s3", SERVERS)))
    plan = plan_of(a_cluster(SERVERS), [*some("s", 2, SERVERS), never])

    (deletion,) = of_kind(plan, DeleteMachine)
    assert isinstance(deletion, DeleteMachine)
    assert (deletion.machine, deletion.counted) == ("s3", ())

    member = missing(a_machine("s3", SERVERS))
    (deletion,) = of_kind(plan_of(a_cluster(SERVERS), [*some("s", 2, SERVERS), member]), DeleteMachine)
    assert isinstance(deletion, DeleteMachine)
    assert deletion.counted == ("s1", "s2")


# -- the snapshot before -----------------------------------------------------------------------------------------


def test_a_snapshot_of_etcd_is_made_before_the_first_machine_changes_its_version() -> None:
    plan = plan_of(upgraded(SERVERS), some("s", 3, SERVERS), snapshot=None)

    (save,) = of_kind(plan, SaveUpgradeSnapshot)
    assert isinstance(save, SaveUpgradeSnapshot)
    assert (save.member, save.version, save.name) == ("s1", NEW, "upgrade-v1.35.4-rke2r1-1")
    assert began(plan) == []


LATER = "2026-01-01T12:01:00Z"


@pytest.mark.parametrize(
    ("made", "asks", "begins"),
    [
        ({"version": NEW, "generation": 1, "name": "upgrade-1"}, False, True),
        ({"version": OLD, "generation": 1, "name": "upgrade-1"}, True, False),
        ({"version": NEW, "generation": 0, "name": "upgrade-1"}, True, False),
        ({"version": NEW, "generation": 1, "message": "too old"}, False, True),
        ({"version": NEW, "generation": 1, "message": "no answer", "retryAt": LATER}, False, False),
        ({"version": NEW, "generation": 1, "message": "no", "retryAt": "2026-01-01T12:00:00Z"}, True, False),
    ],
)
def test_the_first_turn_begins_once_there_is_a_snapshot_or_none_can_be_had(
    made: dict[str, Any], asks: bool, begins: bool
) -> None:
    plan = plan_of(upgraded(SERVERS), some("s", 3, SERVERS), snapshot=made)

    assert bool(of_kind(plan, SaveUpgradeSnapshot)) is asks
    assert bool(began(plan)) is begins
    if not (asks or begins):
        assert "an etcd snapshot before the upgrade to v1.35.4+rke2r1 (no answer)" in plan.waits[0].what


def test_no_turn_begins_before_a_snapshot_is_made_that_is_under_way() -> None:
    servers = some("s", 3, SERVERS)
    before = plan_of(upgraded(SERVERS), servers, snapshot=None, requests=frozenset({UPGRADE_REQUEST}))
    assert (of_kind(before, SaveUpgradeSnapshot), began(before)) == ([], [])
    assert before.waits[0].what == f"an etcd snapshot before the upgrade to {NEW} to be made"

    first = began(plan_of(upgraded(SERVERS), servers))
    on_demand = frozenset({request_name(one) for one in first})
    held = plan_of(upgraded(SERVERS), servers, requests=on_demand)
    assert not set(began(held)) & set(first)
    assert f"Machine {first[0]} to make an etcd snapshot" in [wait.what for wait in held.waits]


def test_no_snapshot_is_made_for_another_configuration_or_in_the_middle_of_an_upgrade_or_where_they_are_disabled() -> (
    None
):
    servers = some("s", 3, SERVERS)
    middle = plan_of(upgraded(SERVERS), [at(servers[0], NEW), *servers[1:]], snapshot=None)
    disabled = plan_of(upgraded(SERVERS, etcd={"disableSnapshots": True}), servers, snapshot=None)

    assert began(middle) == ["s2"]
    assert began(disabled) == ["s2"]


def a_failed_server(version: str, **rest: Any) -> MachineState:
    update = an_update(step="Apply", id="no-such", version=version, failure=FAILURE)
    return in_turn(a_machine("s1", SERVERS), update, update_job=ObservedJob(JOB, "failed", "no"), **rest)


def test_a_version_that_follows_one_that_failed_has_a_snapshot_of_its_own() -> None:
    other = {"version": "v1.35.99+rke2r1", "generation": 1, "name": "upgrade-99"}
    failed, others = a_failed_server("v1.35.99+rke2r1"), some("s", 3, SERVERS)[1:]

    first = plan_of(upgraded(SERVERS), [failed, *others], snapshot=other)
    then = plan_of(upgraded(SERVERS), [failed, *others])

    (save,) = of_kind(first, SaveUpgradeSnapshot)
    assert isinstance(save, SaveUpgradeSnapshot)
    assert save.version == NEW
    assert began(first) == []
    assert began(then) == ["s1"]


def test_a_version_that_replaces_another_before_anything_was_written_has_one_snapshot_of_its_own() -> None:
    update = an_update(id="other", version="v1.35.99+rke2r1")
    machines = [in_turn(a_machine("s1", SERVERS), update), *some("s", 3, SERVERS)[1:]]

    plan = plan_of(upgraded(SERVERS), machines, snapshot=None)

    assert len(of_kind(plan, SaveUpgradeSnapshot)) == 1
    assert began(plan) == []


def test_a_turn_that_failed_for_the_same_version_does_not_count_as_one_that_runs_it() -> None:
    failed = a_failed_server(NEW)

    plan = plan_of(upgraded(SERVERS), [failed, *some("s", 3, SERVERS)[1:]], snapshot=None)

    assert len(of_kind(plan, SaveUpgradeSnapshot)) == 1
    assert began(plan) == []


def test_the_way_out_of_a_failed_turn_waits_for_no_snapshot_that_no_member_can_make() -> None:
    lone = a_failed_server("v1.35.99+rke2r1")

    plan = plan_of(upgraded(a_pool("servers", 1, SERVER)), [lone], snapshot=None, guest=silent())

    assert of_kind(plan, SaveUpgradeSnapshot) == []
    assert began(plan) == ["s1"]


def test_no_snapshot_is_made_while_a_machine_is_being_given_the_version() -> None:
    update = an_update(step="Apply")
    workers = [in_turn(W1, an_update(step="Drain", id="other", version=NEW)), *some("w", 3, WORKERS)[1:]]
    server = in_turn(a_machine("s1", SERVERS), update, update_job=ObservedJob(JOB, "running"))

    plan = plan_of(upgraded(SERVERS, WORKERS), [server, *some("s", 3, SERVERS)[1:], *workers], snapshot=None)

    assert of_kind(plan, SaveUpgradeSnapshot) == []
    assert began(plan) == ["w1"]


# -- what is told, and what is put back --------------------------------------------------------------------------


def test_a_turn_says_which_version_or_which_field_it_is_for() -> None:
    w1 = record_of(a_machine("w1", WORKERS), config_hash="old")
    recorded = {"spec.rkeConfig.machineGlobalConfig.kubelet-arg": ["max-pods=9"]}
    cluster = of_revisions(WORKERS, hashes={"old": ""})
    cluster = replace(cluster, recorded=replace(cluster.recorded, revisions={"old": recorded, "new": {}}))

    (version,) = of_kind(plan_of(upgraded(WORKERS), [w1]), BeginUpdate)
    (field,) = of_kind(plan_of(cluster, [w1], config_hashes={"workers": "new"}), BeginUpdate)

    assert version.because == f"kubernetesVersion is {NEW}, it runs {OLD}"
    assert field.because == "spec.rkeConfig.machineGlobalConfig.kubelet-arg changed"


def test_etcd_only_servers_come_before_workers() -> None:
    api, etcd = a_pool("a", 1, frozenset({Role.CONTROL_PLANE})), a_pool("e", 3, frozenset({Role.ETCD}))
    machines = [at(a_machine("a9", api), NEW), *some("e", 3, etcd), *some("w", 3, WORKERS)]

    assert began(plan_of(upgraded(etcd, api, WORKERS), machines)) == ["e1"]


def test_a_cordoned_node_is_not_drained_where_nothing_asks_for_it() -> None:
    machine = in_turn(W1, an_update(cordoned=True), pods=(POD,))

    assert subjects(a_turn(machine), RecordUpdateStep) == ["w1"]


def test_a_turn_that_has_written_files_and_failed_is_not_dropped_but_applies_what_was_there_before() -> None:
    back = a_cluster(SERVERS, WORKERS)

    plan = plan_of(back, [*some("s", 3, SERVERS), a_failed()])

    assert not of_kind(plan, DropUpdate)
    (again,) = of_kind(plan, BeginUpdate)
    assert isinstance(again, BeginUpdate)
    assert (again.machine, again.update.version) == ("w1", OLD)


def test_a_turn_for_another_version_begins_with_that_where_nothing_was_written_yet() -> None:
    machine = in_turn(W1, an_update(id="other", version="v1.35.2+rke2r1"))

    plan = a_turn(machine)

    assert not of_kind(plan, DropUpdate)
    assert subjects(plan, BeginUpdate) == ["w1"]


def test_a_node_that_is_ready_is_not_away_whatever_was_recorded_of_it_before() -> None:
    recorded = (condition("Joined", "True"), condition("Ready", "False", NOON - minutes(60)))

    plan = a_turn(record_of(applying(W1), conditions=recorded), now=NOON + NODE_TIMEOUT)

    assert not of_kind(plan, FailUpdate)


def updating(
    machine: MachineState, cluster: Cluster | None = None
) -> tuple[Condition | None, Condition | None]:
    """The conditions Updating of the machine and RollingOut of its Cluster."""
    state = look(cluster or upgraded(WORKERS), [machine])
    found = with_updating([], machine, Wait("its Job", "it runs", machine.name), state)
    return find_condition(found, "Updating"), rolling_out_condition(state, [Wait("its Job", "it runs", "w1")])


def test_conditions_say_what_a_turn_waits_for_and_why_it_has_failed() -> None:
    machine, cluster = updating(applying(W1))
    assert machine is not None
    assert cluster is not None
    assert (machine.status, machine.reason, machine.message) == (
        "True",
        "Applying",
        f"to {NEW}; waiting for its Job",
    )
    assert (cluster.status, cluster.message) == ("True", "w1 is being updated; waiting for its Job")

    machine, cluster = updating(a_failed())
    assert machine is not None
    assert cluster is not None
    assert (machine.status, machine.reason, machine.message) == (
        "False",
        "UpdateFailed",
        "step Apply: no; mend it",
    )
    assert cluster.reason == "UpdateFailed"
    assert cluster.message == "update of Machine w1 failed in step Apply: no; mend it"


def test_changes_that_are_paused_or_wait_behind_a_canary_are_said_with_the_command_that_goes_on() -> None:
    _, paused = updating(W1, upgraded(WORKERS, paused=True))
    _, idle = updating(W1, a_cluster(WORKERS, paused=True))
    canary = rolling_out_condition(
        look(upgraded(WORKERS, canary=1), [at(W1, NEW), *some("w", 3, WORKERS)[1:]])
    )
    gone = look(upgraded(WORKERS, paused=True, deletion_timestamp=NOON), [W1])

    assert paused == Condition(
        "RollingOut",
        "False",
        "Paused",
        "the Cluster is paused: no machine that exists is changed, and 1 waits for that; windrow resume fleet-default/prod goes on",
    )
    assert idle is not None
    assert idle.message == (
        "the Cluster is paused: no machine that exists is changed; windrow resume fleet-default/prod goes on"
    )
    assert canary is not None
    assert (canary.status, canary.reason) == ("False", "Canary")
    assert canary.message.endswith("1 is changed; windrow resume fleet-default/prod goes on")
    assert rolling_out_condition(gone) is None


def test_a_machine_and_a_cluster_that_never_had_a_turn_have_no_such_condition() -> None:
    assert updating(W1) == (None, None)
    had = [{"type": "Updating", "status": "True", "reason": "Applying", "message": "x"}]
    over = find_condition(with_updating(had, W1, None, look(upgraded(WORKERS), [W1])), "Updating")
    assert over is not None
    assert (over.status, over.reason) == ("False", "NotUpdating")


@pytest.mark.parametrize(("machines", "away"), [(1, True), (2, False)])
def test_the_api_is_expected_to_be_away_where_its_only_server_has_its_turn(machines: int, away: bool) -> None:
    first, *others = some("s", machines, SERVERS)

    assert is_api_away_for_update(look(upgraded(SERVERS), [applying(first), *others])) is away
    assert not is_api_away_for_update(look(upgraded(SERVERS), [first, *others]))


@pytest.mark.parametrize(("version", "begins"), [(OLD, ["s2"]), (NEW, [])])
def test_what_is_wrong_with_the_version_that_runs_does_not_keep_the_cluster_on_it(
    version: str, begins: list[str]
) -> None:
    problem = Problem(
        f"RKE2 {version} brings a chart that wants another Harvester", "", "spec.kubernetesVersion"
    )

    assert began(plan_of(upgraded(SERVERS), some("s", 3, SERVERS), version_problems=(problem,))) == begins


def test_a_machine_whose_vm_is_gone_in_its_turn_is_replaced() -> None:
    assert subjects(a_turn(missing(applying(W1))), DeleteMachine) == ["w1"]
    assert subjects(a_turn(missing(a_failed())), DeleteMachine) == ["w1"]


# -- the record of a turn ----------------------------------------------------------------------------------------


def test_the_record_of_a_turn_is_read_as_it_is_written_and_what_is_not_set_is_removed() -> None:
    whole = MachineUpdate(
        id="digest",
        change=SERVICE_RESTART,
        version=NEW,
        config_hash="hash",
        step="Apply",
        since=NOON,
        step_since=NOON + minutes(1),
        job=JOB,
        attempt=3,
        cordoned=True,
        boot="b-1",
        refused="quota",
        restart="certificates-1-7",
        failure=UpdateFailure("Apply", "no", "mend it", NOON),
    )
    bare = MachineUpdate("digest", SERVICE_RESTART, "", "", "Drain")

    for update in (whole, bare):
        assert read_machine_update({"update": render_machine_update(update)}) == update
    assert render_machine_update(bare) == {
        "id": "digest",
        "change": SERVICE_RESTART,
        "version": "",
        "configHash": "",
        "step": "Drain",
        "since": None,
        "stepSince": None,
        "job": None,
        "attempt": 1,
        "cordoned": False,
        "boot": None,
        "refused": None,
        "restart": None,
        "failure": None,
    }
    short = render_machine_update(replace(bare, failure=UpdateFailure("Drain", "no")))
    assert short["failure"] == {"step": "Drain", "message": "no", "hint": None, "since": None}


@pytest.mark.parametrize("raw", [None, [], "x", {}, {"id": ""}, {"change": "live"}])
def test_what_someone_else_has_written_there_is_no_turn(raw: Any) -> None:
    assert read_machine_update({"update": raw}) is None


def test_of_a_turn_that_was_cut_short_by_another_writer_the_rest_is_as_if_unset() -> None:
    nothing = dict.fromkeys(
        ("change", "version", "configHash", "step", "since", "stepSince", "job", "attempt", "boot", "failure")
    )
    expected = MachineUpdate("digest", "", "", "", "")
    assert read_machine_update({"update": {"id": "digest"}}) == expected
    assert read_machine_update({"update": {"id": "digest", **nothing, "cordoned": "yes"}}) == expected
    told = read_machine_update({"update": {"id": "digest", "failure": {}}})
    assert told is not None
    assert told.failure == UpdateFailure("", "")


def test_the_id_of_a_turn_is_another_one_for_each_thing_that_is_asked_for() -> None:
    asked = [
        ("live", "v1", "h1"),
        ("service restart", "v1", "h1"),
        ("live", "v2", "h1"),
        ("live", "v1", "h2"),
        ("live", "v1", "h1", "options"),
    ]
    ids = [update_id(*one) for one in asked]
    assert len(set(ids)) == len(asked)
    assert {len(one) for one in ids} == {12}
    assert update_id("live", "v1", "h1", "") == ids[0]
    # Recorded in Machines: another one would have a turn begun anew after an upgrade of the manager.
    assert update_id("service restart", "v1.35.4+rke2r1", "hash") == "fd925597c5d7"
    assert update_id("VM restart", "v1.35.4+rke2r1", "hash", "options") == "6edf98e662ea"


def test_each_turn_of_a_machine_has_a_job_of_its_own() -> None:
    names = {
        job_name("uid-1", "a", 1, NOON),
        job_name("uid-2", "a", 1, NOON),
        job_name("uid-1", "b", 1, NOON),
        job_name("uid-1", "a", 2, NOON),
        job_name("uid-1", "a", 1, NOON + minutes(1)),
    }
    assert len(names) == 5
    assert all(len(name) == len("windrow-update-") + 12 for name in names)


def test_the_snapshot_before_an_upgrade_is_read_as_it_was_recorded() -> None:
    raw = {
        "version": NEW,
        "generation": 2,
        "name": "upgrade-1",
        "message": "m",
        "retryAt": "2026-01-01T12:00:00Z",
    }
    assert read_upgrade_snapshot({"upgradeSnapshot": raw}) == UpgradeSnapshot(NEW, 2, "upgrade-1", "m", NOON)
    for other in (None, [], {}, dict.fromkeys(raw)):
        assert read_upgrade_snapshot({"upgradeSnapshot": other}) == UpgradeSnapshot("", 0, "", "", None)


def test_one_api_server_inherits_the_charts_where_no_one_is_left_that_was_given_them() -> None:
    s1, s2, s3 = (
        record_of(one, created=NOON + minutes(place)) for place, one in enumerate(some("s", 3, SERVERS))
    )
    (w1,) = some("w", 1, WORKERS)
    state = look(upgraded(SERVERS, WORKERS), [s3, s2, s1, w1])
    assert [one.name for one in state.machines if inherits_charts(one, state)] == ["s1"]

    lost = look(upgraded(SERVERS, WORKERS), [s3, record_of(s1, conditions=()), s2])
    assert [one.name for one in lost.machines if inherits_charts(one, lost)] == ["s2"], "it never joined"
    first = look(upgraded(SERVERS, WORKERS), [record_of(s3, is_init_server=True), s2, s1])
    assert not [one.name for one in first.machines if inherits_charts(one, first)]


def test_a_worker_waits_for_an_api_server_of_an_older_minor_that_is_being_replaced() -> None:
    """A kubelet must not be newer than any API server; servers that are replaced have no turn that would come first."""
    newer = "v1.36.1+rke2r1"
    servers = [at(one, newer) for one in some("s", 3, SERVERS)]
    workers = [at(one, OLD) for one in some("w", 1, WORKERS)]
    cluster = upgraded(SERVERS, a_pool("workers", 1), version=newer)

    plan = plan_of(cluster, [*servers[:2], leaving(at(servers[2], OLD)), *workers])
    assert subjects(plan, BeginUpdate) == []
    assert (
        Wait(
            f"API server s3, which runs {OLD}, to be replaced",
            f"it runs {newer}, which no API server may be older than",
            "w1",
        )
        in plan.waits
    )

    assert subjects(plan_of(cluster, [*servers, *workers]), BeginUpdate) == ["w1"]
    same_minor = upgraded(SERVERS, a_pool("workers", 1))
    servers = [at(one, NEW) for one in servers[:2]]
    plan = plan_of(same_minor, [*servers, leaving(at(a_machine("s3", SERVERS), OLD)), *workers])
    assert subjects(plan, BeginUpdate) == ["w1"]


@pytest.mark.parametrize(
    ("operations", "begins", "turns"),
    [
        (Operations(), [], ["s2"]),
        (Operations(rotate_token=1), ["BeginTokenRotation"], []),
        (Operations(rotate_keys=1), ["BeginKeyRotation"], []),
    ],
)
def test_no_turn_begins_with_a_rotation_that_holds_turns(
    operations: Operations, begins: list[str], turns: list[str]
) -> None:
    """It would restart a server with a token that opens nothing any more."""
    servers = [at(one, OLD) for one in some("s", 3, SERVERS)]

    plan = plan_of(upgraded(SERVERS, operations=operations), servers)

    found = [type(one).__name__ for one in plan.actions if type(one).__name__.endswith("Rotation")]
    assert found == begins
    assert subjects(plan, BeginUpdate)[:1] == turns
