from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.clusters.builders import (
    ALL_ROLES,
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_newborn,
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
    silent,
    some,
    stopped,
    subjects,
    unknown,
    unready,
)

from windrow.bootstrap.spec import Role
from windrow.clusters.api.machine import with_status
from windrow.clusters.api.names import HOST_READY
from windrow.clusters.api.status import Breaker, RecordedStatus
from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.plan.actions import DeleteMachine, StartVM
from windrow.clusters.plan.diagnosis import loss_hint
from windrow.clusters.plan.disruptions import LAST_ETCD_MEMBER
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.state import INITIALIZING, GuestState
from windrow.clusters.status import derive_cluster, derive_machine, find_wait
from windrow.kubernetes.conditions import Condition, find_condition, set_condition

SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 5)
LONG_AGO = NOON - minutes(30)


def workers_with(*changed, pool=WORKERS):
    """A healthy cluster of three servers and the pool's workers, the first of which are `changed`."""
    rest = some("w", pool.quantity, pool)[len(changed) :]
    return a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), *changed, *rest]


W1 = a_machine("w1", WORKERS)


def test_a_worker_whose_vm_is_gone_is_replaced_at_once():
    plan = planned(*workers_with(missing(W1)))

    assert of_kind(plan, DeleteMachine) == [DeleteMachine("VirtualMachine default/w1 not found", "w1")]


def test_a_ready_node_is_left_alone_whatever_harvester_shows():
    gone = replace(missing(W1), node=W1.node)

    assert planned(*workers_with(gone)).actions == ()


def test_unknown_is_not_gone():
    plan = planned(*workers_with(unknown(unready(W1, LONG_AGO), "the credential was refused: 401")))

    assert plan.actions == ()
    assert "401" in plan.waits[0].what


def test_a_machine_not_looked_at_yet_is_not_judged():
    plan = planned(*workers_with(replace(unready(W1, LONG_AGO), vm=None)))

    assert plan.actions == ()


def test_a_stopped_machine_is_started_before_it_is_replaced():
    plan = planned(*workers_with(stopped(W1)))

    assert subjects(plan, StartVM) == ["w1"]
    assert not of_kind(plan, DeleteMachine)


def test_a_started_machine_is_given_time_to_come_up():
    started = record_of(stopped(W1), restart_count=1, last_restart=NOON - minutes(1))

    plan = planned(*workers_with(started))

    assert plan.actions == ()
    assert plan.waits[0].until == NOON + minutes(1)


def test_a_machine_that_stands_still_again_after_a_start_is_replaced():
    started = record_of(stopped(W1), restart_count=1, last_restart=NOON - minutes(10))

    assert subjects(planned(*workers_with(started)), DeleteMachine) == ["w1"]


def test_a_machine_that_was_well_since_its_last_start_is_started_again():
    started = record_of(stopped(W1), restart_count=0, last_restart=NOON - minutes(600))

    assert subjects(planned(*workers_with(started)), StartVM) == ["w1"]


@pytest.mark.parametrize("state", ["provisioning", "starting", "stopping", "migrating", "deleting"])
def test_a_machine_on_its_way_is_waited_for(state):
    plan = planned(*workers_with(sighted(unready(W1, LONG_AGO), state=state)))

    assert plan.actions == ()
    assert state in plan.waits[0].what


def test_a_running_machine_is_given_the_pools_time():
    plan = planned(*workers_with(unready(W1, NOON - minutes(4))))

    assert plan.actions == ()
    assert plan.waits[0].until == NOON + minutes(1)


def test_a_running_machine_is_replaced_after_the_pools_time():
    plan = planned(*workers_with(unready(W1, NOON - minutes(5))))

    assert (
        of_kind(plan, DeleteMachine)[0].because == "its Node was not Ready for 5m (kubelet stopped posting)"
    )


def test_the_time_of_not_being_ready_counts_from_our_own_record_not_from_the_guests_clock():
    assert W1.node is not None
    claims_long = replace(unready(W1), node=replace(W1.node, ready=False, since=NOON - minutes(600)))

    assert planned(*workers_with(claims_long)).actions == ()


def test_a_start_gives_new_time():
    started = record_of(unready(W1, LONG_AGO), restart_count=1, last_restart=NOON - minutes(2))

    assert planned(*workers_with(started)).actions == ()


def test_a_machine_on_a_failed_host_is_given_longer():
    on_failed = sighted(unready(W1, NOON - minutes(6)), host_ready=False)
    for_long = sighted(unready(W1, NOON - minutes(15)), host_ready=False)

    assert planned(*workers_with(on_failed)).actions == ()
    assert subjects(planned(*workers_with(for_long)), DeleteMachine) == ["w1"]


def test_a_newcomer_that_never_becomes_a_node_is_replaced_after_the_startup_time():
    late = record_of(nodeless(W1), created=NOON - minutes(10))
    early = record_of(nodeless(W1), created=NOON - minutes(9))

    assert subjects(planned(*workers_with(late)), DeleteMachine) == ["w1"]
    assert planned(*workers_with(early)).actions == ()


@pytest.mark.parametrize("provisioned", [NOON - minutes(9), None])
def test_the_startup_time_begins_with_the_vm_and_not_with_the_machine(provisioned):
    """A manager that was away in between makes the VM and would delete it at once."""
    waited = record_of(nodeless(W1), created=LONG_AGO, provisioned=provisioned)

    assert planned(*workers_with(waited)).actions == ()


def test_when_a_vm_was_created_is_recorded_once():
    new = record_of(nodeless(W1), provisioned=None)
    seen = look(*workers_with(new))
    first = derive_machine(new, seen, plan_cluster(seen), {})
    read = replace(new, record=with_status(new.record, first))
    seen = look(*workers_with(read), now=NOON + minutes(1))
    second = derive_machine(read, seen, plan_cluster(seen), {})

    assert read.record.provisioned == NOON
    assert with_status(new.record, second).provisioned == NOON


def uninitialized(machine, age_m=10, created=None):
    """Its Node is Ready, which is recorded as Joined at once, and the cloud provider has not initialized it since."""
    since = NOON - minutes(age_m)
    waits = set_condition(machine.record.conditions, Condition("Ready", "False", INITIALIZING), since)
    newcomer = record_of(machine, conditions=waits, created=created or since)
    return replace(newcomer, node=replace(machine.node, provider_id="", uninitialized=True))


OTHERS = some("w", 5, WORKERS)[1:]


@pytest.mark.parametrize(
    ("machines", "replaced"),
    [
        ([uninitialized(W1), *OTHERS], ["w1"]),
        ([uninitialized(W1, 9), *OTHERS], []),
        # Its Node was registered anew a moment ago.
        ([uninitialized(W1, 1, created=LONG_AGO), *OTHERS], []),
        ([replace(uninitialized(W1), record=replace(W1.record, created=LONG_AGO)), *OTHERS], []),
        # The cloud provider initializes none: other machines would fare no better.
        ([uninitialized(one) for one in (W1, *OTHERS)], []),
    ],
)
def test_a_newcomer_that_the_cloud_provider_alone_of_all_never_initializes_is_replaced(machines, replaced):
    plan = planned(a_cluster(WORKERS, cloud_provider="harvester"), machines)

    found = of_kind(plan, DeleteMachine)
    assert [action.machine for action in found] == replaced
    assert {action.because for action in found} <= {
        "the cloud provider did not initialize its Node within 10m"
    }


def test_a_pool_may_wait_for_ever_for_newcomers():
    pool = a_pool("workers", 5, startup_timeout=None)
    late = record_of(nodeless(a_machine("w1", pool)), created=NOON - minutes(1000))

    assert planned(*workers_with(late, pool=pool)).actions == ()


def test_nothing_is_judged_while_the_guest_api_is_silent():
    cluster, machines = workers_with(missing(W1), unready(a_machine("w2", WORKERS), LONG_AGO))

    plan = planned(cluster, machines, guest=silent("connection refused"))

    assert plan.actions == ()
    assert any("connection refused" in wait.what for wait in plan.waits)


def test_a_stopped_machine_is_started_even_while_the_guest_api_is_silent():
    plan = planned(*workers_with(stopped(W1)), guest=silent())

    assert subjects(plan, StartVM) == ["w1"]


def test_an_annotation_asks_for_a_replacement_of_a_ready_machine():
    assert subjects(planned(*workers_with(record_of(W1, replace_now=True))), DeleteMachine) == ["w1"]


def test_remediation_turned_off_by_annotation_replaces_nothing_and_says_so():
    cluster, machines = workers_with(missing(W1))

    plan = planned(replace(cluster, remediation_disabled=True), machines)

    assert plan.actions == ()
    assert "annotation windrow.io/remediation disables remediation" in plan.waits[0].what


@pytest.mark.parametrize("deleting", [False, True])
def test_a_machine_of_an_unknown_release_does_not_stop_its_cluster(deleting):
    broken = record_of(a_machine("s1", SERVERS), version="nonsense")
    cluster, machines = workers_with(missing(W1))
    machines[0] = broken
    if deleting:
        cluster = replace(cluster, deletion_timestamp=NOON)

    plan = planned(cluster, machines)

    assert "w1" in subjects(plan, DeleteMachine)


def test_a_paused_pool_is_left_as_it_is():
    pool = a_pool("workers", 5, paused=True)

    assert planned(*workers_with(missing(a_machine("w1", pool)), pool=pool)).actions == ()


# -- breaker


def test_when_more_than_forty_percent_are_not_ready_none_of_them_is_replaced():
    two = [unready(machine, LONG_AGO) for machine in some("w", 2, WORKERS)]
    three = [unready(machine, LONG_AGO) for machine in some("w", 3, WORKERS)]

    assert subjects(planned(*workers_with(*two)), DeleteMachine) == ["w1", "w2"]
    plan = planned(*workers_with(*three))
    assert not of_kind(plan, DeleteMachine)
    assert held(plan)["w1"].startswith("3 of 5 machines of pool workers are unhealthy, more than the 2")


@pytest.mark.parametrize("lost", [3, 5])
def test_machines_whose_vm_is_gone_are_no_epidemic_and_are_replaced_within_the_budget(lost):
    gone = [missing(machine) for machine in some("w", lost, WORKERS)]
    cluster, machines = workers_with(*gone)

    plan = planned(cluster, machines)

    assert subjects(plan, DeleteMachine) == ["w1", "w2"]
    assert "allows 2 at a time" in held(plan)["w3"]
    assert "breaker" not in derive_cluster(look(cluster, machines), plan, None)["pools"][1]


def test_replacements_that_boot_count_in_the_budget_of_machines_whose_vm_is_gone():
    gone = [missing(a_machine(f"w{n}", WORKERS)) for n in (1, 2)]
    booting = [nodeless(a_machine(f"w{n}", WORKERS)) for n in (3, 4)]

    assert not of_kind(planned(*workers_with(*gone, *booting)), DeleteMachine)


def test_machines_whose_vm_is_gone_count_in_the_breaker_of_those_that_are_not_ready():
    sick = [
        missing(a_machine("w1", WORKERS)),
        *(unready(a_machine(f"w{n}", WORKERS), LONG_AGO) for n in (2, 3)),
    ]

    plan = planned(*workers_with(*sick))

    assert subjects(plan, DeleteMachine) == ["w1"]
    assert set(held(plan)) == {"w2", "w3"}


@pytest.mark.parametrize("how", [missing, stopped, unready, lambda machine: unready(machine, LONG_AGO)])
def test_the_annotation_replaces_a_machine_that_the_breaker_holds(how):
    sick = [how(machine) for machine in some("w", 5, WORKERS)]
    sick[3] = record_of(sick[3], replace_now=True)

    assert "w4" in subjects(planned(*workers_with(*sick)), DeleteMachine)


def test_the_annotation_replaces_no_machine_whose_vm_is_unknown():
    asked = record_of(unknown(unready(W1, LONG_AGO)), replace_now=True)

    assert planned(*workers_with(asked)).actions == ()


def test_when_the_breaker_lets_go_the_rest_are_given_new_time():
    cluster, machines = workers_with(*(unready(machine, LONG_AGO) for machine in some("w", 2, WORKERS)))

    def recorded(**breaker):
        return replace(cluster, recorded=replace(cluster.recorded, breakers={"workers": Breaker(**breaker)}))

    assert not of_kind(planned(recorded(), machines), DeleteMachine)
    assert not of_kind(planned(recorded(released=NOON - minutes(4)), machines), DeleteMachine)
    assert len(of_kind(planned(recorded(released=NOON - minutes(5)), machines), DeleteMachine)) == 2


def test_replacements_under_way_count_in_the_budget():
    sick = [leaving(missing(a_machine("w1", WORKERS))), missing(a_machine("w2", WORKERS))]
    pool = replace(WORKERS, max_unhealthy=IntOrPercent(None, 1))

    plan = planned(a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), *sick, *some("w", 5, pool)[2:]])

    assert not of_kind(plan, DeleteMachine)


def test_a_small_pool_may_always_replace_one():
    pool = a_pool("workers", 1)

    assert subjects(planned(*workers_with(missing(a_machine("w1", pool)), pool=pool)), DeleteMachine) == [
        "w1"
    ]


def test_the_user_may_set_the_breaker_wider():
    pool = a_pool("workers", 5, max_unhealthy=IntOrPercent(100))
    sick = [missing(a_machine(f"w{n}", pool)) for n in range(1, 6)]

    assert len(subjects(planned(*workers_with(*sick, pool=pool)), DeleteMachine)) == 5


def test_a_pool_that_allows_no_replacement_has_none():
    pool = a_pool("workers", 5, max_unhealthy=IntOrPercent(None, 0))

    assert not of_kind(planned(*workers_with(missing(a_machine("w1", pool)), pool=pool)), DeleteMachine)


# -- etcd


def servers_with(*changed, pool=SERVERS):
    rest = some("s", pool.quantity, pool)[len(changed) :]
    return a_cluster(pool), [*changed, *rest]


S1 = a_machine("s1", SERVERS)


def test_one_lost_member_of_three_is_replaced():
    assert subjects(planned(*servers_with(missing(S1))), DeleteMachine) == ["s1"]


def test_two_lost_members_of_three_are_not_replaced_because_etcd_has_no_quorum():
    plan = planned(*servers_with(missing(S1), missing(a_machine("s2", SERVERS))))

    assert not of_kind(plan, DeleteMachine)
    assert held(plan)["s1"] == "only 1 of 3 etcd members are healthy, so etcd has no quorum"


def test_no_member_is_removed_by_what_was_seen_before_the_watches_broke():
    """Another member may have been lost since."""
    cluster, machines = servers_with(missing(S1))
    broken = GuestState("reachable", interruption="the connection broke in the middle of the answer")
    unwatched = [machines[0], unknown(machines[1], "Harvester cannot be watched right now"), machines[2]]
    unseen = [*machines[:2], replace(machines[2], vm=None)]

    assert held(planned(cluster, machines, guest=broken))["s1"] == (
        "etcd members are not removed while the guest API is not watched "
        "(the connection broke in the middle of the answer)"
    )
    assert held(planned(cluster, unwatched))["s1"] == (
        f"etcd members are not removed while the state of {machines[1].vm_ref} is unknown "
        "(Harvester cannot be watched right now)"
    )
    assert held(planned(cluster, unseen))["s1"] == (
        f"etcd members are not removed while the state of {machines[2].vm_ref} is unknown (not observed yet)"
    )


def test_two_of_three_members_that_were_stopped_are_started_though_their_nodes_stay_ready():
    """Without quorum no Node changes any more, so that nothing else would ever say that they do not run."""
    down = [sighted(a_machine(name, SERVERS), state="stopped") for name in ("s1", "s2")]

    starts = of_kind(planned(*servers_with(*down)), StartVM)

    assert [start.machine for start in starts] == ["s1", "s2"]
    assert starts[0].because == (
        "VirtualMachine default/s1 is stopped; a restart is quicker than a replacement; "
        "1 of 3 etcd members run, so etcd has no quorum"
    )


def test_one_of_three_members_that_was_stopped_is_started_once_its_node_says_so():
    assert not of_kind(planned(*servers_with(sighted(S1, state="stopped"))), StartVM)
    assert subjects(planned(*servers_with(stopped(S1))), StartVM) == ["s1"]


def test_a_lone_etcd_member_is_never_replaced():
    pool = a_pool("pool1", 1, ALL_ROLES)

    plan = planned(*servers_with(missing(a_machine("s1", pool)), pool=pool))

    assert not of_kind(plan, DeleteMachine)
    assert held(plan) == {"s1": LAST_ETCD_MEMBER}


@pytest.mark.parametrize(
    ("broken", "guest", "hint"),
    [
        (
            missing,
            silent(),
            "restore VirtualMachine default/s1 on Harvester, or go on without its data: windrow delete fleet-default/prod, "
            "then apply the manifest again",
        ),
        (
            lambda machine: unready(machine, NOON - minutes(20)),
            silent(),
            "see its console with windrow machine console fleet-default/s1, or go on without its data: windrow delete "
            "fleet-default/prod, then apply the manifest again",
        ),
        (lambda machine: unready(machine, NOON - minutes(4)), silent(), ""),
        (stopped, silent(), ""),
        (
            lambda machine: unready(machine, NOON - minutes(20)),
            None,
            "raise the quantity of machine pool pool1 (windrow scale fleet-default/prod pool1=2), or delete the Cluster "
            "(windrow delete fleet-default/prod)",
        ),
    ],
)
def test_the_wait_for_a_lone_etcd_member_names_the_command_that_ends_it(broken, guest, hint):
    pool = a_pool("pool1", 1, ALL_ROLES)
    machine = record_of(broken(a_machine("s1", pool)), replace_now=True)
    state = look(a_cluster(pool), [machine], **({"guest": guest} if guest else {}))
    plan = plan_cluster(state)

    waiting = derive_machine(machine, state, plan, {})["waiting"]
    conditions = derive_cluster(state, plan, None)["conditions"]
    why = f"replacement skipped: last etcd member{'; ' * bool(hint)}{hint}"
    if not machine.is_down or hint:
        assert waiting["for"] == f"Machine s1 to recover ({why})"
    assert next(one["message"] for one in conditions if one["type"] == "RemediationAllowed") == f"s1: {why}"
    soon = [one.until for one in plan.held]
    assert soon == [
        NOON + minutes(1) if machine.presence == "present" and not (hint or machine.is_down) else None
    ]


def with_ready(machine, status, since):
    """Its Ready condition as recorded; `since` None: it is not known when it changed."""
    ready = condition("Ready", status, since or NOON)
    if since is None:
        del ready["lastTransitionTime"]
    return record_of(unready(machine), conditions=(*machine.record.conditions, ready))


@pytest.mark.parametrize(
    ("changed", "due_in_m"),
    [
        (lambda one: with_ready(one, "False", NOON - minutes(8)), 2),
        (lambda one: with_ready(one, "False", NOON - minutes(10)), None),
        (lambda one: with_ready(one, "False", None), 10),
        # It was Ready when it was last seen, and it is not known since when it is not.
        (lambda one: with_ready(one, "True", NOON - minutes(30)), 10),
        # A restart starts the time anew, and one from before takes nothing from it.
        (lambda one: record_of(with_ready(one, "False", NOON - minutes(30)), last_restart=NOON - minutes(3)), 7),
        (lambda one: record_of(with_ready(one, "False", NOON - minutes(3)), last_restart=NOON - minutes(30)), 7),
    ],
)  # fmt: skip
def test_a_lone_etcd_member_has_the_time_of_its_pool_to_recover_by_itself(changed, due_in_m):
    pool = a_pool("pool1", 1, ALL_ROLES, unhealthy_timeout=minutes(10))
    machine = record_of(changed(a_machine("s1", pool)), replace_now=True)

    (one,) = planned(a_cluster(pool), [machine], guest=silent()).held

    assert one.until == (None if due_in_m is None else NOON + minutes(due_in_m))
    assert bool(one.hint) is (due_in_m is None)


@pytest.mark.parametrize(("gone", "is_lost"), [(1, False), (2, True), (3, True)])
def test_the_wait_for_members_of_which_a_majority_is_gone_names_the_command_that_ends_it(gone, is_lost):
    members = some("s", 3, SERVERS)
    broken = [missing(one) for one in members[:gone]] + [unready(one) for one in members[gone:]]
    state = look(a_cluster(SERVERS), broken, guest=silent())
    plan = plan_cluster(state)

    waiting = [derive_machine(one, state, plan, {})["waiting"]["for"] for one in broken]
    way = "go on without its data: windrow delete fleet-default/prod, then apply the manifest again"
    if gone == 2:
        command = "windrow restore fleet-default/prod --lost-quorum --member s3"
        way = f"go on with the data of a member that runs: {command}"
    lost = (
        f"etcd to have a quorum again (the VirtualMachines of {gone} of 3 members are not found; restore VirtualMachine "
        f"default/s1 on Harvester, or {way})"
    )
    assert (waiting[0] == lost) is is_lost
    assert "guest API server" in waiting[0] or is_lost
    wait = find_wait(state, plan, {})
    assert wait is not None
    assert (wait.what == f"{lost} (and 2 more)") is is_lost
    assert not plan.actions


def test_a_member_without_a_control_plane_is_never_named_to_go_on_with():
    members = some("s", 3, a_pool("servers", 3, frozenset({Role.ETCD})))
    broken = [missing(one) for one in members[:2]] + [unready(members[2])]
    state = look(a_cluster(SERVERS), broken, guest=silent())

    assert "--lost-quorum" not in loss_hint(broken[0], state)
    assert "go on without its data: windrow delete fleet-default/prod" in loss_hint(broken[0], state)


def test_a_stopped_lone_member_is_started_and_the_skipped_replacement_is_said():
    pool = a_pool("pool1", 1, ALL_ROLES)

    plan = planned(*servers_with(stopped(a_machine("s1", pool)), pool=pool), guest=silent())

    assert subjects(plan, StartVM) == ["s1"]
    assert held(plan) == {"s1": LAST_ETCD_MEMBER}


def test_a_lone_member_that_stands_still_again_is_started_again():
    pool = a_pool("pool1", 1, ALL_ROLES)
    twice = record_of(stopped(a_machine("s1", pool)), restart_count=1, last_restart=LONG_AGO)

    plan = planned(*servers_with(twice, pool=pool), guest=silent())

    assert subjects(plan, StartVM) == ["s1"]
    assert not of_kind(plan, DeleteMachine)


def test_a_member_is_not_replaced_while_another_is_leaving():
    five = a_pool("servers", 5, SERVER)
    machines = leaving(a_machine("s1", five)), missing(a_machine("s2", five))
    plan = planned(*servers_with(*machines, pool=five))

    assert "s2" not in subjects(plan, DeleteMachine)
    assert held(plan)["s2"] == "one etcd member at a time; s1 is leaving"


def test_a_member_is_not_replaced_while_another_is_joining():
    plan = planned(*servers_with(missing(S1), nodeless(a_machine("s2", SERVERS))))

    assert not of_kind(plan, DeleteMachine)
    assert held(plan)["s1"] == "one etcd member at a time; s2 is joining"


def test_a_learner_is_not_counted_as_healthy():
    assert S1.node is not None
    learner = a_machine("s2", SERVERS)
    assert learner.node is not None
    learner = replace(learner, node=replace(learner.node, etcd_voter=False))

    plan = planned(*servers_with(missing(S1), learner))

    assert not of_kind(plan, DeleteMachine)


def test_members_are_not_judged_lost_before_their_time():
    plan = planned(*servers_with(unready(S1, NOON - minutes(4))))

    assert plan.actions == ()


def test_a_member_not_ready_for_too_long_is_replaced():
    assert subjects(planned(*servers_with(unready(S1, NOON - minutes(5)))), DeleteMachine) == ["s1"]


def test_the_only_ready_control_plane_is_kept():
    pool = a_pool("cp", 1, frozenset(role for role in SERVER if role.value == "control-plane"))
    lost = missing(a_machine("c1", pool))
    quorum = a_pool("etcd", 3, frozenset(role for role in SERVER if role.value == "etcd"))

    plan = planned(a_cluster(quorum, pool), [lost, *some("e", 3, quorum)])

    assert held(plan) == {"c1": "no other control plane is Ready"}


def test_a_condition_recorded_as_unknown_starts_no_clock():
    record = unready(W1)
    record = record_of(
        record, conditions=(condition("Joined", "True"), condition("Ready", "Unknown", LONG_AGO))
    )

    assert planned(*workers_with(record)).actions == ()


def first_server_of_old(**guest):
    pool = a_pool("servers", 1, SERVER)
    recorded = RecordedStatus(init_server_uid="uid-s1", init_server_name="s1")
    first = record_of(nodeless(a_machine("s1", pool)), is_init_server=True, created=LONG_AGO)
    return planned(replace(a_newborn(pool), recorded=recorded), [first], guest=GuestState(**guest))


def test_a_first_server_that_may_have_started_unseen_is_asked_before_it_is_judged():
    assert not first_server_of_old(state="unknown").actions
    assert not first_server_of_old(state="unreachable", probed_since=NOON - minutes(1)).actions
    assert subjects(
        first_server_of_old(state="unreachable", probed_since=NOON - minutes(2)), DeleteMachine
    ) == ["s1"]


def test_the_time_in_which_a_ready_node_was_initialised_is_not_time_of_not_being_ready():
    waited = set_condition((), Condition("Ready", "False", INITIALIZING), LONG_AGO)
    flickers = record_of(unready(W1), conditions=(*W1.record.conditions, *waited))

    plan = planned(*workers_with(flickers))

    assert plan.actions == ()
    assert NOON + minutes(5) in [wait.until for wait in plan.waits]


@pytest.mark.parametrize(
    ("since_start", "said"),
    [
        (1, "it joins the cluster"),
        (4.9, "it joins the cluster"),
        (
            5,
            "the machine is replaced if that takes longer than 10m; likely causes: (1) qemu-guest-agent is not in its "
            "image and cannot be installed, (2) nothing leases addresses on its network (no DHCP server, or the VLAN "
            "does not reach it); its console: windrow machine console fleet-default/w1",
        ),
    ],
)
def test_the_limit_of_a_newcomer_is_told_only_once_half_of_it_has_passed(since_start, said):
    newcomer = sighted(
        record_of(nodeless(a_machine("w1", WORKERS)), created=NOON - minutes(since_start)),
        addresses=(),
        agent_connected=False,
        because="its guest agent has not answered yet",
    )
    seen = look(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), newcomer])
    plan = plan_cluster(seen)

    waiting = derive_machine(newcomer, seen, plan, {})["waiting"]

    assert (
        waiting["for"]
        == "VirtualMachine default/w1 to report an IP address (its guest agent has not answered yet)"
    )
    assert waiting["next"] == said
    assert [wait.until for wait in plan.waits if wait.machine == "w1"] == [
        newcomer.record.created + minutes(5 if since_start < 5 else 10)
    ]


OVER_QUOTA = "Harvester has halted the VM: cpu insufficient resources due to resource quota"


@pytest.mark.parametrize(("why", "replaced"), [(OVER_QUOTA, []), ("the VM crashes at every start", ["w1"])])
def test_a_vm_that_is_halted_over_a_quota_is_started_again_and_never_replaced(why, replaced):
    """A replacement would be halted, too; many of them flood Harvester."""
    halted = sighted(nodeless(W1), state="failed", because=why)
    again = record_of(halted, restart_count=1, last_restart=NOON - minutes(2))

    plan = planned(*workers_with(again))

    assert subjects(plan, DeleteMachine) == replaced
    assert subjects(plan, StartVM) == ([] if replaced else ["w1"])


ELSEWHERE = "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 node(s) had volume node affinity conflict."


@pytest.mark.parametrize(("since", "replaced"), [(14.9, False), (15, True)])
def test_a_vm_whose_disks_are_on_a_lost_host_is_replaced_after_a_quarter_of_an_hour(since, replaced):
    worker = sighted(unready(W1, NOON - minutes(since)), state="starting", because=ELSEWHERE)

    plan = planned(*workers_with(worker))

    assert subjects(plan, DeleteMachine) == (["w1"] if replaced else [])
    assert "its disks are on a host that is not available" in plan.diagnoses["w1"].waiting_for


@pytest.mark.parametrize("why", ["0/3 nodes are available: 3 Insufficient memory.", ""])
def test_a_vm_that_no_host_has_room_for_is_waited_for(why):
    worker = sighted(unready(W1, NOON - minutes(60)), state="starting", because=why)

    assert planned(*workers_with(worker)).actions == ()


@pytest.mark.parametrize(
    ("host", "since", "replaced"),
    [("False", 14.9, False), ("False", 15, True), ("True", 5, True), ("", 5, True), ("", 4.9, False)],
)
def test_a_node_whose_vm_was_started_on_another_host_has_a_quarter_of_an_hour_in_all(host, since, replaced):
    """Harvester 1.6 takes six minutes for it, and then the VM boots."""
    worker = unready(W1, NOON - minutes(since))
    if host:
        known = set_condition(
            worker.record.conditions, Condition(HOST_READY, host, "x"), NOON - minutes(since)
        )
        worker = record_of(worker, conditions=known)

    assert subjects(planned(*workers_with(worker)), DeleteMachine) == (["w1"] if replaced else [])


def test_that_its_host_failed_is_recorded_until_its_node_is_ready():
    lost = sighted(unready(W1, NOON - minutes(2)), host_ready=False, host="h")
    seen = look(*workers_with(lost))

    def host_ready(machine):
        found = derive_machine(machine, seen, plan_cluster(seen), {})["conditions"]
        condition = find_condition(found, HOST_READY)
        return condition and (condition.status, condition.message)

    assert host_ready(lost) == ("False", "host h is not Ready")
    known = set_condition((), Condition(HOST_READY, "False", "HostNotReady"), NOON)
    assert host_ready(record_of(W1, conditions=known)) == ("True", "")
    assert host_ready(W1) is None


AGENT = "qemu-guest-agent is not in its image and cannot be installed"
NO_DHCP = "nothing leases addresses on its network (no DHCP server, or the VLAN does not reach it)"
RANGE_USED_UP = "the DHCP range of its network is used up (2 others of the pool have an address)"
NETWORK_DATA = "its network data configures another NIC, or no address"


@pytest.mark.parametrize(
    ("others", "agent_connected", "causes"),
    [
        (False, False, [AGENT, NO_DHCP]),
        (False, True, [NO_DHCP, NETWORK_DATA]),
        (True, False, [RANGE_USED_UP, AGENT]),
        (True, True, [RANGE_USED_UP, NETWORK_DATA]),
    ],
)
def test_a_vm_without_address_has_its_likely_causes_told_in_order(others, agent_connected, causes):
    newcomer = sighted(
        record_of(nodeless(a_machine("w9", WORKERS)), created=NOON - minutes(6)),
        addresses=(),
        agent_connected=agent_connected,
    )
    siblings = some("w", 2, WORKERS) if others else []
    seen = look(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), *siblings, newcomer])

    said = derive_machine(newcomer, seen, plan_cluster(seen), {})["waiting"]["next"]

    assert "likely causes: " + ", ".join(f"({n}) {cause}" for n, cause in enumerate(causes, 1)) in said


def test_the_reason_of_a_replacement_says_that_there_was_no_address():
    newcomer = sighted(
        record_of(nodeless(a_machine("w9", WORKERS)), created=NOON - minutes(11)),
        addresses=(),
        agent_connected=False,
    )
    plan = planned(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), *some("w", 2, WORKERS), newcomer])

    (deleted,) = [action for action in plan.actions if isinstance(action, DeleteMachine)]
    assert deleted.because == (
        "its Node did not become Ready, and VirtualMachine default/w9 reported no IP address, within 10m"
    )


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("provisioning", "it boots"),
        ("starting", "its Node becomes Ready again"),
        ("stopping", "it is started again"),
        ("deleting", "the machine is replaced"),
        ("migrating", "its Node becomes Ready again"),
    ],
)
def test_what_comes_after_a_state_is_told_in_plain_words(state, said):
    moving = sighted(unready(a_machine("w1", WORKERS)), state=state)

    plan = planned(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), moving])

    assert [wait.then for wait in plan.waits if wait.machine == "w1"] == [said]


GONE = replace(unready(W1, LONG_AGO), node=None)


@pytest.mark.parametrize(
    "worker", [GONE, unready(W1, LONG_AGO), missing(W1)], ids=["gone", "unready", "missing"]
)
def test_nothing_is_replaced_while_a_node_of_the_guest_cannot_be_read(worker):
    cluster, machines = workers_with(worker)
    unread = GuestState("unknown", "Node w2 of the guest cluster cannot be read")

    assert of_kind(planned(cluster, machines), DeleteMachine)
    assert not of_kind(planned(cluster, machines, guest=unread), DeleteMachine)


# -- before the VM ------------------------------------------------------------------------------------------------


def waiting_for_vm(pool=WORKERS, **changes):
    """A worker that Harvester has not accepted yet."""
    changes = {"driver_config": None, "conditions": (), "node": ""} | changes
    return replace(record_of(nodeless(W1), **changes), vm=None)


def test_a_machine_without_vm_whose_image_was_corrected_is_made_anew():
    corrected = replace(WORKERS, options={**WORKERS.options, "imageName": "default/leap"})

    [deletion] = of_kind(planned(*workers_with(waiting_for_vm(), pool=corrected)), DeleteMachine)

    assert deletion.machine == "w1"
    assert deletion.because == "imageName of pool workers changed before its VM was created"


def test_a_machine_without_vm_whose_credential_was_corrected_is_made_anew():
    [deletion] = of_kind(planned(*workers_with(waiting_for_vm(credential="ns:typo"))), DeleteMachine)

    assert deletion.because == "the credential of pool workers changed before its VM was created"


@pytest.mark.parametrize("case", ["as asked", "has a VM", "paused", "remediation is off", "no config"])
def test_a_machine_that_may_have_a_vm_or_is_as_asked_stays(case):
    other = {**WORKERS.options, "imageName": "default/leap"}
    pool = WORKERS if case == "as asked" else replace(WORKERS, options=other)
    machine = waiting_for_vm()
    match case:
        case "has a VM":
            machine = W1
        case "paused":
            pool = replace(pool, paused=True)
        case "no config":
            pool = replace(pool, options=None)
    cluster, machines = workers_with(machine, pool=pool)
    if case == "remediation is off":
        cluster = replace(cluster, remediation_disabled=True)

    assert of_kind(planned(cluster, machines), DeleteMachine) == []
