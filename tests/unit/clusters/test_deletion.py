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
    held,
    leaving,
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
    unordered,
    unready,
)

from windrow.clusters.api.cluster import DRAIN_TIMEOUT
from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.api.status import GuestServiceAccount, RecordedStatus
from windrow.clusters.orphans import MachineClaim
from windrow.clusters.plan.actions import (
    CordonNode,
    DeleteMachine,
    DeleteNode,
    DeleteNodePassword,
    DeleteSecrets,
    DeleteServiceAccount,
    DeleteVM,
    EvictPods,
    RemoveEtcdMember,
    RemoveFinalizer,
    RemoveMachineFinalizer,
    StartVM,
)
from windrow.clusters.state import GuestState, Pod

SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 1)
DRAINED = a_pool("workers", 1, drain=True)


def worker_leaves(worker, pool=WORKERS, **rest):
    return planned(a_cluster(SERVERS, replace(pool, quantity=0)), [*some("s", 3, SERVERS), worker], **rest)


def unseen(machine):
    """Its node was recorded, and nothing is known of it now."""
    return replace(machine, node=None)


def cordoned(machine):
    return replace(machine, node=replace(machine.node, unschedulable=True))


def test_a_worker_without_drain_loses_its_vm_first():
    plan = worker_leaves(leaving(a_machine("w4", WORKERS)))

    assert plan.actions == (DeleteVM("its Machine is deleted", "w4"),)


def test_a_drained_pool_cordons_and_evicts_before_the_vm_goes():
    busy = replace(
        leaving(a_machine("w4", DRAINED)),
        pods=(Pod("default", "web-1"), Pod("default", "web-2", is_deleting=True)),
    )

    plan = worker_leaves(busy, DRAINED)

    assert [type(action) for action in plan.actions] == [CordonNode, EvictPods]
    assert plan.actions[1].pods == (("default", "web-1"),)


def test_an_empty_node_is_cordoned_before_its_vm_goes():
    plan = worker_leaves(leaving(a_machine("w4", DRAINED)), DRAINED)

    assert [type(action) for action in plan.actions] == [CordonNode]


def test_an_empty_cordoned_node_is_drained():
    plan = worker_leaves(cordoned(leaving(a_machine("w4", DRAINED))), DRAINED)

    assert subjects(plan, DeleteVM) == ["w4"]


def test_a_cordoned_node_is_drained_while_it_has_pods():
    busy = replace(cordoned(leaving(a_machine("w4", DRAINED))), pods=(Pod("default", "web-1"),))

    assert [type(action) for action in worker_leaves(busy, DRAINED).actions] == [EvictPods]


def test_a_drain_ends_when_its_time_is_over():
    stuck = replace(
        cordoned(leaving(a_machine("w4", DRAINED), NOON - minutes(5))), pods=(Pod("default", "web-1"),)
    )

    assert subjects(worker_leaves(stuck, DRAINED), DeleteVM) == ["w4"]


def test_a_drain_without_a_limit_goes_on_for_ever_and_says_so():
    forever = replace(DRAINED, drain_timeout=None)
    stuck = replace(
        cordoned(leaving(a_machine("w4", forever), NOON - minutes(500))), pods=(Pod("default", "web-1"),)
    )

    plan = worker_leaves(stuck, forever)

    assert subjects(plan, DeleteVM) == []
    (wait,) = (wait for wait in plan.waits if wait.machine == "w4")
    assert wait.then == "the machine is deleted, however long that takes, since drainBeforeDeleteTimeout is 0"


def test_a_machine_of_a_removed_pool_is_drained_with_the_usual_limit():
    removed = a_pool("removed", 1)
    busy = replace(leaving(a_machine("r1", removed)), pods=(Pod("default", "web-1"),))

    plan = planned(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), *some("w", 3, WORKERS), busy])

    assert (subjects(plan, CordonNode), subjects(plan, EvictPods), subjects(plan, DeleteVM)) == (
        ["r1"],
        ["r1"],
        [],
    )
    (wait,) = (wait for wait in plan.waits if wait.machine == "r1")
    assert wait.then == "the machine is deleted, at the latest after drainBeforeDeleteTimeout"


def test_a_node_that_is_not_ready_is_not_drained():
    assert subjects(worker_leaves(leaving(unready(a_machine("w4", DRAINED))), DRAINED), DeleteVM) == ["w4"]


@pytest.mark.parametrize("guest", [GuestState(), silent()], ids=["not asked yet", "unreachable"])
@pytest.mark.parametrize(
    "look",
    [lambda machine: machine, unready, unseen],
    ids=["its node was Ready", "its node was seen", "its node was not seen"],
)
def test_what_is_to_be_drained_waits_for_a_guest_that_cannot_be_asked(guest, look):
    """A manager that has just started knows of no pods, and none of them may be cut off for that."""
    plan = worker_leaves(look(leaving(a_machine("w4", DRAINED))), DRAINED, guest=guest)

    assert plan.actions == ()
    (wait,) = (wait for wait in plan.waits if wait.machine == "w4")
    assert wait.what.startswith("the guest API server (")
    assert (
        wait.then
        == "Node w4 is drained, and the machine deleted at the latest after drainBeforeDeleteTimeout"
    )
    assert wait.until == NOON + DRAIN_TIMEOUT


def test_a_machine_that_never_was_a_node_goes_once_the_guest_was_asked_for_it():
    """It may have joined while no manager ran that would have recorded it, and taken pods."""
    booted = nodeless(leaving(a_machine("w4", DRAINED)))

    assert worker_leaves(booted, DRAINED, guest=GuestState()).actions == ()
    assert subjects(worker_leaves(booted, DRAINED), DeleteVM) == ["w4"]
    late = leaving(booted, NOON - DRAIN_TIMEOUT)
    assert subjects(worker_leaves(late, DRAINED, guest=GuestState()), DeleteVM) == ["w4"]


def test_a_machine_is_not_drained_of_what_no_cluster_can_have_given_it():
    waiting = nodeless(leaving(a_machine("w4", DRAINED)))
    uncreated = record_of(waiting, driver_config={"MachineName": "w4"})
    assert subjects(worker_leaves(uncreated, DRAINED, guest=GuestState()), DeleteVM) == ["w4"]

    begun = a_cluster(SERVERS, replace(DRAINED, quantity=0), recorded=RecordedStatus())
    plan = planned(begun, [*some("s", 3, SERVERS), waiting], guest=GuestState())
    assert subjects(plan, DeleteVM) == ["w4"]


@pytest.mark.parametrize(
    ("machine", "pool"),
    [
        (a_machine("w4", WORKERS), WORKERS),
        (stopped(a_machine("w4", DRAINED)), DRAINED),
        (replace(a_machine("w4", DRAINED), deletion_requested=NOON - minutes(3)), DRAINED),
        (nodeless(a_machine("w4", DRAINED)), DRAINED),
    ],
    ids=["not to be drained", "does not run", "its VM is being deleted", "never joined"],
)
def test_nothing_to_drain_waits_for_no_guest(machine, pool):
    plan = worker_leaves(unseen(leaving(machine)), pool, guest=silent())

    assert subjects(plan, DeleteVM) == ["w4"]


def test_the_node_of_a_vm_that_is_gone_is_not_drained_although_it_is_still_shown_as_ready():
    ready = leaving(a_machine("w4", DRAINED))

    plan = worker_leaves(replace(missing(ready), node=ready.node), DRAINED)

    assert not of_kind(plan, CordonNode)
    assert subjects(plan, DeleteNode) == ["w4"]


def test_the_password_of_a_node_that_was_not_registered_is_deleted_and_never_waited_for():
    """The server stores it before there is a Node; no event says that a Node was deleted."""
    begun = leaving(nodeless(missing(a_machine("w4", WORKERS))))
    done = replace(begun, node_deleted=True)
    unmade = record_of(begun, driver_config={"MachineName": "w4"})

    assert subjects(worker_leaves(begun, WORKERS), DeleteNodePassword) == ["w4"]
    assert subjects(worker_leaves(begun, WORKERS), RemoveMachineFinalizer) == ["w4"]
    assert subjects(worker_leaves(begun, WORKERS), DeleteNode) == []
    others = worker_leaves(done, WORKERS), worker_leaves(unmade, WORKERS)
    for plan in (*others, worker_leaves(begun, WORKERS, guest=silent())):
        assert subjects(plan, DeleteNodePassword) == []
        assert subjects(plan, RemoveMachineFinalizer) == ["w4"]


def test_a_guest_that_cannot_be_asked_is_waited_for_as_long_as_a_drain():
    """And no longer: a guest that is lost for good keeps no machine."""
    late = unseen(leaving(a_machine("w4", DRAINED), NOON - DRAIN_TIMEOUT))
    early = unseen(leaving(a_machine("w4", DRAINED), NOON - DRAIN_TIMEOUT + timedelta(seconds=1)))
    forever = replace(DRAINED, drain_timeout=None)
    patient = worker_leaves(
        unseen(leaving(a_machine("w4", forever), NOON - minutes(500))), forever, guest=silent()
    )

    assert subjects(worker_leaves(late, DRAINED, guest=silent()), DeleteVM) == ["w4"]
    assert subjects(worker_leaves(early, DRAINED, guest=silent()), DeleteVM) == []
    assert subjects(patient, DeleteVM) == []
    (wait,) = (wait for wait in patient.waits if wait.machine == "w4")
    assert wait.then == "Node w4 is drained, however long that takes, since drainBeforeDeleteTimeout is 0"
    assert wait.until is None


def test_a_removal_is_ordered_once():
    plan = worker_leaves(replace(leaving(a_machine("w4", WORKERS)), deletion_requested=NOON))

    assert not of_kind(plan, DeleteVM)
    assert plan.waits[0].what == "VirtualMachine default/w4 to be deleted"


def test_a_hanging_removal_is_ordered_again_and_shows_harvesters_words():
    hanging = sighted(leaving(a_machine("w4", WORKERS)), state="deleting", because="volume is in use")
    plan = worker_leaves(replace(hanging, deletion_requested=NOON - minutes(2)))

    assert subjects(plan, DeleteVM) == ["w4"]
    assert "volume is in use" in plan.waits[0].what


def test_a_vm_that_vanished_leaves_disks_that_are_cleared_up():
    plan = worker_leaves(leaving(missing(a_machine("w4", WORKERS))))

    assert [type(action) for action in plan.actions] == [DeleteVM, DeleteNode, RemoveMachineFinalizer]


def test_a_vm_that_is_gone_takes_node_and_password_with_it_and_then_its_record():
    plan = worker_leaves(replace(leaving(missing(a_machine("w4", WORKERS))), deletion_requested=NOON))

    assert [type(action) for action in plan.actions] == [DeleteNode, RemoveMachineFinalizer]


@pytest.mark.parametrize(
    ("driver", "vm_uid", "said"),
    [
        ("harvester", "u-1", "nothing of it is left on Harvester"),
        (
            "harvester",
            "harvester:u-1",
            "VirtualMachine default/w4 is deleted; whether its driver has left disks on Harvester is not known",
        ),
        ("noop", "noop:u-1", "driver noop has removed it"),
    ],
)
@pytest.mark.parametrize("with_the_cluster", [False, True])
def test_the_end_of_a_machine_says_no_more_than_was_seen(
    driver: str, vm_uid: str, said: str, with_the_cluster: bool
):
    gone = replace(leaving(missing(a_machine("w4", WORKERS))), deletion_requested=NOON)
    config = {**(gone.record.driver_config or {}), "WindrowVMUID": vm_uid}
    gone = replace(gone, record=replace(gone.record, driver=driver, driver_config=config))

    plan = ending([gone]) if with_the_cluster else worker_leaves(gone)

    assert [action.because for action in of_kind(plan, RemoveMachineFinalizer)] == [said]


def test_the_record_stays_while_the_node_cannot_be_forgotten():
    plan = worker_leaves(
        replace(leaving(missing(a_machine("w4", WORKERS))), deletion_requested=NOON), guest=silent()
    )

    assert plan.actions == ()
    assert [(wait.what, wait.then) for wait in plan.waits if wait.machine == "w4"] == [
        ("the guest API server (connection refused)", "Node w4 is deleted")
    ]


def test_an_unknown_vm_is_not_released():
    plan = worker_leaves(replace(leaving(unknown(a_machine("w4", WORKERS))), deletion_requested=NOON))

    assert not of_kind(plan, RemoveMachineFinalizer, DeleteNode)


def test_a_machine_that_was_never_ordered_is_simply_released():
    assert worker_leaves(leaving(unordered(a_machine("w4", WORKERS)))).actions == (
        RemoveMachineFinalizer("nothing was created for it", "w4"),
    )


def test_a_machine_whose_order_was_lost_is_looked_for_and_removed():
    """The manager died between writing down what it would make and learning what it had made."""
    half = leaving(record_of(unordered(a_machine("w4", WORKERS)), driver_config={"MachineName": "w4"}))

    assert subjects(worker_leaves(half), DeleteVM) == ["w4"]


def server_leaves(*changed, quantity=2, **rest):
    pool = replace(SERVERS, quantity=quantity)
    return planned(a_cluster(pool), [*changed, *some("s", 3, SERVERS)[len(changed) :]], **rest)


def marked(machine):
    return replace(machine, node=replace(machine.node, etcd_removal_requested=True))


def left(machine):
    return replace(machine, node=replace(machine.node, etcd_removal_requested=True, etcd_removed=True))


S1 = a_machine("s1", SERVERS)


def test_an_etcd_member_leaves_etcd_before_its_vm_goes():
    assert server_leaves(leaving(S1)).actions == (
        RemoveEtcdMember("it is removed before the VM is deleted", "s1", "s1", counted=("s1", "s2", "s3")),
    )


def test_the_vm_stays_until_the_servers_have_dropped_the_member():
    plan = server_leaves(leaving(marked(S1)))

    assert plan.actions == ()
    assert plan.waits[0].what == "etcd member s1 to be removed"


def test_the_vm_goes_once_the_member_is_dropped():
    assert subjects(server_leaves(leaving(left(S1))), DeleteVM) == ["s1"]


def test_a_lost_member_leaves_etcd_too():
    assert subjects(server_leaves(leaving(missing(S1)), quantity=3), RemoveEtcdMember) == ["s1"]


def test_of_two_members_deleted_by_hand_one_leaves_after_the_other():
    plan = server_leaves(leaving(S1), leaving(a_machine("s2", SERVERS)))

    assert subjects(plan, RemoveEtcdMember) == ["s1"]
    assert "s2" in held(plan)


def test_a_member_in_the_middle_of_leaving_goes_before_another_begins():
    plan = server_leaves(leaving(S1), leaving(marked(a_machine("s2", SERVERS))))

    assert not of_kind(plan, RemoveEtcdMember)
    assert "s1" in held(plan)


def test_a_member_that_has_left_etcd_loses_its_vm_although_the_api_is_silent():
    assert subjects(server_leaves(leaving(left(S1)), guest=silent()), DeleteVM) == ["s1"]


def test_a_member_whose_node_is_not_seen_waits_for_the_api():
    plan = server_leaves(leaving(replace(S1, node=None)), guest=silent())

    assert [(wait.what, wait.then) for wait in plan.waits if wait.machine == "s1"] == [
        ("the guest API server (connection refused)", "its etcd member is removed")
    ]


def test_what_follows_the_deletion_of_a_vm_is_said():
    machine = leaving(a_machine("w4", WORKERS))

    assert worker_leaves(machine).waits[0].then == "its Node is deleted"
    assert ending([machine]).waits[0].then == "its finalizer is removed"


@pytest.mark.parametrize(("since_s", "again"), [(119, []), (120, ["w4"]), (121, ["w4"])])
def test_the_deletion_of_disks_that_remain_is_requested_again_after_two_minutes(since_s, again):
    gone = leaving(missing(a_machine("w4", WORKERS)))
    since = NOON - timedelta(seconds=since_s)

    plan = worker_leaves(replace(gone, deletion_requested=since, claims=(a_claim(is_deleting=True),)))

    assert subjects(plan, DeleteVM) == again


@pytest.mark.parametrize("claims", [(), None], ids=["none is left", "unknown"])
def test_without_disks_that_remain_the_deletion_is_not_requested_again(claims):
    gone = leaving(missing(a_machine("w4", WORKERS)))

    plan = worker_leaves(replace(gone, deletion_requested=NOON - minutes(9), claims=claims))

    assert subjects(plan, DeleteVM) == []


def test_a_server_whose_order_was_lost_keeps_its_vm_until_the_guest_answers():
    """Its VM may run, and may have joined, although no answer to its creation was recorded."""
    half = leaving(record_of(unordered(S1), driver_config={"MachineName": "s1"}))

    assert not of_kind(server_leaves(half, guest=silent()), DeleteVM)
    assert subjects(server_leaves(half), DeleteVM) == ["s1"]


GONE = missing(a_machine("w4", WORKERS))


@pytest.mark.parametrize(
    ("machine", "what", "until"),
    [
        (a_machine("w4", WORKERS), "VirtualMachine default/w4 to be deleted", NOON + minutes(2)),
        (
            replace(a_machine("w4", WORKERS), deletion_requested=NOON - minutes(1)),
            "VirtualMachine default/w4 to be deleted",
            NOON + minutes(1),
        ),
        (
            replace(GONE, claims=None),
            "Harvester to show whether the disks of VirtualMachine default/w4 are deleted",
            NOON + timedelta(seconds=5),
        ),
        (
            replace(GONE, claims=(MachineClaim("default", "w4-disk-0", "uid-w4", "cluster-uid"),)),
            "PersistentVolumeClaim default/w4-disk-0 to be deleted",
            NOON + minutes(2),
        ),
    ],
    ids=["VM", "VM, requested a minute ago", "unknown disks", "disk"],
)
def test_what_harvester_has_to_delete_is_waited_for_and_looked_at_again(machine, what, until):
    waits = [wait for wait in worker_leaves(leaving(machine)).waits if wait.machine == "w4"]

    assert [(wait.what, wait.until) for wait in waits] == [(what, until)]


def test_a_drain_is_waited_for_with_the_number_of_pods_and_looked_at_again_after_five_seconds():
    pods = (Pod("default", "web-1"), Pod("default", "web-2", is_deleting=True))
    plan = worker_leaves(replace(leaving(a_machine("w4", DRAINED)), pods=pods), DRAINED)

    (wait,) = (wait for wait in plan.waits if wait.machine == "w4")
    assert wait.what == "2 pods to be evicted from Node w4"
    assert wait.then == "the machine is deleted, at the latest after drainBeforeDeleteTimeout"
    assert wait.until == NOON + timedelta(seconds=5)


def test_a_worker_whose_node_is_not_seen_loses_its_vm_although_the_api_is_silent():
    plan = worker_leaves(leaving(replace(a_machine("w4", WORKERS), node=None)), guest=silent())

    assert subjects(plan, DeleteVM) == ["w4"]


@pytest.mark.parametrize(("count", "what"), [(1, "Machine s1"), (2, "2 Machines"), (3, "3 Machines")])
def test_the_machines_of_a_deleted_cluster_are_counted(count, what):
    plan = ending([leaving(machine) for machine in some("s", count, SERVERS)])

    assert f"{what} to be deleted" in [wait.what for wait in plan.waits]


def test_several_disks_that_remain_are_counted():
    claims = tuple(replace(a_claim(is_deleting=True), name=name) for name in ("a", "b", "c"))
    machine = replace(leaving(missing(a_machine("w4", WORKERS))), deletion_requested=NOON, claims=claims)

    def waits(count):
        return worker_leaves(replace(machine, claims=claims[:count])).waits[-1].what

    assert waits(1).endswith("a to be deleted")
    assert waits(2).endswith("a to be deleted (and 1 more)")
    assert waits(3).endswith("a to be deleted (and 2 more)")


def test_a_member_whose_vm_is_gone_is_not_started_although_etcd_has_no_quorum():
    pool = a_pool("servers", 1, SERVER)
    servers = [marked(leaving(missing(a_machine("s1", pool)))), a_machine("s2", pool)]

    assert not of_kind(planned(a_cluster(pool), servers), StartVM)


@pytest.mark.parametrize(
    ("machine", "deleted"),
    [
        (missing(a_machine("w4", WORKERS)), ["w4"]),
        (replace(missing(a_machine("w4", WORKERS)), node_deleted=True), []),
        (missing(nodeless(a_machine("w4", WORKERS))), []),
        # The name that was recorded, where the Node is not seen.
        (missing(replace(a_machine("w4", WORKERS), node=None)), ["w4"]),
    ],
)
def test_a_node_is_deleted_once_where_there_was_one(machine, deleted):
    plan = worker_leaves(replace(leaving(machine), deletion_requested=NOON))

    assert subjects(plan, DeleteNode) == deleted
    assert subjects(plan, RemoveMachineFinalizer) == ["w4"]


def test_before_the_cluster_has_started_no_node_is_deleted():
    gone = replace(leaving(missing(a_machine("w4", WORKERS))), deletion_requested=NOON)
    plan = planned(a_cluster(WORKERS, recorded=RecordedStatus(init_server_uid="uid-s1")), [gone])

    assert not of_kind(plan, DeleteNode)
    assert subjects(plan, RemoveMachineFinalizer) == ["w4"]


@pytest.mark.parametrize("mark", [lambda member: member, lambda member: marked(member)])
def test_a_stopped_member_that_is_deleted_is_started_when_etcd_has_no_quorum_without_it(mark):
    pool = a_pool("servers", 1, SERVER)
    servers = [mark(leaving(stopped(a_machine("s1", pool)))), a_machine("s2", pool)]

    plan = planned(a_cluster(pool), servers)

    assert of_kind(plan, StartVM) == [StartVM("1 of 2 etcd members run, so etcd has no quorum", "s1")]


def test_a_member_that_is_deleted_is_not_started_while_it_runs_or_where_remediation_is_off():
    pool = a_pool("servers", 1, SERVER)
    runs = [leaving(a_machine("s1", pool)), stopped(a_machine("s2", pool))]
    off = [leaving(stopped(a_machine("s1", pool))), a_machine("s2", pool)]

    assert "s1" not in subjects(planned(a_cluster(pool), runs), StartVM)
    assert not of_kind(planned(a_cluster(pool, remediation_disabled=True), off), StartVM)


def test_a_stopped_member_that_is_deleted_stays_stopped_while_the_others_have_a_quorum():
    plan = server_leaves(leaving(stopped(S1)))

    assert not of_kind(plan, StartVM)
    assert subjects(plan, RemoveEtcdMember) == ["s1"]


def test_the_last_member_never_leaves_while_its_cluster_lives():
    pool = a_pool("servers", 1, SERVER)

    plan = planned(a_cluster(pool), [leaving(a_machine("s1", pool))])

    assert not of_kind(plan, RemoveEtcdMember, DeleteVM)
    assert held(plan)["s1"].startswith("it is the last etcd member")


def test_a_silent_api_holds_the_removal_of_a_member():
    plan = server_leaves(leaving(replace(S1, node=None)), guest=silent())

    assert not of_kind(plan, DeleteVM, RemoveEtcdMember)


def test_before_the_cluster_has_started_there_is_no_etcd_to_leave():
    pool = a_pool("servers", 1, SERVER)
    first = record_of(S1, is_init_server=True)

    plan = planned(
        a_cluster(pool, recorded=RecordedStatus(init_server_uid="uid-s1", init_server_name="s1")),
        [leaving(first)],
        guest=silent(),
    )

    assert subjects(plan, DeleteVM) == ["s1"]


# -- the whole cluster

ACCOUNT = GuestServiceAccount("default", "prod", "ns:cc")


def ending(machines, **recorded):
    return planned(
        a_cluster(
            SERVERS,
            WORKERS,
            deletion_timestamp=NOON,
            recorded=RecordedStatus(
                initialized=True, service_account=ACCOUNT, volumes=GuestVolumes(at=NOON), **recorded
            ),
        ),
        machines,
    )


def test_a_deleted_cluster_gives_up_all_its_machines_at_once():
    assert subjects(ending([*some("s", 3, SERVERS), a_machine("w4", WORKERS)]), DeleteMachine) == [
        "s1",
        "s2",
        "s3",
        "w4",
    ]


def test_a_deleted_cluster_removes_vms_without_drain_or_etcd():
    plan = ending([leaving(machine) for machine in some("s", 3, SERVERS)])

    assert subjects(plan, DeleteVM) == ["s1", "s2", "s3"]
    assert len(plan.actions) == 3


def test_a_deleted_cluster_releases_a_machine_that_was_never_requested():
    plan = ending([leaving(unordered(a_machine("w4", WORKERS))), leaving(a_machine("w5", WORKERS))])

    assert of_kind(plan, RemoveMachineFinalizer) == [
        RemoveMachineFinalizer("nothing was created for it", "w4")
    ]
    assert subjects(plan, DeleteVM) == ["w5"]


def test_a_hanging_vm_does_not_hold_up_the_others():
    hanging = replace(
        leaving(sighted(a_machine("s1", SERVERS), state="deleting", because="in use")),
        deletion_requested=NOON,
    )

    plan = ending([hanging, leaving(missing(a_machine("s2", SERVERS)))])

    assert subjects(plan, RemoveMachineFinalizer) == ["s2"]
    assert any("in use" in wait.what for wait in plan.waits)
    assert not of_kind(plan, DeleteServiceAccount, RemoveFinalizer)


def test_account_and_secrets_go_last_and_then_the_cluster():
    assert [type(action) for action in ending([]).actions] == [
        DeleteServiceAccount,
        DeleteSecrets,
        RemoveFinalizer,
    ]


def test_without_an_account_none_is_revoked():
    plan = planned(a_cluster(deletion_timestamp=NOON, recorded=RecordedStatus()), [])

    assert [type(action) for action in plan.actions] == [DeleteSecrets, RemoveFinalizer]


def test_a_cluster_that_was_never_claimed_is_left_to_its_deletion():
    assert planned(replace(a_cluster(deletion_timestamp=NOON), has_finalizer=False), []).actions == ()


def test_a_server_that_may_have_joined_unseen_keeps_its_vm_until_the_guest_is_heard():
    unseen = leaving(nodeless(S1))

    for guest in (silent(), GuestState()):
        assert not of_kind(server_leaves(unseen, guest=guest), DeleteVM)
    assert subjects(server_leaves(unseen), DeleteVM) == ["s1"]


def a_claim(**rest: object) -> MachineClaim:
    return MachineClaim("default", "w1-disk-0", "uid-w1", "cluster-uid", **rest)


@pytest.mark.parametrize("whole_cluster", [False, True])
@pytest.mark.parametrize(
    ("claims", "requested", "stays"),
    [
        ((), NOON, False),
        ((a_claim(is_deleting=True),), NOON, True),
        # Not asked for yet: the request comes first.
        ((a_claim(),), None, True),
        # It was asked for, and Harvester keeps it: another VM uses it.
        ((a_claim(),), NOON, False),
        (None, NOON, True),
    ],
)
def test_the_finalizer_of_a_machine_stays_while_its_claims_terminate(claims, requested, stays, whole_cluster):
    cluster = a_cluster(WORKERS, deletion_timestamp=NOON if whole_cluster else None)
    machine = missing(leaving(nodeless(a_machine("w1", WORKERS))))
    plan = planned(cluster, [replace(machine, claims=claims, deletion_requested=requested)])

    assert bool(of_kind(plan, RemoveMachineFinalizer)) is not stays
    if claims and stays:
        assert any("PersistentVolumeClaim default/w1-disk-0" in wait.what for wait in plan.waits)
    assert bool(of_kind(plan, DeleteVM)) is (requested is None)
