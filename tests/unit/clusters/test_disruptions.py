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
    condition,
    held,
    leaving,
    look,
    minutes,
    missing,
    nodeless,
    planned,
    record_of,
    sighted,
    silent,
    some,
    subjects,
    unknown,
    unready,
)

from windrow.bootstrap.spec import Role
from windrow.clusters.api.status import Breaker, RecordedStatus
from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.orphans import OrphanVm
from windrow.clusters.plan import disruptions
from windrow.clusters.plan.actions import DeleteMachine, Disruption, RemoveEtcdMember
from windrow.clusters.plan.disruptions import GATE_NAMES, LAST_ETCD_MEMBER, admit, is_tripped
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


def test_a_member_whose_vm_is_gone_leaves_though_another_joins_which_etcd_does_not_let_in_before():
    """Each would wait for the other: etcd adds no member while one does not answer."""
    joining = record_of(nodeless(a_machine("s4", SERVERS)), status={})
    lost = missing(unready(a_machine("s1", SERVERS), LONG_AGO))
    rest = [a_machine("s2", SERVERS), a_machine("s3", SERVERS)]

    plan = planned(a_cluster(SERVERS), [lost, *rest, joining])
    assert subjects(plan, DeleteMachine) == ["s1"]

    healthy = asked(a_machine("s1", SERVERS))
    plan = planned(a_cluster(SERVERS), [healthy, *rest, joining])
    assert held(plan)["s1"] == "one etcd member at a time; s4 is joining"


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


def vm_gone(machine):
    return replace(machine, vm=missing(machine).vm)


# What Harvester shows of a VM while its Node is still Ready.
GOING = {
    "missing": vm_gone,
    "deleting": lambda machine: sighted(machine, state="deleting"),
    "stopping": lambda machine: sighted(machine, state="stopping"),
    "stopped": lambda machine: sighted(machine, state="stopped"),
}


@pytest.mark.parametrize("going", GOING)
def test_a_member_whose_vm_goes_is_not_healthy_though_its_node_is_still_ready(going):
    lost = GOING[going](a_machine("s3", SERVERS))
    machines = [leaving(a_machine("s1", SERVERS)), a_machine("s2", SERVERS), lost]

    assert held(planned(a_cluster(SERVERS), machines)) == {
        "s1": "etcd would keep 1 healthy of 2 members, which is no quorum"
    }


@pytest.mark.parametrize("going", GOING)
def test_a_pool_that_shrinks_gives_up_the_machine_whose_vm_goes(going):
    pool = replace(SERVERS, quantity=1)
    machines = [a_machine("s1", SERVERS), a_machine("s2", SERVERS), GOING[going](a_machine("s3", SERVERS))]

    assert "s3" in subjects(planned(a_cluster(pool), machines), DeleteMachine)


# -- how many machines of a pool are replaced at a time


def test_of_a_pool_that_is_annotated_as_a_whole_as_many_go_at_a_time_as_the_pool_may_lack():
    plan = plan_workers(*workers(5, asked))

    assert subjects(plan, DeleteMachine) == ["w1", "w2"]
    assert held(plan)["w3"] == (
        "2 machines of pool workers are being replaced or boot, and maxUnhealthy 40% allows 2 at a time"
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


# -- other pools, and machines that never were


def test_the_unhealthy_machines_of_another_pool_do_not_hold_this_one():
    more = a_pool("more", 5)
    sick = [unready(machine, LONG_AGO) for machine in (a_machine("w1", WORKERS), *some("m", 2, more))]
    well = [*some("s", 3, SERVERS), *some("w", 5, WORKERS)[1:], *some("m", 5, more)[2:]]

    assert subjects(planned(a_cluster(SERVERS, WORKERS, more), [*sick, *well]), DeleteMachine) == [
        "w1",
        "m1",
        "m2",
    ]


def test_the_unhealthy_machines_of_another_pool_do_not_begin_the_range_of_this_one():
    more = a_pool("more", 5)
    sick = [unready(machine, LONG_AGO) for machine in (a_machine("w1", RANGE), *some("m", 2, more))]
    well = [*some("s", 3, SERVERS), *some("w", 5, RANGE)[1:], *some("m", 5, more)[2:]]

    plan = planned(a_cluster(SERVERS, RANGE, more), [*sick, *well])

    assert held(plan) == {"w1": "unhealthyRange begins at 2"}


def test_what_leaves_or_goes_in_another_pool_takes_nothing_from_the_budget_of_this_one():
    more = a_pool("more", 5)
    gone = [missing(machine) for machine in (*some("w", 2, WORKERS), *some("m", 2, more))]
    leaves = [leaving(a_machine("m6", more)), leaving(nodeless(a_machine("m7", more)))]
    well = [*some("s", 3, SERVERS), *some("w", 5, WORKERS)[2:], *some("m", 5, more)[2:]]

    plan = planned(a_cluster(SERVERS, WORKERS, more), [*leaves, *gone[2:], *gone[:2], *well])

    assert subjects(plan, DeleteMachine) == ["w1", "w2"]
    assert set(held(plan)) == {"m1", "m2"}


def test_machines_whose_vm_vanished_before_they_were_ready_are_not_taken_for_ones_that_boot():
    gone = workers(3, lambda machine: missing(nodeless(machine)))

    plan = plan_workers(*gone)

    assert subjects(plan, DeleteMachine) == ["w1", "w2"]
    assert held(plan)["w3"].startswith("2 machines of pool workers are being replaced or boot")


def test_the_only_server_that_never_joined_is_not_replaced_where_no_etcd_member_is_known():
    one = a_pool("servers", 1, SERVER)
    late = record_of(nodeless(a_machine("s1", one)), created=NOON - minutes(11))

    assert held(planned(a_cluster(one), [late])) == {"s1": LAST_ETCD_MEMBER}


def test_a_server_of_a_removed_pool_that_never_joined_goes_though_no_etcd_member_is_known():
    removed = a_pool("removed", 1, frozenset({Role.ETCD}))
    late = record_of(nodeless(a_machine("e1", removed)), created=NOON - minutes(11))

    assert subjects(planned(a_cluster(SERVERS), [late]), DeleteMachine) == ["e1"]


def test_machines_that_leave_while_they_are_ready_take_nothing_from_the_budget_of_sick_ones():
    more = [leaving(a_machine(f"w{number}", WORKERS)) for number in (8, 9)]

    plan = plan_workers(unready(a_machine("w1", WORKERS), LONG_AGO), more=more)

    assert subjects(plan, DeleteMachine) == ["w1"]


def test_before_the_cluster_has_started_no_budget_holds_a_machine_whose_vm_is_gone():
    started = a_cluster(WORKERS)
    unstarted = a_cluster(WORKERS, recorded=RecordedStatus(init_server_uid="uid-s1", init_server_name="s1"))
    gone = workers(3, missing)

    assert len(subjects(planned(started, gone), DeleteMachine)) == 2
    assert len(subjects(planned(unstarted, gone), DeleteMachine)) == 3


def test_the_breaker_begins_with_the_start_of_the_cluster():
    unstarted = a_cluster(WORKERS, recorded=RecordedStatus(init_server_uid="uid-s1", init_server_name="s1"))
    sick = workers(3, lambda machine: unready(machine, LONG_AGO))
    proposed = [Disruption("replace", DeleteMachine("why", machine.name)) for machine in sick]

    assert len(admit(proposed, look(a_cluster(WORKERS), sick))[1]) == 3
    assert admit(proposed, look(unstarted, sick)) == (proposed, [])


def test_a_healthy_member_waits_for_a_server_that_may_be_joining_and_a_dead_one_does_not():
    s1, s2, s3 = some("s", 3, SERVERS)
    joining = nodeless(a_machine("s4", SERVERS))

    healthy = planned(a_cluster(SERVERS), [leaving(s1), s2, s3, joining])
    dead = planned(a_cluster(SERVERS), [leaving(unready(s1)), s2, s3, joining])

    assert held(healthy) == {"s1": "s4 (10.0.0.4) may be joining etcd"}
    assert subjects(dead, RemoveEtcdMember) == ["s1"]


def test_a_member_that_leaves_already_leaves_etcd_although_no_other_control_plane_is_ready():
    etcd = a_pool("etcd", 3, frozenset({Role.ETCD}))
    one = a_pool("servers", 1, SERVER)
    machines = [leaving(a_machine("s1", one)), *some("e", 3, etcd)]

    assert subjects(planned(a_cluster(one, etcd), machines), RemoveEtcdMember) == ["s1"]


@pytest.mark.parametrize(("because", "said"), [("", "not observed yet"), ("401", "401")])
def test_no_member_leaves_while_the_state_of_one_is_unknown(because, said):
    s1, s2, s3 = some("s", 3, SERVERS)

    plan = planned(a_cluster(SERVERS), [leaving(s1), unknown(s2, because), s3])

    assert subjects(plan, RemoveEtcdMember) == []
    assert held(plan)["s1"].endswith(f"the state of VirtualMachine default/s2 is unknown ({said})")


def test_what_waits_for_the_breaker_to_cool_down_says_until_when():
    cluster = a_cluster(SERVERS, WORKERS)
    breakers = {"workers": Breaker(released=NOON - minutes(4))}
    cluster = replace(cluster, recorded=replace(cluster.recorded, breakers=breakers))
    sick = unready(a_machine("w1", WORKERS), LONG_AGO)

    plan = planned(cluster, [*some("s", 3, SERVERS), sick, *some("w", 5, WORKERS)[1:]])

    assert [one.until for one in plan.held] == [NOON + minutes(1)]


# -- what the sentences and waits of admission depend on

ONE = a_pool("servers", 1, SERVER)


@pytest.mark.parametrize(
    ("pools", "cure"),
    [
        (
            (WORKERS, ONE),
            "raise the quantity of machine pool servers (windrow scale fleet-default/prod servers=2), or delete the Cluster "
            "(windrow delete fleet-default/prod)",
        ),
        ((WORKERS, replace(ONE, quantity=2)), "another one is created first"),
        (
            (WORKERS, replace(ONE, paused=True)),
            "machine pool servers is paused: resume it, with a quantity of 2 or more",
        ),
    ],
)
def test_the_last_etcd_member_says_where_the_next_one_comes_from(pools, cure):
    plan = planned(a_cluster(*pools), [leaving(a_machine("s1", ONE)), *workers(5)])

    assert held(plan)["s1"].endswith(f"; {cure}")


def test_a_worker_goes_beside_a_vm_that_may_be_an_etcd_member():
    suspect = OrphanVm("default", "of-no-pool", "vm-1", "machine-1", cluster_uid="cluster-uid")
    cluster = a_cluster(SERVERS, WORKERS)
    machines = [*some("s", 3, SERVERS), *workers(1, missing), *some("w", 5, WORKERS)[1:]]

    assert subjects(planned(cluster, machines, unrecorded=(suspect,)), DeleteMachine) == ["w1"]


def test_sick_machines_that_leave_another_pool_take_nothing_from_the_budget_of_this_one():
    more = a_pool("more", 5)
    leave = [leaving(nodeless(a_machine(f"m{number}", more))) for number in (8, 9)]
    machines = [*some("s", 3, SERVERS), unready(a_machine("w1", WORKERS), LONG_AGO)]
    machines += [*some("w", 5, WORKERS)[1:], *some("m", 5, more), *leave]

    assert subjects(planned(a_cluster(SERVERS, WORKERS, more), machines), DeleteMachine) == ["w1"]


@pytest.mark.parametrize(("age_m", "is_held"), [(10, True), (20, False), (21, False)])
def test_a_server_may_be_joining_until_the_startup_timeout_of_its_pool(age_m, is_held):
    one = a_pool("servers", 1, SERVER, startup_timeout=minutes(20))
    booted = record_of(nodeless(a_machine("s2", one)), created=NOON - minutes(age_m))

    plan = planned(a_cluster(one), [a_machine("s1", one), booted])

    assert subjects(plan, DeleteMachine) == ([] if is_held else ["s2"])
    assert not is_held or held(plan) == {"s2": "s2 (10.0.0.2) may be joining etcd"}


def test_a_server_whose_vm_is_gone_before_it_joined_does_not_hold_a_member():
    pool = a_pool("servers", 4, SERVER)
    s1, s2, s3, s4 = some("s", 4, pool)

    plan = planned(a_cluster(pool), [asked(s1), s2, s3, missing(nodeless(s4))])

    assert "s1" in subjects(plan, DeleteMachine)


def test_machines_whose_vm_is_gone_before_they_were_ready_begin_the_range():
    gone = workers(2, lambda machine: missing(nodeless(machine)), RANGE)

    assert subjects(plan_workers(*gone, pool=RANGE), DeleteMachine) == ["w1", "w2"]


def test_a_control_plane_goes_while_the_etcd_member_of_another_server_is_being_removed():
    both, alone = a_pool("both", 3, SERVER), a_pool("alone", 1, frozenset({Role.CONTROL_PLANE}))
    machines = [leaving(a_machine("s1", both)), *some("s", 3, both)[1:], missing(a_machine("c1", alone))]

    plan = planned(a_cluster(both, alone), machines)

    assert subjects(plan, RemoveEtcdMember) == ["s1"]
    assert subjects(plan, DeleteMachine) == ["c1"]


# -- who is the other one, who may be joining, who leaves first

ETCD = a_pool("etcd", 3, frozenset({Role.ETCD}))


def test_the_only_control_plane_is_not_its_own_substitute():
    alone = a_pool("alone", 1, frozenset({Role.CONTROL_PLANE}))

    plan = planned(a_cluster(ETCD, alone), [*some("e", 3, ETCD), asked(a_machine("c1", alone))])

    assert subjects(plan, DeleteMachine) == []
    assert held(plan) == {"c1": "no other control plane is Ready"}


@pytest.mark.parametrize(
    ("other", "goes"),
    [
        (lambda one: one, True),
        (unready, False),
        (lambda one: sighted(one, state="stopping"), False),
        (lambda one: sighted(unready(one), state="stopping"), False),
        (leaving, False),
    ],
)
def test_a_control_plane_goes_while_another_one_serves_and_is_not_about_to_stop(other, goes):
    pair = a_pool("pair", 2, frozenset({Role.CONTROL_PLANE}))
    c1, c2 = some("c", 2, pair)

    plan = planned(a_cluster(ETCD, pair), [*some("e", 3, ETCD), asked(c1), other(c2)])

    assert subjects(plan, DeleteMachine) == (["c1"] if goes else [])
    assert held(plan).get("c1", "") == ("" if goes else "no other control plane is Ready")


def seen(machine):
    """Its Node is there, and was never Ready."""
    return unready(record_of(machine, conditions=(), created=NOON - minutes(1)))


@pytest.mark.parametrize(
    ("fourth", "may_be_joining"),
    [
        (nodeless(a_machine("s4", SERVERS)), True),
        (record_of(nodeless(a_machine("s4", SERVERS)), conditions=(condition("Joined", "True"),)), False),
        (sighted(nodeless(a_machine("s4", SERVERS)), state="stopped"), False),
        (sighted(nodeless(a_machine("s4", SERVERS)), addresses=()), False),
        (seen(a_machine("s4", SERVERS)), False),
    ],
    ids=["booted", "was Ready once", "stopped", "without address", "with a Node"],
)
def test_a_healthy_member_waits_for_a_server_only_while_that_may_be_joining(fourth, may_be_joining):
    s1, s2, s3 = some("s", 3, SERVERS)

    plan = planned(a_cluster(SERVERS), [leaving(s1), s2, s3, fourth])

    assert subjects(plan, RemoveEtcdMember) == ([] if may_be_joining else ["s1"])


def test_a_server_whose_node_is_seen_but_not_recorded_yet_does_not_wait_for_itself():
    s1, s2, s3 = some("s", 3, SERVERS)

    plan = planned(a_cluster(SERVERS), [record_of(asked(s1), node=""), s2, s3])

    assert subjects(plan, DeleteMachine) == ["s1"]


def test_a_server_does_not_wait_for_a_worker_that_boots_or_goes():
    s1, s2, s3 = some("s", 3, SERVERS)
    goes, boots = asked(a_machine("w1", WORKERS)), nodeless(a_machine("w2", WORKERS))

    plan = planned(a_cluster(WORKERS, SERVERS), [goes, boots, asked(s1), s2, s3])

    assert subjects(plan, DeleteMachine) == ["w1", "s1"]


@pytest.mark.parametrize(
    ("one", "other", "first"),
    [
        (0, 0, "s1"),  # by name
        (0, 1, "s2"),  # the eldest order
        (1, 0, "s1"),
    ],
)
def test_of_two_members_that_leave_the_one_goes_that_was_deleted_first(one, other, first):
    s1, s2, s3, s4, s5 = some("s", 5, SERVERS)
    machines = [leaving(s2, NOON - minutes(other)), leaving(s1, NOON - minutes(one)), s3, s4, s5]

    plan = planned(a_cluster(SERVERS), machines)

    assert subjects(plan, RemoveEtcdMember) == [first]
    assert list(held(plan).values()) == [f"one etcd member at a time; {first} is leaving"]


def test_of_two_members_that_leave_the_dead_one_goes_although_the_healthy_one_was_deleted_first():
    """etcd admits no new member while one is down, and loses its quorum with the healthy one: neither would ever go."""
    s1, s2, s3 = some("s", 3, SERVERS)

    plan = planned(a_cluster(SERVERS), [leaving(s1, NOON - minutes(9)), leaving(unready(s2)), s3])

    assert subjects(plan, RemoveEtcdMember) == ["s2"]
    assert held(plan) == {"s1": "one etcd member at a time; s2 is leaving"}


def test_no_member_leaves_while_the_guest_is_silent():
    s1, s2, s3 = some("s", 3, SERVERS)

    plan = planned(a_cluster(SERVERS), [leaving(s1), s2, s3], guest=silent())

    assert subjects(plan, RemoveEtcdMember) == []
    assert held(plan) == {"s1": "etcd members are not removed while connection refused"}


# -- who counts as unhealthy, and what takes from a budget


def test_one_machine_that_leaves_takes_one_of_the_budget():
    four = [asked(machine) for machine in some("w", 5, WORKERS)[1:]]

    plan = plan_workers(leaving(asked(a_machine("w1", WORKERS))), *four)

    assert subjects(plan, DeleteMachine) == ["w2"]


def test_a_machine_whose_vm_is_gone_is_not_unhealthy_while_its_node_is_ready():
    w1, w2 = some("w", 2, RANGE)
    only_its_vm = replace(w2, vm=missing(w2).vm)

    plan = plan_workers(unready(w1, LONG_AGO), only_its_vm, pool=RANGE)

    assert held(plan)["w1"] == "unhealthyRange begins at 2"


def test_nodes_are_not_unhealthy_by_what_a_silent_guest_said_last():
    machines = workers(3, lambda machine: missing(machine) if machine.name == "w1" else unready(machine))

    assert is_tripped(WORKERS, look(a_cluster(WORKERS), machines))
    assert not is_tripped(WORKERS, look(a_cluster(WORKERS), machines, guest=silent()))


def test_what_is_broken_goes_before_what_is_too_many():
    few, more = a_pool("few", 1, SERVER), a_pool("more", 2, SERVER)
    machines = [*some("a", 2, few), a_machine("b3", more), missing(a_machine("b4", more))]

    plan = planned(a_cluster(few, more), machines)

    assert subjects(plan, DeleteMachine) == ["b4"]


def test_a_removal_that_has_begun_goes_first_whatever_was_proposed_first():
    machines = [leaving(a_machine("s1", SERVERS)), *some("s", 3, SERVERS)[1:], *some("w", 4, WORKERS)]
    kinds = ("scale-down", "replace", "replace")
    proposed = [
        Disruption(kind, DeleteMachine("why", f"w{number}")) for number, kind in enumerate(kinds, start=1)
    ]
    removal = Disruption("remove-member", RemoveEtcdMember("why", "s1", "s1"))
    machines[5] = asked(machines[5])

    admitted, _ = admit([*proposed, removal], look(a_cluster(SERVERS, WORKERS), machines))

    assert [one.machine for one in admitted] == ["s1", "w3", "w2", "w1"]


def test_a_member_whose_removal_goes_on_counts_once_among_those_that_are_replaced():
    """A server that was never a member is replaced beside it: etcd loses nothing with that one."""
    servers = a_pool("servers", 5, SERVER, max_unhealthy=IntOrPercent(None, 2), startup_timeout=minutes(20))
    dead, late = leaving(unready(a_machine("s1", servers))), nodeless(a_machine("s6", servers))
    late = record_of(late, created=NOON - minutes(30))

    plan = planned(a_cluster(servers), [dead, *some("s", 5, servers)[1:], late])

    assert subjects(plan, RemoveEtcdMember) == ["s1"]
    assert subjects(plan, DeleteMachine) == ["s6"]


def test_a_healthy_member_whose_removal_goes_on_takes_nothing_from_the_budget_of_sick_servers():
    servers = a_pool("servers", 5, SERVER, max_unhealthy=IntOrPercent(None, 1), startup_timeout=minutes(20))
    late = record_of(nodeless(a_machine("s6", servers)), created=NOON - minutes(30))

    plan = planned(a_cluster(servers), [leaving(a_machine("s1", servers)), *some("s", 5, servers)[1:], late])

    assert subjects(plan, RemoveEtcdMember) == ["s1"]
    assert subjects(plan, DeleteMachine) == ["s6"]


# -- what metrics call it


def test_every_gate_has_a_word_of_its_own_for_metrics():
    gates = (*disruptions._ETCD_GATES, *disruptions._GATES, *disruptions._UPDATE_GATES)

    assert len(set(GATE_NAMES)) == len({gate for _, gate in gates}) == len(gates)
    assert all(name.isalpha() and name[0].isupper() for name in GATE_NAMES)


def test_what_is_held_names_the_gate_that_held_it():
    plan = planned(a_cluster(WORKERS), workers(3, missing))

    assert {one.gate for one in plan.held} == {"Breaker"}
