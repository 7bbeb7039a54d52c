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
    look,
    minutes,
    missing,
    nodeless,
    of_kind,
    planned,
    record_of,
    silent,
    some,
    stopped,
    subjects,
    unordered,
    unready,
    with_reserved_names,
)

from windrow.clusters.api.endpoint import ControlPlaneEndpoint
from windrow.clusters.plan.actions import CreateMachine, DeleteMachine, ReserveMachineNames
from windrow.clusters.plan.endpoint import list_joined_through
from windrow.clusters.plan.names import list_reserved
from windrow.clusters.state import GuestState
from windrow.clusters.surplus import choose_machines_to_delete

SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 2)
TEN = minutes(10)


def with_servers(pool, machines, **rest):
    return planned(a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), *machines], **rest)


def test_a_pool_that_lacks_machines_gets_them():
    plan = with_servers(a_pool("workers", 3), some("w", 1, WORKERS))

    assert plan.actions == tuple(
        CreateMachine("pool workers asks for 3, 1 exist", "workers", name, "https://10.0.0.1:9345")
        for name in ("workers-new0", "workers-new1")
    )


def test_a_newcomer_joins_through_a_server_that_is_ready():
    sick = [unready(a_machine("s1", SERVERS)), a_machine("s2", SERVERS), a_machine("s3", SERVERS)]

    plan = planned(a_cluster(SERVERS, a_pool("workers", 1)), sick)

    assert of_kind(plan, CreateMachine)[0].join_server == "https://10.0.0.2:9345"


def test_without_a_ready_server_a_provisioned_cluster_waits_instead_of_growing():
    sick = [unready(machine) for machine in some("s", 3, SERVERS)]

    plan = planned(a_cluster(SERVERS, a_pool("workers", 1)), sick, guest=silent())

    assert not of_kind(plan, CreateMachine)
    assert "a server to become Ready" in [wait.what for wait in plan.waits]


def test_a_pool_whose_config_does_not_exist_gets_no_machine_and_no_name():
    plan = planned(
        a_cluster(SERVERS, a_pool("workers", 3, options=None)), some("s", 3, SERVERS), reserved=False
    )

    assert plan.actions == ()
    assert [wait.what for wait in plan.waits] == ["HarvesterConfig fleet-default/nc-workers to be created"]
    servers = replace(SERVERS, options=None)
    member = leaving(a_machine("s3", servers))  # its place is free once it has left etcd
    waits = planned(a_cluster(servers), [*some("s", 2, SERVERS), member]).waits
    assert [wait.what for wait in waits if "HarvesterConfig" in wait.what] == []


def test_a_lost_worker_is_replaced_while_it_is_still_being_removed():
    plan = with_servers(WORKERS, [leaving(missing(a_machine("w1", WORKERS))), a_machine("w2", WORKERS)])

    assert len(of_kind(plan, CreateMachine)) == 1


def test_a_lost_etcd_member_is_replaced_only_once_it_has_left_etcd():
    rest = [a_machine("s2", SERVERS), a_machine("s3", SERVERS)]
    member = leaving(missing(a_machine("s1", SERVERS)))
    assert member.node is not None
    left = replace(member, node=replace(member.node, etcd_removed=True))

    assert not of_kind(planned(a_cluster(SERVERS), [member, *rest]), CreateMachine)
    assert len(of_kind(planned(a_cluster(SERVERS), [left, *rest]), CreateMachine)) == 1


def test_a_pool_without_its_config_waits_for_it():
    plan = with_servers(a_pool("workers", 2, options=None), [])

    assert not of_kind(plan, CreateMachine)
    assert "HarvesterConfig fleet-default/nc-workers to be created" in [wait.what for wait in plan.waits]


def test_the_oldest_surplus_machine_goes():
    young = record_of(a_machine("w1", WORKERS), created=NOON - minutes(5))

    plan = with_servers(a_pool("workers", 1), [young, a_machine("w2", WORKERS)])

    assert subjects(plan, DeleteMachine) == ["w2"]


def test_an_unhealthy_surplus_machine_goes_before_an_older_one():
    sick = record_of(unready(a_machine("w1", WORKERS)), created=NOON - minutes(5))

    plan = with_servers(a_pool("workers", 1), [sick, a_machine("w2", WORKERS)])

    assert subjects(plan, DeleteMachine) == ["w1"]


def test_a_marked_surplus_machine_goes_before_an_unhealthy_one():
    marked = record_of(a_machine("w1", WORKERS), delete_first=True, created=NOON - minutes(5))

    plan = with_servers(a_pool("workers", 1), [marked, unready(a_machine("w2", WORKERS))])

    assert subjects(plan, DeleteMachine) == ["w1"]


def test_machines_already_leaving_are_not_counted_twice():
    plan = with_servers(a_pool("workers", 1), [leaving(a_machine("w1", WORKERS)), a_machine("w2", WORKERS)])

    assert not of_kind(plan, DeleteMachine)


def test_a_pool_may_shrink_to_nothing():
    assert subjects(with_servers(a_pool("workers", 0), some("w", 2, WORKERS)), DeleteMachine) == ["w1", "w2"]


def test_machines_of_a_pool_that_is_no_longer_asked_for_go():
    plan = planned(a_cluster(SERVERS), [*some("s", 3, SERVERS), a_machine("w1", WORKERS)])

    assert subjects(plan, DeleteMachine) == ["w1"]


@pytest.mark.parametrize(
    "how", [unready, missing, stopped, nodeless, unordered, lambda m: unready(m, NOON - TEN)]
)
def test_a_machine_of_a_removed_pool_goes_in_whatever_state_it_is(how):
    plan = planned(a_cluster(SERVERS), [*some("s", 3, SERVERS), how(a_machine("w1", WORKERS))])

    assert [action.because for action in of_kind(plan, DeleteMachine)] == [
        "pool workers does not exist any more"
    ]


def test_etcd_shrinks_one_member_at_a_time():
    plan = planned(a_cluster(a_pool("servers", 1, SERVER)), some("s", 3, SERVERS))

    assert subjects(plan, DeleteMachine) == ["s1"]
    assert held(plan) == {"s2": "one etcd member at a time; s1 is leaving"}


def test_etcd_never_shrinks_below_quorum():
    sick = [a_machine("s1", SERVERS), unready(a_machine("s2", SERVERS)), unready(a_machine("s3", SERVERS))]

    plan = planned(a_cluster(a_pool("servers", 1, SERVER)), sick)

    assert not of_kind(plan, DeleteMachine)


def test_etcd_shrinks_by_its_sick_member_first():
    sick = [a_machine("s1", SERVERS), a_machine("s2", SERVERS), unready(a_machine("s3", SERVERS))]

    plan = planned(a_cluster(a_pool("servers", 1, SERVER)), sick)

    assert subjects(plan, DeleteMachine) == ["s3"]


def test_a_newcomer_that_is_not_wanted_any_more_goes_first():
    new = nodeless(record_of(a_machine("w1", WORKERS), created=NOON))

    plan = with_servers(a_pool("workers", 1), [new, a_machine("w2", WORKERS)])

    assert subjects(plan, DeleteMachine) == ["w1"]


def unlabelled(machine):
    return replace(machine, node=replace(machine.node, labels=frozenset()))


# Each pair: the one that goes, the one that stays; the one that stays is the older where age must not decide.
PAIRS = {
    "ordered, not made": (unordered, lambda machine: machine),
    "never joined": (nodeless, lambda machine: machine),
    "not Ready": (unready, lambda machine: machine),
    "its VM is stopped": (stopped, nodeless),
    "its VM is deleted": (missing, unready),
    "without its role label": (unlabelled, lambda machine: machine),
    "never joined, as the guest falls silent": (nodeless, unready),
    "ordered, as the guest falls silent": (unordered, unready),
    "without its role label, as the guest falls silent": (lambda m: unready(unlabelled(m)), unready),
}


@pytest.mark.parametrize("why", PAIRS)
def test_what_is_furthest_from_being_whole_goes_even_when_it_is_the_younger(why):
    worse, better = PAIRS[why]
    going = record_of(worse(a_machine("w1", WORKERS)), created=NOON - TEN)
    staying = record_of(better(a_machine("w2", WORKERS)), created=NOON - 2 * TEN)

    guest = silent() if "silent" in why else GuestState("reachable")
    seen = look(a_cluster(SERVERS, WORKERS), guest=guest)

    assert choose_machines_to_delete([staying, going], 1, seen) == [going]
    assert choose_machines_to_delete([staying, going], -1, seen) == []


def join_through(machine, server):
    """It was told to join through this server, and has not yet."""
    return record_of(nodeless(machine), join_server=f"https://{server.vm.addresses[0]}:9345")


def test_of_servers_that_are_too_many_the_one_that_a_machine_joins_through_stays():
    """Without it the machine would wait until it is replaced."""
    servers = some("s", 3, SERVERS)
    joiner = join_through(a_machine("w1", WORKERS), servers[0])
    oldest = "pool servers asks for 1, 3 exist; this one is the oldest"

    calm = planned(a_cluster(replace(SERVERS, quantity=1)), servers)
    joined = planned(a_cluster(replace(SERVERS, quantity=1), WORKERS), [*servers, joiner])

    assert of_kind(calm, DeleteMachine) == [DeleteMachine(oldest, "s1", ("s1", "s2", "s3"))]
    because = f"{oldest} through which no machine is joining"
    assert of_kind(joined, DeleteMachine) == [DeleteMachine(because, "s2", ("s1", "s2", "s3"))]


def test_where_each_is_joined_through_the_oldest_goes_all_the_same():
    servers = some("s", 3, SERVERS)
    joiners = [join_through(a_machine(f"w{one}", WORKERS), server) for one, server in enumerate(servers)]

    plan = planned(a_cluster(replace(SERVERS, quantity=2), WORKERS), [*servers, *joiners])

    (action,) = (one for one in of_kind(plan, DeleteMachine) if one.subject.startswith("s"))
    assert action.subject == "s1"
    assert action.because == "pool servers asks for 2, 3 exist; this one is the oldest"


def test_a_machine_joins_through_nothing_once_it_has_joined_or_where_the_endpoint_is_stable():
    servers = some("s", 3, SERVERS)
    url = f"https://{servers[0].vm.addresses[0]}:9345"
    joined = record_of(a_machine("w1", WORKERS), join_server=url)
    leaving_ = leaving(join_through(a_machine("w2", WORKERS), servers[0]))
    lost_node = record_of(replace(a_machine("w3", WORKERS), node=None), join_server=url)

    unrecorded = record_of(a_machine("w5", WORKERS), join_server=url, node="")

    for machine in (joined, leaving_, lost_node, unrecorded):
        assert list_joined_through(look(a_cluster(SERVERS, WORKERS), [*servers, machine])) == frozenset()
    joiner = join_through(a_machine("w4", WORKERS), servers[0])
    assert list_joined_through(look(a_cluster(SERVERS, WORKERS), [*servers, joiner])) == {"s1"}
    behind = replace(
        a_cluster(SERVERS, WORKERS), control_plane_endpoint=ControlPlaneEndpoint("address", host="10.0.0.1")
    )
    assert list_joined_through(look(behind, [*servers, joiner])) == frozenset()


def test_a_server_that_is_annotated_or_broken_goes_although_a_machine_joins_through_it():
    servers = some("s", 3, SERVERS)
    pool = replace(SERVERS, quantity=2)
    for broken in (record_of(servers[0], delete_first=True), missing(servers[0])):
        machines = [broken, *servers[1:], join_through(a_machine("w1", WORKERS), servers[0])]
        assert [
            one.subject for one in of_kind(planned(a_cluster(pool, WORKERS), machines), DeleteMachine)
        ] == ["s1"]


def test_a_silent_guest_does_not_cost_the_only_worker_that_was_ready():
    workers = [unready(a_machine("w1", WORKERS))]
    workers += [
        record_of(unordered(a_machine(f"w{number}", WORKERS)), created=NOON) for number in range(2, 6)
    ]

    plan = with_servers(a_pool("workers", 1), workers, guest=silent())

    assert subjects(plan, DeleteMachine) == ["w2", "w3", "w4", "w5"]
    assert all("has not joined yet" in action.because for action in of_kind(plan, DeleteMachine))


def test_names_are_reserved_before_machines_are_created_for_all_pools_at_once() -> None:
    more = a_pool("more", 1)
    plan = planned(
        a_cluster(SERVERS, replace(WORKERS, quantity=2), more), some("s", 3, SERVERS), reserved=False
    )

    assert of_kind(plan, CreateMachine) == []
    (reserve,) = of_kind(plan, ReserveMachineNames)
    assert isinstance(reserve, ReserveMachineNames)
    assert reserve.counts == (("workers", 2), ("more", 1))


def test_a_reserved_name_that_no_pool_asks_for_is_dropped() -> None:
    cluster = with_reserved_names(a_cluster(replace(WORKERS, quantity=3)))
    state = look(cluster, some("w", 2, WORKERS), reserved=False)
    assert len(list_reserved(state)) == 3

    full = look(cluster, some("w", 3, WORKERS), reserved=False)
    assert list_reserved(full) == ()
