"""What admission tolerates of what the sub-planners propose: etcd's majority, the breaker, the budgets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    held,
    leaving,
    minutes,
    nodeless,
    planned,
    record_of,
    some,
    subjects,
    unready,
)

from windrow.clusters.api.cluster import IntOrPercent
from windrow.clusters.plan.actions import DeleteMachine, RemoveEtcdMember
from windrow.clusters.plan.planner import Plan

SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 5)
LONG_AGO = NOON - minutes(30)


def asked(machine):
    """The user asks for its replacement."""
    return record_of(machine, replace_now=True)


def plan_workers(*changed, pool=WORKERS, more=()) -> Plan:
    rest = some("w", pool.quantity, pool)[len(changed) :]
    return planned(a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), *changed, *rest, *more])


def workers(count, how=lambda machine: machine, pool=WORKERS):
    return [how(machine) for machine in some("w", count, pool)]


# -- etcd


@pytest.mark.parametrize("deleted_is_down", [False, True], ids=["healthy", "down"])
@pytest.mark.parametrize(
    ("members", "others_down"), [(members, down) for members in range(2, 8) for down in range(members)]
)
def test_a_member_leaves_only_while_a_majority_is_healthy_before_and_after(
    members, others_down, deleted_is_down
):
    pool = a_pool("servers", members, SERVER)
    machines = some("s", members, pool)
    machines[1 : 1 + others_down] = [unready(machine) for machine in machines[1 : 1 + others_down]]
    machines[0] = leaving(unready(machines[0]) if deleted_is_down else machines[0])
    healthy_after = members - 1 - others_down
    healthy_before = healthy_after + (not deleted_is_down)

    plan = planned(a_cluster(pool), machines)

    may_leave = healthy_before * 2 > members and healthy_after * 2 > members - 1
    assert subjects(plan, RemoveEtcdMember) == (["s1"] if may_leave else [])


def test_a_healthy_member_that_a_user_deletes_stays_while_another_is_down():
    machines = [
        leaving(a_machine("s1", SERVERS)),
        unready(a_machine("s2", SERVERS)),
        a_machine("s3", SERVERS),
    ]

    plan = planned(a_cluster(SERVERS), machines)

    assert subjects(plan, RemoveEtcdMember) == []
    assert held(plan) == {"s1": "etcd would keep 1 healthy of 2 members, which is no quorum"}


# -- how many machines of a pool are replaced at a time


def test_of_a_pool_that_is_annotated_as_a_whole_as_many_go_at_a_time_as_the_pool_may_lack():
    plan = plan_workers(*workers(5, asked))

    assert subjects(plan, DeleteMachine) == ["w1", "w2"]
    assert held(plan)["w3"] == (
        "2 machines of pool workers are being replaced or boot, and maxUnhealthy 40 % allows 2 at a time"
    )


def test_the_next_annotated_machine_goes_when_a_replacement_has_become_ready():
    two_leave = [leaving(asked(machine)) for machine in workers(2)]
    rest = [asked(machine) for machine in some("w", 5, WORKERS)[2:]]
    booting = [nodeless(a_machine(f"w{n}", WORKERS)) for n in (6, 7)]
    ready = a_machine("w6", WORKERS)

    assert subjects(plan_workers(*two_leave, *rest), DeleteMachine) == []
    assert subjects(plan_workers(*rest, *booting), DeleteMachine) == []
    assert subjects(plan_workers(*rest, ready, booting[1]), DeleteMachine) == ["w3"]


def test_an_annotated_machine_goes_before_those_that_are_merely_not_ready():
    sick = workers(2, lambda machine: unready(machine, LONG_AGO))

    plan = plan_workers(*sick, pool=replace(WORKERS, max_unhealthy=IntOrPercent(None, 2)))
    assert subjects(plan, DeleteMachine) == ["w1", "w2"]

    wanted = [asked(machine) for machine in some("w", 5, WORKERS)[2:4]]
    plan = plan_workers(*sick, *wanted)
    assert subjects(plan, DeleteMachine) == ["w3", "w4"]
    assert held(plan)["w1"] == "2 of pool workers are being replaced already, and maxUnhealthy allows 2"


def test_an_annotated_machine_goes_where_the_pool_may_lack_none():
    plan = plan_workers(*workers(2, asked), pool=replace(WORKERS, max_unhealthy=IntOrPercent(None, 0)))

    assert subjects(plan, DeleteMachine) == ["w1"]


def test_an_annotated_machine_that_never_joined_does_not_wait_for_itself():
    plan = plan_workers(*workers(5, lambda machine: asked(nodeless(machine))))

    assert subjects(plan, DeleteMachine) == ["w1", "w2"]


@pytest.mark.parametrize(("leave", "goes"), [(0, ["w1"]), (1, ["w1"]), (2, [])])
def test_a_machine_that_is_not_ready_waits_while_as_many_as_allowed_are_leaving(leave, goes):
    more = [leaving(nodeless(a_machine(f"w{9 - n}", WORKERS))) for n in range(leave)]

    plan = plan_workers(unready(a_machine("w1", WORKERS), LONG_AGO), more=more)

    assert subjects(plan, DeleteMachine) == goes


# -- unhealthyRange

RANGE = a_pool("workers", 5, max_unhealthy=IntOrPercent(None, 3, 2))


@pytest.mark.parametrize(("sick", "goes"), [(1, 0), (2, 2), (3, 3), (4, 0)])
def test_machines_are_replaced_while_as_many_are_unhealthy_as_the_range_says(sick, goes):
    plan = plan_workers(*workers(sick, lambda machine: unready(machine, LONG_AGO), RANGE), pool=RANGE)

    assert len(subjects(plan, DeleteMachine)) == goes
    if sick == 1:
        assert held(plan) == {"w1": "unhealthyRange begins at 2"}


def test_an_annotated_machine_goes_although_fewer_are_unhealthy_than_the_range_says():
    assert subjects(plan_workers(asked(a_machine("w1", RANGE)), pool=RANGE), DeleteMachine) == ["w1"]
