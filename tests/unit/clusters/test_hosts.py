"""What is planned for machines whose host on Harvester is in maintenance, and what is held."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    held,
    leaving,
    look,
    minutes,
    missing,
    of_kind,
    planned,
    record_of,
    sighted,
    silent,
    some,
    stopped,
    subjects,
    unknown,
    unready,
)
from tests.unit.clusters.test_update_turns import NEW, an_update, plan_of, upgraded
from tests.unit.clusters.test_update_turns import SERVERS as TURN_SERVERS

from windrow.clusters.api.machine import with_status
from windrow.clusters.api.updates.maintenance import (
    RecordedMaintenance,
    read_maintenance,
    render_maintenance,
)
from windrow.clusters.api.updates.strategy import DrainOptions, UpgradeStrategy
from windrow.clusters.api.updates.turn import render_machine_update
from windrow.clusters.plan.actions import (
    BeginUpdate,
    CordonNode,
    DeleteMachine,
    Disruption,
    EndMaintenance,
    EvictPods,
    RecordHostBack,
    RecordMaintenance,
    RecordUpdateStep,
    StartVM,
)
from windrow.clusters.plan.disruptions import admit
from windrow.clusters.plan.hosts.hold import HOST_TIMEOUT
from windrow.clusters.plan.hosts.maintenance import list_drained
from windrow.clusters.plan.planner import Plan, plan_cluster
from windrow.clusters.sources.hosts import host_of
from windrow.clusters.state import MachineState, Pod
from windrow.clusters.status import derive_cluster, derive_machine
from windrow.clusters.updates.host_conditions import HOST_AVAILABLE, hosts_condition
from windrow.harvester.hosts.maintenance import HostMaintenance
from windrow.kubernetes.conditions import find_condition

SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 2)
UPGRADE = HostMaintenance("host-1", "upgrade of Harvester to v1.9.0", True, True)
SENTENCE = "host host-1 is in maintenance (upgrade of Harvester to v1.9.0)"
STUCK = "it cannot be migrated"
W1 = a_machine("w1", WORKERS)


def on(machine: MachineState, live: HostMaintenance | None = UPGRADE, **record: Any) -> MachineState:
    """The machine with its host as `live` says, and with `record` of it."""
    machine = replace(machine, maintenance=live, are_hosts_known=True)
    return recorded(machine, **record) if record else machine


def recorded(machine: MachineState, **record: Any) -> MachineState:
    record = {"host": "host-1", "because": UPGRADE.because, "since": NOON, **record}
    status = {**machine.record.status, "hostMaintenance": render_maintenance(RecordedMaintenance(**record))}
    conditions = machine.record.conditions
    return replace(machine, record=replace(with_status(machine.record, status), **kept(machine, conditions)))


def kept(machine: MachineState, conditions: Any) -> dict[str, Any]:
    """What `with_status` reads from a status that builders leave empty."""
    one = machine.record
    names = ("provisioned", "driver_config", "node", "restart_count", "last_restart")
    return {"conditions": conditions, **{name: getattr(one, name) for name in names}}


def plan_with(*changed: MachineState, now: datetime = NOON, **rest: Any) -> Plan:
    """Of three servers and two workers, of which `changed` are so."""
    names = {machine.name for machine in changed}
    others = [*some("s", 3, SERVERS), *some("w", 2, WORKERS)]
    machines = [*changed, *(machine for machine in others if machine.name not in names)]
    return planned(a_cluster(SERVERS, WORKERS, **rest.pop("cluster", {})), machines, now=now, **rest)


def stuck(machine: MachineState = W1) -> MachineState:
    return sighted(machine, is_migratable=False)


def cordoned(machine: MachineState) -> MachineState:
    assert machine.node is not None
    return replace(machine, node=replace(machine.node, unschedulable=True))


# -- before the VM goes --------------------------------------------------------------------------------------------


def test_a_machine_whose_vm_migrates_is_recorded_and_its_node_left_alone() -> None:
    (action,) = plan_with(on(W1)).actions

    assert action == RecordMaintenance(
        f"{SENTENCE}; VirtualMachine default/w1 migrates",
        "w1",
        RecordedMaintenance("host-1", UPGRADE.because, NOON),
    )
    pods = (Pod("default", "web"),)
    assert plan_with(replace(on(W1, host="host-1"), pods=pods)).actions == ()


def test_a_vm_that_is_shut_down_has_its_node_cordoned_after_that_is_recorded_and_then_drained() -> None:
    pods = (Pod("default", "web"), Pod("default", "going", is_deleting=True))
    (record,) = plan_with(on(stuck())).actions
    assert isinstance(record, RecordMaintenance)
    assert (record.maintenance.shutdown, record.maintenance.cordoned) == (STUCK, True)
    assert record.because == (
        f"{SENTENCE}; VirtualMachine default/w1 is shut down with it, since it cannot be migrated, and its Node is drained"
    )

    known = on(stuck(), shutdown=STUCK, cordoned=True)
    (cordon,) = plan_with(known).actions
    assert cordon == CordonNode(f"{SENTENCE}, and VirtualMachine default/w1 is shut down with it", "w1", "w1")

    assert known.node is not None
    cordoned = replace(known, node=replace(known.node, unschedulable=True))
    plan = plan_with(replace(cordoned, pods=pods))
    assert plan.actions == (EvictPods(SENTENCE, "w1", (("default", "web"),)),)
    (wait,) = (one for one in plan.waits if one.machine == "w1")
    assert wait.what == f"2 pods to be evicted from Node w1 (default/web, default/going); {SENTENCE}"
    assert wait.until is not None
    assert plan_with(cordoned).actions == ()


def test_pods_without_a_controller_come_back_with_a_vm_that_is_shut_down_unless_force_is_set() -> None:
    known = on(stuck(), shutdown=STUCK, cordoned=True)
    assert known.node is not None
    pods = (Pod("default", "web"), Pod("default", "alone", is_bare=True))
    cordoned = replace(known, node=replace(known.node, unschedulable=True))

    plan = plan_with(replace(cordoned, pods=pods))
    assert plan.actions == (EvictPods(SENTENCE, "w1", (("default", "web"),)),)
    assert [one.what for one in plan.waits if one.machine == "w1"] == [
        f"1 pods to be evicted from Node w1 (default/web); {SENTENCE}"
    ]
    assert plan_with(replace(cordoned, pods=pods[1:])).actions == ()

    forced = UpgradeStrategy(worker_drain=DrainOptions(force=True))
    cluster = replace(a_cluster(SERVERS, WORKERS), upgrade_strategy=forced)
    state = look(cluster, [*some("s", 3, SERVERS), replace(cordoned, pods=pods), a_machine("w2", WORKERS)])
    (evict,) = plan_cluster(state).actions
    assert evict == EvictPods(SENTENCE, "w1", (("default", "web"), ("default", "alone")))


@pytest.mark.parametrize(
    ("consent", "left"),
    [(None, (("default", "web"), ("default", "cache"))), (False, (("default", "web"),))],
)
def test_pods_with_an_empty_dir_come_back_with_the_vm_where_their_data_is_to_stay(
    consent: bool | None, left: Any
) -> None:
    known = on(stuck(), shutdown=STUCK, cordoned=True)
    assert known.node is not None
    pods = (Pod("default", "web"), Pod("default", "cache", has_empty_dir=True))
    machine = replace(known, node=replace(known.node, unschedulable=True), pods=pods)
    drain = DrainOptions(delete_empty_dir_data=consent, grace_period=20)
    strategy = {"upgrade_strategy": UpgradeStrategy(worker_drain=drain)}
    assert plan_with(machine, cluster=strategy).actions == (EvictPods(SENTENCE, "w1", left, grace_period=20),)


def test_pods_are_asked_for_while_the_vm_is_about_to_go_and_the_node_can_be_drained() -> None:
    known = on(stuck(), shutdown=STUCK, cordoned=True)
    others = some("s", 3, SERVERS)

    def drained(machine: MachineState, *rest: MachineState, **state: Any) -> list[str]:
        found = look(a_cluster(SERVERS, WORKERS), [machine, *rest], **state)
        return [one.name for one in list_drained(found)]

    assert drained(known, *others) == ["w1"]
    assert drained(on(W1, host="host-1"), *others) == []  # it migrates
    assert drained(on(stuck()), *others) == []  # not recorded yet
    assert drained(replace(known, maintenance=None), *others) == []
    assert drained(unready(known), *others) == []
    assert drained(sighted(known, state="stopping"), *others) == []
    assert drained(known, *others, guest=silent()) == []
    assert drained(known) == []  # a lone Node
    deleted = a_cluster(SERVERS, WORKERS, deletion_timestamp=NOON)
    assert list_drained(look(deleted, [known, *others])) == []


@pytest.mark.parametrize(
    "other",
    [
        unready(a_machine("w2", WORKERS)),
        replace(a_machine("w2", WORKERS), node=None),
        sighted(a_machine("w2", WORKERS), state="stopping"),
        cordoned(a_machine("w2", WORKERS)),
        on(stuck(a_machine("w2", WORKERS)), shutdown=STUCK),
    ],
)
def test_a_node_is_not_cordoned_where_no_other_that_stays_takes_its_pods(other: MachineState) -> None:
    cluster = a_cluster(a_pool("workers", 2))

    plan = planned(cluster, [on(stuck()), other])

    made = [one for one in of_kind(plan, RecordMaintenance) if one.subject == "w1"]
    assert [one.maintenance.cordoned for one in made if isinstance(one, RecordMaintenance)] == [False]


def test_one_whose_host_is_back_takes_pods_again() -> None:
    other = on(a_machine("w2", WORKERS), None, shutdown=STUCK, ended=NOON)

    made = of_kind(planned(a_cluster(WORKERS), [on(stuck()), other]), RecordMaintenance)

    assert [one.maintenance.cordoned for one in made if isinstance(one, RecordMaintenance)] == [True]


def test_a_host_that_goes_again_is_a_maintenance_of_its_own() -> None:
    (record,) = plan_with(on(W1, shutdown=STUCK, ended=NOON), now=NOON + minutes(5)).actions

    assert isinstance(record, RecordMaintenance)
    assert record.maintenance == RecordedMaintenance("host-1", UPGRADE.because, NOON + minutes(5))


def test_a_node_that_a_user_has_cordoned_stays_the_users() -> None:
    assert W1.node is not None
    theirs = replace(stuck(), node=replace(W1.node, unschedulable=True))

    (record,) = plan_with(on(theirs)).actions

    assert isinstance(record, RecordMaintenance)
    assert not record.maintenance.cordoned


def test_a_vm_that_no_other_host_can_take_any_more_is_recorded_anew() -> None:
    alone = replace(UPGRADE, has_other_host=False)

    (record,) = plan_with(on(W1, alone, host="host-1")).actions

    assert isinstance(record, RecordMaintenance)
    assert (record.maintenance.shutdown, record.maintenance.cordoned) == ("no other host takes it", True)
    assert record.maintenance.since == NOON


def test_the_next_host_is_a_maintenance_of_its_own_and_the_cordon_stays_ours() -> None:
    moved = sighted(on(W1, replace(UPGRADE, host="host-2"), cordoned=True, shutdown=STUCK), host="host-2")

    (record,) = plan_with(moved, now=NOON + minutes(30)).actions

    assert isinstance(record, RecordMaintenance)
    assert record.maintenance == RecordedMaintenance(
        "host-2", UPGRADE.because, NOON + minutes(30), cordoned=True
    )


def test_that_etcd_has_no_quorum_is_told_since_harvester_asks_no_guest() -> None:
    s1, s2, s3 = some("s", 3, SERVERS)
    record = next(one for one in plan_with(on(stuck(s1))).actions if isinstance(one, RecordMaintenance))
    assert "quorum" not in record.because  # two of three stay

    second = on(stuck(s2), shutdown=STUCK)
    record = next(one for one in plan_with(on(stuck(s1)), second).actions if one.subject == "s1")
    assert record.because.endswith("; etcd keeps 1 of 3 members, which is no quorum, until it runs again")
    record = next(one for one in plan_with(on(stuck(s1)), unready(s3)).actions if one.subject == "s1")
    assert record.because.endswith("etcd keeps 1 of 3 members, which is no quorum, until it runs again")


def test_nothing_is_begun_for_a_machine_that_is_not_repaired_or_not_known_or_going() -> None:
    off = {"remediation_disabled": True}
    assert plan_with(on(stuck()), cluster=off).actions == ()
    assert plan_with(unknown(on(stuck()))).actions == ()
    assert not of_kind(plan_with(leaving(on(stuck()))), RecordMaintenance)


def test_a_turn_keeps_its_node_while_it_lasts() -> None:
    machine = on(stuck(), shutdown=STUCK, cordoned=True)
    update = {"update": render_machine_update(an_update())}
    record = with_status(machine.record, {**machine.record.status, **update})
    busy = replace(machine, record=replace(record, **kept(machine, machine.record.conditions)))

    assert not of_kind(plan_with(busy), CordonNode, EvictPods)


# -- what is held --------------------------------------------------------------------------------------------------


def test_a_vm_that_was_shut_down_is_started_when_its_host_is_back_and_not_before() -> None:
    off = on(stopped(W1), shutdown=STUCK)
    plan = plan_with(off)
    assert plan.actions == ()
    (wait,) = (one for one in plan.waits if one.machine == "w1")
    assert wait.what == f"VirtualMachine default/w1 to run (now stopped); {SENTENCE}"
    assert (wait.then, wait.until) == ("its VM is started once the host is back", NOON + HOST_TIMEOUT)

    back = on(stopped(W1), None, shutdown=STUCK)
    assert subjects(plan_with(back), StartVM) == ["w1"]
    assert [type(one) for one in plan_with(back).actions] == [RecordHostBack, StartVM]


def test_a_vm_that_could_have_migrated_and_is_off_is_started_elsewhere_at_once() -> None:
    assert subjects(plan_with(on(stopped(W1), host="host-1")), StartVM) == ["w1"]


def test_a_vm_that_is_found_off_on_such_a_host_counts_as_shut_down_for_it() -> None:
    plan = plan_with(on(stopped(W1)))
    (record,) = plan.actions
    assert plan.diagnoses["w1"].waiting_for == f"VirtualMachine default/w1 to run (now stopped); {SENTENCE}"

    assert isinstance(record, RecordMaintenance)
    assert record.maintenance.shutdown == "it is off"
    assert (
        record.because
        == f"{SENTENCE}; VirtualMachine default/w1 is stopped, and started once the host is back"
    )


def test_what_is_held_is_held_for_two_hours_at_most() -> None:
    off = on(stopped(W1), shutdown=STUCK)

    assert not of_kind(plan_with(off, now=NOON + HOST_TIMEOUT - minutes(1)), StartVM)
    assert subjects(plan_with(off, now=NOON + HOST_TIMEOUT), StartVM) == ["w1"]


def test_a_machine_on_such_a_host_is_not_replaced_unless_its_vm_is_deleted_or_a_user_wants_it() -> None:
    late = NOON - minutes(30)
    assert subjects(plan_with(unready(W1, late)), DeleteMachine) == ["w1"]

    sick = on(unready(W1, late), host="host-1")
    plan = plan_with(sick)
    assert not of_kind(plan, DeleteMachine)
    assert SENTENCE in next(one.what for one in plan.waits if one.machine == "w1")
    assert subjects(plan_with(missing(sick)), DeleteMachine) == ["w1"]
    assert subjects(plan_with(record_of(sick, replace_now=True)), DeleteMachine) == ["w1"]
    assert subjects(plan_with(sick, now=NOON + HOST_TIMEOUT), DeleteMachine) == ["w1"]


def test_while_harvester_does_not_say_what_its_hosts_do_the_record_counts() -> None:
    sick = recorded(unready(W1, NOON - minutes(30)))

    assert not of_kind(plan_with(sick), DeleteMachine, EndMaintenance, RecordHostBack)
    assert not of_kind(plan_with(recorded(stopped(W1), shutdown=STUCK)), StartVM)


def test_after_the_maintenance_a_node_has_as_long_to_come_back_as_any() -> None:
    back = on(unready(W1, NOON - minutes(60)), None, ended=NOON)
    pool_timeout = WORKERS.unhealthy_timeout

    plan = plan_with(back)
    assert not of_kind(plan, DeleteMachine)
    (wait,) = (one for one in plan.waits if one.machine == "w1")
    assert "host host-1 was in maintenance until just now" in wait.what
    assert wait.until == NOON + pool_timeout
    assert subjects(plan_with(back, now=NOON + pool_timeout), DeleteMachine) == ["w1"]


def test_the_last_etcd_member_is_not_told_to_be_given_up_while_its_host_is_away() -> None:
    pool = a_pool("servers", 1, SERVER)
    off = on(stopped(a_machine("s1", pool)), shutdown="no other host takes it")

    plan = planned(a_cluster(pool), [off], guest=silent())

    assert plan.actions == ()
    assert held(plan) == {}


# -- afterwards ----------------------------------------------------------------------------------------------------


def test_it_is_over_once_the_machine_is_well_and_the_node_is_uncordoned_where_it_was_cordoned() -> None:
    assert plan_with(on(W1, None, cordoned=True)).actions == (
        EndMaintenance("host host-1 is back", "w1", "w1", True),
    )
    moved = sighted(on(W1, None, host="host-1"), host="host-2")
    assert plan_with(moved).actions == (EndMaintenance("it runs on host host-2", "w1", "w1", False),)


@pytest.mark.parametrize(
    "machine", [unready(W1), sighted(W1, state="migrating"), sighted(W1, state="starting")]
)
def test_it_is_not_over_before_that_and_when_the_host_was_back_is_recorded_once(
    machine: MachineState,
) -> None:
    (action,) = plan_with(on(machine, None, host="host-1")).actions

    assert isinstance(action, RecordHostBack)
    assert action.maintenance.ended == NOON
    assert plan_with(on(machine, None, ended=NOON)).actions == ()


def test_a_guest_that_does_not_answer_keeps_what_is_recorded() -> None:
    assert not of_kind(plan_with(on(W1, None, host="host-1"), guest=silent()), EndMaintenance)


def test_a_record_whose_host_is_not_seen_any_more_ends_when_nothing_is_held_any_more() -> None:
    """As where the credential has lost its rights: a Node does not stay cordoned for that."""
    left = recorded(W1, cordoned=True, shutdown=STUCK)

    assert plan_with(left, now=NOON + HOST_TIMEOUT - minutes(1)).actions == ()
    (action,) = plan_with(left, now=NOON + HOST_TIMEOUT).actions
    assert isinstance(action, EndMaintenance)
    assert action.uncordons


# -- turns ---------------------------------------------------------------------------------------------------------


def test_no_turn_begins_on_a_machine_whose_host_is_in_maintenance() -> None:
    cluster = upgraded(TURN_SERVERS)
    s1, s2, s3 = some("s", 3, TURN_SERVERS)
    first = next(iter(subjects(plan_of(cluster, [s1, s2, s3]), BeginUpdate)))

    machines = [on(one, host="host-1") if one.name == first else one for one in (s1, s2, s3)]
    plan = plan_of(cluster, machines)
    assert first not in subjects(plan, BeginUpdate)
    assert held(plan)[first] == SENTENCE

    fresh = [on(one) if one.name == first else one for one in (s1, s2, s3)]  # not recorded yet
    assert held(plan_of(cluster, fresh))[first] == SENTENCE
    over = [on(one, None, ended=NOON) if one.name == first else one for one in (s1, s2, s3)]
    assert held(plan_of(cluster, over))[first] == "host host-1 was in maintenance until just now"


def test_no_turn_of_a_server_begins_while_another_is_about_to_be_shut_down() -> None:
    cluster = upgraded(TURN_SERVERS)
    s1, s2, s3 = some("s", 3, TURN_SERVERS)
    going = on(stuck(s3), shutdown=STUCK)

    plan = plan_of(cluster, [s1, s2, going])

    assert subjects(plan, BeginUpdate) == []
    assert held(plan)["s1"] == f"server s3 is about to be shut down ({SENTENCE})"


def test_a_turn_that_has_begun_restarts_nothing_there() -> None:
    cluster = upgraded(TURN_SERVERS)
    s1, s2, s3 = some("s", 3, TURN_SERVERS)
    update = an_update(version=NEW, step="Drain")
    machine = on(s1, host="host-1")
    record = with_status(machine.record, {**machine.record.status, "update": render_machine_update(update)})
    busy = replace(machine, record=replace(record, **kept(machine, machine.record.conditions)))

    plan = plan_of(cluster, [busy, s2, s3])

    assert not of_kind(plan, RecordUpdateStep)


# -- status --------------------------------------------------------------------------------------------------------


def test_the_record_survives_its_json_form() -> None:
    full = RecordedMaintenance("h", "why", NOON, "stuck", True, NOON + minutes(1))

    for one in (full, RecordedMaintenance("h", "why")):
        assert read_maintenance({"hostMaintenance": render_maintenance(one)}) == one
    assert read_maintenance({"hostMaintenance": {"host": ""}}) is None
    assert read_maintenance({"hostMaintenance": "odd"}) is None


def test_cluster_and_machine_say_which_host_and_for_how_long() -> None:
    state = look(a_cluster(WORKERS), [on(W1, host="host-1"), a_machine("w2", WORKERS)])

    found = hosts_condition(state)
    assert found is not None
    assert (found.status, found.reason) == ("False", "HostInMaintenance")
    assert found.message == f"{SENTENCE}; repair of w1 is held for 120m at most"
    plan = plan_cluster(state)
    assert found.message in derive_cluster(state, plan, None)["warnings"]
    conditions = derive_machine(state.machines[0], state, plan, {})["conditions"]
    said = find_condition(conditions, HOST_AVAILABLE)
    assert said is not None
    assert said.message == SENTENCE
    assert (
        find_condition(derive_machine(state.machines[1], state, plan, {})["conditions"], HOST_AVAILABLE)
        is None
    )


def test_who_may_not_see_hosts_is_told_which_right_is_missing_and_all_else_is_as_before() -> None:
    state = look(a_cluster(WORKERS), some("w", 2, WORKERS), hosts_hidden="nodes is forbidden")

    found = hosts_condition(state)

    assert found is not None
    assert (found.status, found.reason) == ("Unknown", "NotAllowed")
    assert "let its user get, list and watch nodes and upgrades.harvesterhci.io" in found.message
    assert plan_cluster(state).actions == ()


def test_a_cluster_without_maintenance_has_no_such_condition_and_afterwards_a_true_one() -> None:
    machines = some("w", 2, WORKERS)
    assert hosts_condition(look(a_cluster(WORKERS), machines)) is None

    cluster = a_cluster(WORKERS)
    raw = {"conditions": [{"type": "HostsAvailable", "status": "False"}]}
    known = replace(cluster, recorded=replace(cluster.recorded, raw=raw))
    found = hosts_condition(look(known, machines))
    assert found is not None
    assert found.status == "True"
    assert hosts_condition(look(replace(known, deletion_timestamp=NOON), machines)) is None


def test_the_host_of_a_vm_that_is_off_is_the_one_that_it_was_on_last() -> None:
    record = with_status(W1.record, {"host": "host-3"})
    off = sighted(W1, host="").vm

    assert host_of(W1.record, W1.vm) == "host-1"
    assert host_of(record, off) == "host-3"
    assert host_of(recorded(W1).record, off) == "host-1"
    assert host_of(record, missing(W1).vm) == ""
    assert host_of(record, None) == "host-3"


@pytest.mark.parametrize(
    ("kind", "machine", "because"),
    [
        ("roll", on(W1), SENTENCE),
        ("roll", on(W1, None, ended=NOON), "host host-1 was in maintenance until just now"),
        ("roll", W1, None),
        ("scale-down", on(W1), None),  # a user wants fewer
        ("replace", on(missing(W1)), None),
    ],
)
def test_a_machine_is_not_replaced_for_a_change_while_its_host_is_in_maintenance(
    kind: Any, machine: MachineState, because: str | None
) -> None:
    state = look(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), machine, a_machine("w2", WORKERS)])

    admitted, refused = admit([Disruption(kind, DeleteMachine("it is due", "w1"))], state)

    assert [one.because for one in refused] == ([] if because is None else [because])
    assert len(admitted) == (because is None)


@pytest.mark.parametrize(
    ("count", "named"), [(3, "w1, w2, w3 is held"), (5, "w1, w2, w3 and 2 more is held")]
)
def test_of_many_machines_three_are_named(count: int, named: str) -> None:
    pool = a_pool("workers", count)

    found = hosts_condition(look(a_cluster(pool), [on(one, host="host-1") for one in some("w", count, pool)]))

    assert found is not None
    assert f"repair of {named}" in found.message
