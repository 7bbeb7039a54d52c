"""The steps Drain and Apply one by one: what is done, what is said meanwhile, and what is looked at again when."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    a_cluster,
    a_machine,
    a_pool,
    condition,
    look,
    minutes,
    of_kind,
    record_of,
    silent,
    some,
    unready,
)
from tests.unit.clusters.test_update_turns import (
    DONE,
    JOB,
    NEW,
    OLD,
    SERVERS,
    W1,
    WORKERS,
    a_turn,
    an_update,
    applying,
    at,
    began,
    drained_cluster,
    in_turn,
    plan_of,
    shown,
    upgraded,
)

from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.api.updates.strategy import UpgradeStrategy
from windrow.clusters.api.updates.turn import LIVE, VM_RESTART, UpdateFailure
from windrow.clusters.plan.actions import (
    ApplyUpdate,
    EvictPods,
    FailUpdate,
    MarkNode,
    PartialPlan,
    RecordUpdateStep,
    RecordVersion,
)
from windrow.clusters.plan.operations.actions import SaveUpgradeSnapshot
from windrow.clusters.plan.updates.drain import drain, must_drain
from windrow.clusters.plan.updates.evidence import describe_end
from windrow.clusters.plan.updates.upgrade_snapshot import has_upgrade_snapshot
from windrow.clusters.state import MachineState, Pod
from windrow.clusters.updates.observed import ObservedJob

POD = Pod("shop", "cart-0")
ABSENT = ObservedJob(JOB, "absent")
CORDONED = an_update(cordoned=True)


def drained(machine: MachineState, *others: MachineState, **rest: Any) -> tuple[list[Any], list[Any]]:
    """The actions and waits of the step Drain of a machine, beside others."""
    update = machine.record.update
    assert update is not None
    partial = PartialPlan()
    state = look(rest.pop("cluster", upgraded(SERVERS, WORKERS)), [machine, *others], **rest)
    drain(machine, update, state, partial)
    return list(partial.actions), list(partial.waits)


# -- Drain -------------------------------------------------------------------------------------------------------


def test_a_node_that_was_uncordoned_meanwhile_is_cordoned_again() -> None:
    machine = shown(in_turn(W1, CORDONED), unschedulable=False)
    assert drained(machine) == ([MarkNode("Machine w1 is updated", "w1", "w1", True)], [])


@pytest.mark.parametrize(
    ("machine", "rest"), [(replace(in_turn(W1), node=None), {}), (in_turn(W1), {"guest": silent()})]
)
def test_without_its_node_nothing_is_done(machine: MachineState, rest: dict[str, Any]) -> None:
    actions, (wait,) = drained(machine, **rest)
    assert actions == []
    assert wait.then == "its Node is drained"


def test_pods_on_a_node_that_is_not_ready_are_not_waited_for() -> None:
    machine = unready(in_turn(W1, CORDONED, pods=(POD,)))
    (step,) = drained(machine, cluster=drained_cluster())[0]
    assert isinstance(step, RecordUpdateStep)


def test_a_node_is_drained_before_its_vm_stops_whatever_upgrade_strategy_says() -> None:
    machine = in_turn(W1, replace(CORDONED, change=VM_RESTART), pods=(POD,))
    (evict,) = drained(machine)[0]
    assert evict == EvictPods("the Node is drained before it is updated", "w1", (("shop", "cart-0"),), False)


@pytest.mark.parametrize(
    ("update", "enabled", "must"),
    [
        (CORDONED, True, True),
        (CORDONED, False, False),
        (an_update(), True, False),
        (replace(CORDONED, step="Apply"), True, False),
        (replace(CORDONED, change=VM_RESTART), False, True),
        (an_update(change=VM_RESTART), False, False),
    ],
)
def test_what_was_cordoned_for_its_turn_is_drained(update: Any, enabled: bool, must: bool) -> None:
    cluster = drained_cluster() if enabled else upgraded(SERVERS, WORKERS)
    assert must_drain(W1, update, look(cluster, [W1])) is must


def test_pods_are_looked_at_again_in_five_seconds_and_when_their_time_is_up() -> None:
    machine = in_turn(W1, CORDONED, pods=(POD,))
    for passed, until in ((0, 5), (598, 600)):
        now = NOON + timedelta(seconds=passed)
        _, (wait,) = drained(machine, cluster=drained_cluster(), now=now)
        assert wait.until == NOON + timedelta(seconds=until)


def test_what_disrupts_nothing_waits_for_no_other_server() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    held, (wait,) = drained(in_turn(s1), s2, unready(s3))
    assert held == []
    assert wait.what == "etcd member s3 is not healthy"
    (step,) = drained(in_turn(s1, an_update(change=LIVE)), s2, unready(s3))[0]
    assert (type(step), step.update.step) == (RecordUpdateStep, "Apply")


# -- Apply -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "because"),
    [
        ({}, f"it writes the files for {NEW} and restarts the service"),
        ({"change": LIVE}, f"it writes the files for {NEW}"),
        ({"restart": "certificates-1-7"}, "it restarts the service"),
    ],
)
def test_a_job_says_what_it_does(update: dict[str, Any], because: str) -> None:
    (made,) = of_kind(a_turn(applying(W1, ABSENT, **update)), ApplyUpdate)
    assert made == ApplyUpdate(because, "w1", JOB, "w1")


@pytest.mark.parametrize(
    ("machine", "rest"),
    [
        (shown(applying(W1, ABSENT), applied_revision="another"), {}),
        (replace(applying(W1, ABSENT), node=None), {}),
        (applying(W1, ABSENT), {"guest": silent()}),
    ],
)
def test_no_job_is_made_for_a_node_that_is_not_marked_for_it(
    machine: MachineState, rest: dict[str, Any]
) -> None:
    assert not of_kind(a_turn(machine, **rest), ApplyUpdate)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (ABSENT, f"Job kube-system/{JOB} to be created"),
        (ObservedJob(JOB, "waiting"), f"the pod of Job kube-system/{JOB} to run"),
        (
            ObservedJob(JOB, "waiting", "ContainerCreating"),
            f"the pod of Job kube-system/{JOB} to run (ContainerCreating)",
        ),
    ],
)
def test_what_a_turn_waits_for_is_said_of_its_job(job: ObservedJob, said: str) -> None:
    assert a_turn(applying(W1, job)).waits_by_machine["w1"].what == said


def test_what_is_true_at_the_end_is_said() -> None:
    assert describe_end(W1, an_update()) == f"it runs {NEW}"
    assert describe_end(at(W1, NEW), an_update(restart="1-7")) == "its service was restarted"
    assert describe_end(at(W1, NEW), an_update()) == "its configuration is applied"


def away(since: timedelta) -> MachineState:
    conditions = (condition("Joined", "True"), condition("Ready", "False", NOON + since))
    return record_of(unready(applying(W1)), conditions=conditions)


@pytest.mark.parametrize(("since", "until"), [(minutes(-20), minutes(10)), (minutes(5), minutes(15))])
def test_a_node_may_be_away_for_ten_minutes_of_the_step(since: timedelta, until: timedelta) -> None:
    early = a_turn(away(since), now=NOON + until - timedelta(seconds=1))
    assert not of_kind(early, FailUpdate)
    assert early.waits_by_machine["w1"].until == NOON + until
    assert of_kind(a_turn(away(since), now=NOON + until), FailUpdate)


@pytest.mark.parametrize(
    ("job", "late"),
    [
        (ObservedJob(JOB, "waiting", "ErrImagePull", is_image_missing=True), 2),
        (ObservedJob(JOB, "waiting"), 5),
        (ObservedJob(JOB, "running"), 30),
    ],
)
def test_how_long_a_job_may_take(job: ObservedJob, late: int) -> None:
    for passed, is_late in ((late * 60 - 1, False), (late * 60, True)):
        plan = a_turn(applying(W1, job), now=NOON + timedelta(seconds=passed))
        assert bool(of_kind(plan, FailUpdate, RecordUpdateStep)) is is_late


@pytest.mark.parametrize(
    ("static_pods", "job", "until"),
    [
        (None, DONE, timedelta(seconds=5)),
        (("kube-apiserver-s1",), DONE, timedelta(seconds=5)),
        (("kube-apiserver-s1",), ObservedJob(JOB, "running"), minutes(30)),
        (None, ObservedJob(JOB, "running"), minutes(30)),
    ],
)
def test_static_pods_are_not_watched_and_looked_at_again_in_five_seconds(
    static_pods: Any, job: ObservedJob, until: timedelta
) -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    machine = replace(shown(applying(s1, job), kubelet_version=NEW), outdated_static_pods=static_pods)
    plan = plan_of(upgraded(SERVERS), [machine, s2, s3])
    assert plan.waits_by_machine["s1"].until == NOON + until


# -- which begin -------------------------------------------------------------------------------------------------


def test_machines_of_a_paused_pool_have_no_turn_also_where_all_workers_may() -> None:
    paused, others = replace(WORKERS, paused=True), a_pool("others", 1)
    servers = [at(one, NEW) for one in some("s", 3, SERVERS)]
    every = UpgradeStrategy(workers=IntOrPercent(None, 0))
    machines = [*servers, *some("w", 3, paused), a_machine("o1", others)]
    assert began(plan_of(upgraded(SERVERS, paused, others, upgrade_strategy=every), machines)) == ["o1"]


def test_the_version_is_recorded_where_it_is_another_and_every_machine_runs_it() -> None:
    servers = some("s", 3, SERVERS)
    assert not of_kind(plan_of(a_cluster(SERVERS), servers), RecordVersion)
    assert not of_kind(plan_of(upgraded(SERVERS), []), RecordVersion)
    of_a_removed_pool = a_machine("x1", a_pool("removed", 1))
    done = [at(one, NEW) for one in servers]
    assert not of_kind(plan_of(upgraded(SERVERS), [*done, of_a_removed_pool]), RecordVersion)


def boots(machine: MachineState, boot: str) -> MachineState:
    return shown(machine, boot_id=boot)


@pytest.mark.parametrize(
    ("spoil", "cordons"),
    [
        (lambda one: one, True),
        (unready, False),
        (lambda one: replace(one, node=None), False),
        (lambda one: shown(one, unschedulable=True), False),
    ],
)
def test_a_node_is_cordoned_where_another_one_can_take_its_pods(spoil: Any, cordons: bool) -> None:
    pools = a_pool("workers", 2), a_pool("api", 0)
    w1, w2 = some("w", 2, pools[0])
    asked = in_turn(w1, an_update(step="Preflight"), update_job=ObservedJob(f"{JOB}-preflight", "succeeded"))
    plan = plan_of(upgraded(*pools), [boots(asked, "b-1"), spoil(at(w2, NEW))])
    steps = [one for one in of_kind(plan, RecordUpdateStep) if one.subject == "w1"]
    assert [(one.update.cordoned, one.update.boot) for one in steps] == [(cordons, "")]  # type: ignore[attr-defined]


# -- the snapshot before an upgrade ------------------------------------------------------------------------------


def is_free(
    machine: MachineState = W1, *others: MachineState, version: str = NEW, made: Any = None, **rest: Any
) -> tuple[bool, list[Any], list[str]]:
    """Whether the machine may change to the version, what is done for a snapshot, and what is waited for."""
    cluster = upgraded(SERVERS, WORKERS, **rest.pop("cluster", {}))
    cluster = replace(
        cluster, recorded=replace(cluster.recorded, raw={"upgradeSnapshot": made} if made else {})
    )
    partial = PartialPlan()
    state = look(cluster, [*(others or some("s", 3, SERVERS)), machine], **rest)
    found = has_upgrade_snapshot(machine, version, state, partial)
    return found, list(partial.actions), [wait.what for wait in partial.waits]


SAVE = SaveUpgradeSnapshot(
    f"kubernetesVersion is {NEW}, and w1 runs {OLD}", "s1", NEW, "upgrade-v1.35.4-rke2r1-1", 1
)
MADE = {"version": NEW, "generation": 1, "name": "upgrade-1"}


def test_an_etcd_member_that_is_well_and_can_be_asked_makes_the_snapshot() -> None:
    assert is_free() == (False, [SAVE], [])
    s1, s2, s3 = some("s", 3, SERVERS)
    assert s1.vm is not None
    nowhere = shown(replace(s1, vm=replace(s1.vm, addresses=())), addresses=())
    for lost in (unready(s1), nowhere):
        assert is_free(W1, lost, s2, s3) == (False, [replace(SAVE, member="s2")], [])


@pytest.mark.parametrize(
    "rest",
    [
        {"version": ""},
        {"version": OLD},
        {"cluster": {"etcd": {"disableSnapshots": True}}},
        {"made": MADE},
        {"made": {"version": NEW, "generation": 1, "message": "too old for it"}},
    ],
)
def test_no_snapshot_is_made_where_none_is_needed_or_wanted_or_there_is_one(rest: dict[str, Any]) -> None:
    assert is_free(**rest) == (True, [], [])


@pytest.mark.parametrize("made", [{**MADE, "version": "v1.35.3+rke2r1"}, {**MADE, "generation": 2}])
def test_the_snapshot_before_another_upgrade_is_none_before_this_one(made: dict[str, Any]) -> None:
    assert is_free(made=made) == (False, [SAVE], [])
    waiting = {**made, "name": "", "message": "m", "retryAt": "2026-01-01T13:00:00Z"}
    assert is_free(made=waiting) == (False, [SAVE], [])


def test_a_snapshot_that_failed_is_asked_for_again_at_the_recorded_time() -> None:
    made = {"version": NEW, "generation": 1, "message": "no space", "retryAt": "2026-01-01T12:01:00Z"}
    said = [f"an etcd snapshot before the upgrade to {NEW} (no space)"]
    assert is_free(made=made) == (False, [], said)
    assert is_free(made=made, now=NOON + minutes(1)) == (False, [SAVE], [])


@pytest.mark.parametrize(
    ("other", "reached"),
    [
        (at(W1, NEW), True),
        (shown(W1, kubelet_version=NEW), True),
        (record_of(W1, version=NEW), True),
        (in_turn(W1), False),
        (in_turn(W1, an_update(step="Apply")), True),
        (a_machine("w1", WORKERS), False),
    ],
)
def test_after_the_first_machine_has_changed_no_snapshot_is_made(other: MachineState, reached: bool) -> None:
    w2 = a_machine("w2", WORKERS)
    assert is_free(w2, *some("s", 3, SERVERS), other)[0] is reached


def test_without_etcd_only_a_turn_that_has_failed_goes_on_without_a_snapshot() -> None:
    failed = in_turn(W1, an_update(step="Apply", failure=UpdateFailure("Apply", "no")))
    lost = [unready(one) for one in some("s", 3, SERVERS)]
    assert is_free(failed, *lost)[0]
    assert is_free(failed, guest=silent())[0]
    assert is_free(W1, *lost) == (False, [], [])
    assert is_free(in_turn(W1), *lost) == (False, [], [])
