"""Servers that a user deletes by hand, and surplus servers that never joined: nothing waits on each other for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.clusters.builders import (
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
    sighted,
    some,
    subjects,
    unordered,
    unready,
)

from windrow.clusters.plan.actions import (
    CordonNode,
    CreateMachine,
    DeleteMachine,
    DeleteVM,
    RemoveEtcdMember,
)
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.status import derive_cluster, derive_machine, find_wait

ONE = a_pool("servers", 1, SERVER)
THREE = a_pool("servers", 3, SERVER)
FIRST = leaving(a_machine("s1", ONE))


def status_of(cluster, machines):
    state = look(cluster, machines)
    plan = plan_cluster(state)
    return derive_cluster(state, plan, find_wait(state, plan, {}))


def ready(cluster, machines):
    found = status_of(cluster, machines)["conditions"]
    return next(raw for raw in found if raw["type"] == "Ready")


# -- the only server is deleted


def test_the_only_server_that_is_deleted_says_at_once_what_is_needed():
    state = look(a_cluster(ONE), [FIRST])
    plan = plan_cluster(state)

    waiting = derive_machine(FIRST, state, plan, {})["waiting"]

    assert waiting["for"] == (
        "another etcd member to join before Machine s1 is deleted (it is the last etcd member, with all data of the "
        "cluster; raise the quantity of machine pool servers (windrow scale fleet-default/prod servers=2), or delete the Cluster "
        "(windrow delete fleet-default/prod))"
    )
    assert waiting["next"] == "the machine is deleted"
    assert status_of(a_cluster(ONE), [FIRST])["waiting"]["for"] == waiting["for"]


def test_scaling_up_makes_servers_that_join_through_the_one_that_is_deleted():
    plan = planned(a_cluster(THREE), [FIRST])

    assert [action.join_server for action in of_kind(plan, CreateMachine)] == ["https://10.0.0.1:9345"] * 2
    assert not of_kind(plan, RemoveEtcdMember)


def test_while_the_others_join_the_status_says_that_they_do():
    joining = nodeless(a_machine("s2", THREE))

    plan = planned(a_cluster(THREE), [FIRST, joining])

    assert held(plan)["s1"].endswith("; Machine s2 is joining")


def test_the_deletion_goes_on_once_etcd_keeps_its_quorum():
    joined = a_machine("s2", THREE)

    plan = planned(a_cluster(replace(ONE, quantity=2)), [FIRST, joined])

    assert subjects(plan, RemoveEtcdMember) == ["s1"]


def test_of_all_three_servers_deleted_by_hand_the_last_lets_the_next_ones_join():
    plan = planned(a_cluster(THREE), [FIRST])

    assert len(of_kind(plan, CreateMachine)) == 2


def test_a_member_that_leaves_etcd_already_is_no_server_to_join():
    assert FIRST.node is not None
    marked = replace(FIRST, node=replace(FIRST.node, etcd_removal_requested=True))

    plan = planned(a_cluster(THREE), [marked])

    assert not of_kind(plan, CreateMachine)


def test_a_server_that_stays_is_joined_rather_than_one_that_goes():
    stays = a_machine("s2", THREE)

    plan = planned(a_cluster(a_pool("servers", 5, SERVER)), [FIRST, stays])

    assert {action.join_server for action in of_kind(plan, CreateMachine)} == {"https://10.0.0.2:9345"}


def test_the_only_server_keeps_its_workloads_until_it_may_go():
    drained = a_pool("servers", 1, SERVER, drain=True)

    plan = planned(a_cluster(drained), [leaving(a_machine("s1", drained))])

    assert not of_kind(plan, CordonNode)
    assert "s1" in held(plan)


# -- 1 -> 3 -> 1


def without_address(name):
    return sighted(nodeless(a_machine(name, THREE)), addresses=(), agent_connected=False)


def test_surplus_servers_that_never_joined_go_although_others_never_joined_either():
    machines = [a_machine("s1", ONE), without_address("s2"), without_address("s3")]

    plan = planned(a_cluster(ONE), machines)

    assert subjects(plan, DeleteMachine) == ["s2"]
    assert held(plan) == {"s3": "one server at a time; s2 is leaving"}
    assert subjects(
        planned(a_cluster(ONE), [machines[0], leaving(machines[1]), machines[2]]), DeleteMachine
    ) == ["s3"]


def test_a_surplus_server_that_may_be_joining_this_minute_is_waited_for():
    """A VM that goes between joining etcd and becoming a Node takes the quorum of two with it."""
    booted = nodeless(a_machine("s2", THREE))

    plan = planned(a_cluster(ONE), [a_machine("s1", ONE), booted])

    assert not of_kind(plan, DeleteMachine)
    assert held(plan) == {"s2": "s2 (10.0.0.2) may be joining etcd"}
    assert [one.until for one in plan.held] == [NOON + minutes(9)]


def test_a_surplus_server_that_did_not_join_in_time_goes():
    late = record_of(nodeless(a_machine("s2", THREE)), created=NOON - minutes(11))

    assert subjects(planned(a_cluster(ONE), [a_machine("s1", ONE), late]), DeleteMachine) == ["s2"]


def test_two_servers_that_never_joined_in_time_are_replaced_one_after_the_other():
    late = [record_of(without_address(name), created=NOON - minutes(11)) for name in ("s2", "s3")]

    plan = planned(a_cluster(THREE), [a_machine("s1", THREE), *late])

    assert subjects(plan, DeleteMachine) == ["s2"]


def test_a_member_still_waits_for_one_that_joins():
    pool = a_pool("servers", 3, SERVER)
    machines = [*some("s", 3, pool), nodeless(a_machine("s4", pool))]

    plan = planned(a_cluster(pool), [unready(machines[0], NOON - timedelta(hours=1)), *machines[1:]])

    assert held(plan)["s1"] == "one etcd member at a time; s4 is joining"


@pytest.mark.parametrize("surplus", [nodeless(a_machine("s2", THREE)), without_address("s2")])
def test_the_headline_is_not_ready_while_surplus_servers_are_held(surplus):
    machines = [
        record_of(a_machine("s1", ONE), conditions=(condition("Joined", "True"),)),
        surplus,
        without_address("s3"),
    ]

    status = status_of(a_cluster(ONE), machines)

    assert (status["ready"], status["phase"]) == (False, "ScalingDown")
    assert ready(a_cluster(ONE), machines)["reason"] == "ScalingDown"
    assert status["waiting"]["for"]


# -- a healthy server is deleted by hand, and another one's VM is lost


def marked(machine):
    assert machine.node is not None
    return replace(machine, node=replace(machine.node, etcd_removal_requested=True))


def gone_from_etcd(machine):
    return replace(marked(machine), node=replace(machine.node, etcd_removed=True))


def deleted_and_lost(count=3, *, lost=1, how=leaving):
    """So many servers: the first is deleted by hand, the VMs of the last ones are lost."""
    pool = a_pool("servers", count, SERVER)
    deleted, *others = some("s", count, pool)
    return a_cluster(pool), [how(deleted), *others[:-lost], *map(missing, others[-lost:])]


@pytest.mark.parametrize("how", [leaving, lambda machine: marked(leaving(machine))], ids=["asked", "marked"])
@pytest.mark.parametrize(("count", "lost", "goes"), [(3, 1, ["s3"]), (5, 2, ["s4"])])
def test_the_lost_server_is_replaced_first_where_the_deleted_one_is_needed_for_the_quorum(
    count, lost, goes, how
):
    plan = planned(*deleted_and_lost(count, lost=lost, how=how))

    assert subjects(plan, DeleteMachine) == goes
    assert not of_kind(plan, RemoveEtcdMember)


def test_a_server_that_is_not_ready_for_too_long_goes_before_a_healthy_one_that_is_deleted():
    cluster, (deleted, well, _) = deleted_and_lost()
    sick = unready(a_machine("s3", THREE), NOON - timedelta(hours=1))

    assert subjects(planned(cluster, [deleted, well, sick]), DeleteMachine) == ["s3"]


@pytest.mark.parametrize("how", [leaving, lambda machine: marked(leaving(machine))], ids=["asked", "marked"])
def test_the_etcd_member_of_the_lost_server_is_removed_before_that_of_the_deleted_one(how):
    cluster, (deleted, well, lost) = deleted_and_lost(how=how)

    plan = planned(cluster, [deleted, well, leaving(lost, NOON + minutes(1))])

    assert subjects(plan, RemoveEtcdMember) == ["s3"]


def test_the_deleted_server_goes_on_where_it_has_left_etcd_before_the_other_was_lost():
    cluster, machines = deleted_and_lost(how=lambda machine: gone_from_etcd(leaving(machine)))

    plan = planned(cluster, machines)

    assert subjects(plan, DeleteVM) == ["s1"]
    assert not of_kind(plan, RemoveEtcdMember)


def test_the_deleted_server_leaves_first_where_the_quorum_does_not_need_it():
    plan = planned(*deleted_and_lost(5))

    assert subjects(plan, RemoveEtcdMember) == ["s1"]
    assert held(plan) == {"s5": "one etcd member at a time; s1 is leaving"}


def test_without_a_quorum_neither_the_lost_nor_the_deleted_server_goes():
    plan = planned(*deleted_and_lost(lost=2))

    assert not of_kind(plan, RemoveEtcdMember, DeleteMachine)


def test_the_deleted_server_stays_until_the_lost_one_is_replaced():
    cluster, (deleted, well, lost) = deleted_and_lost()
    removed = leaving(gone_from_etcd(lost))
    ordered, joining = unordered(a_machine("s4", THREE)), nodeless(a_machine("s4", THREE))

    without = "etcd would have 1 healthy of 3 members that the pools ask for"
    created_first, joins = (
        f"{without}; a server of pool servers is created first",
        f"{without}; s4 is joining",
    )
    for more, why in (
        ([removed], created_first),
        ([], created_first),
        ([ordered], joins),
        ([without_address("s4")], joins),
        ([joining], "s4 (10.0.0.4) may be joining etcd"),
    ):
        assert held(planned(cluster, [deleted, well, *more])) == {"s1": why}

    joined = a_machine("s4", THREE)
    assert subjects(planned(cluster, [deleted, well, joined]), RemoveEtcdMember) == ["s1"]


def test_the_deleted_server_does_not_wait_longer_for_one_that_joins_than_its_start_may_take():
    cluster, (deleted, well, _) = deleted_and_lost()
    late = record_of(without_address("s4"), created=NOON - minutes(10))
    (waits,) = planned(cluster, [deleted, well, without_address("s4")]).held

    assert waits.until == NOON + minutes(9)
    assert subjects(planned(cluster, [deleted, well, late]), RemoveEtcdMember) == ["s1"]


@pytest.mark.parametrize("change", [{"paused": True}, {"options": None}, {"quantity": 1}])
def test_the_deleted_server_does_not_wait_for_one_that_is_not_created(change):
    _, (deleted, well, _) = deleted_and_lost()
    pool = replace(THREE, **change)

    assert subjects(planned(a_cluster(pool), [deleted, well]), RemoveEtcdMember) == ["s1"]


def test_the_deleted_server_waits_as_long_as_the_pool_lets_a_server_start():
    slow = replace(THREE, startup_timeout=minutes(20))
    _, (deleted, well, _) = deleted_and_lost()
    late = record_of(without_address("s4"), created=NOON - minutes(11))
    (waits,) = planned(a_cluster(slow), [deleted, well, late]).held

    assert waits.until == NOON + minutes(9)


def test_of_five_servers_two_healthy_ones_are_too_few_while_others_join():
    cluster, (deleted, *well) = deleted_and_lost(5, lost=2)
    joining = [without_address("s7"), without_address("s6")]

    plan = planned(cluster, [deleted, *well[:2], *joining])

    assert held(plan)["s1"] == "etcd would have 2 healthy of 5 members that the pools ask for; s6 is joining"


def test_of_two_that_leave_the_lost_one_goes_first_though_the_quorum_does_not_need_the_other():
    cluster, (deleted, *well, lost) = deleted_and_lost(5)

    plan = planned(cluster, [deleted, *well, leaving(lost, NOON + minutes(1))])

    assert subjects(plan, RemoveEtcdMember) == ["s5"]


def test_the_servers_of_a_pool_that_is_given_up_stay_until_those_of_another_have_joined():
    old, new = a_pool("old", 0, SERVER), a_pool("new", 3, SERVER)
    before, joined = some("s", 2, old), some("n", 3, new)

    assert not of_kind(planned(a_cluster(old, new), before), DeleteMachine)
    assert subjects(planned(a_cluster(old, new), [*before, *joined]), DeleteMachine) == ["s1"]


def test_half_of_the_servers_that_the_pools_ask_for_are_too_few():
    cluster, (deleted, *well, _) = deleted_and_lost(4)
    joining = without_address("s5")

    (waits,) = planned(cluster, [deleted, *well, joining]).held

    assert waits.because == "etcd would have 2 healthy of 4 members that the pools ask for; s5 is joining"


def test_a_server_that_leaves_stands_for_none_of_another_pool():
    lacks, other = a_pool("lacks", 2, SERVER), a_pool("other", 1, SERVER)
    machines = [a_machine("s1", lacks), leaving(a_machine("s2", other))]

    found = held(planned(a_cluster(lacks, other), machines))

    assert found["s2"].endswith("members that the pools ask for; a server of pool lacks is created first")


def test_where_a_server_may_start_for_ever_the_deleted_one_waits_no_longer_than_elsewhere():
    _, (deleted, well, _) = deleted_and_lost()
    patient = replace(THREE, startup_timeout=None)

    (waits,) = planned(a_cluster(patient), [deleted, well, without_address("s4")]).held

    assert waits.until == NOON + minutes(9)
