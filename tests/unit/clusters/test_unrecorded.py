"""What becomes of VMs on Harvester that carry the Cluster's uid and that no Machine records."""

from __future__ import annotations

from dataclasses import replace

from windrow.bootstrap.spec import Role
from windrow.clusters.api.cluster import Pool
from windrow.clusters.api.machine import is_machine_name, machine_name_stem
from windrow.clusters.orphans import OrphanVm
from windrow.clusters.plan.actions import AdoptVM, CreateMachine, DeleteMachine
from windrow.clusters.plan.endpoint import join_url
from windrow.clusters.plan.planner import plan_cluster
from windrow.clusters.plan.unrecorded import decide, describe_held
from windrow.clusters.status import unrecorded_condition

from .builders import (
    NOON,
    SERVER,
    a_cluster,
    a_newborn,
    a_pool,
    look,
    missing,
    of_kind,
    planned,
    silent,
    some,
    unready,
)

SERVERS = a_pool("servers", 3, SERVER)
WORKERS = a_pool("workers", 2)


def a_vm(pool: Pool, name: str = "x7k2p", machine_uid: str = "uid-lost") -> OrphanVm:
    full = machine_name_stem(a_cluster(), pool.name) + name
    return OrphanVm("default", full, f"vm-{name}", machine_uid, cluster_uid="cluster-uid")


def test_one_that_its_pool_asks_for_is_adopted_in_place_of_a_new_machine() -> None:
    state = look(
        a_cluster(SERVERS, WORKERS),
        some("s", 3, SERVERS) + some("w", 1, WORKERS),
        unrecorded=(a_vm(WORKERS),),
    )

    plan = plan_cluster(state)

    (adopt,) = of_kind(plan, AdoptVM)
    assert isinstance(adopt, AdoptVM)
    assert (adopt.vm, adopt.pool) == (a_vm(WORKERS), "workers")
    assert of_kind(plan, CreateMachine, DeleteMachine) == []
    assert decide(state).held == ()


def test_of_two_the_pool_adopts_as_many_as_it_asks_for_and_the_other_is_held() -> None:
    vms = (a_vm(WORKERS, "a", "uid-a"), a_vm(WORKERS, "b", "uid-b"))
    state = look(a_cluster(SERVERS, WORKERS), some("s", 3, SERVERS) + some("w", 1, WORKERS), unrecorded=vms)

    decision = decide(state)

    assert [vm for vm, _ in decision.adopted] == [vms[0]]
    assert [held.vm for held in decision.held] == [vms[1]]
    assert "asks for 2, and 1 exist" in describe_held(decision.held)


def test_none_is_ever_deleted_while_the_cluster_lives() -> None:
    state = look(
        a_cluster(SERVERS, WORKERS),
        some("s", 3, SERVERS) + some("w", 2, WORKERS),
        unrecorded=(a_vm(WORKERS),),
    )

    assert plan_cluster(state).actions == ()
    told = unrecorded_condition(state)
    assert told is not None
    assert (told.status, told.reason) == ("False", "UnrecordedVMs")


def test_nothing_is_created_before_the_vms_could_be_listed() -> None:
    machines = some("s", 3, SERVERS)

    assert of_kind(planned(a_cluster(SERVERS, WORKERS), machines, unrecorded=None), CreateMachine) == []
    assert of_kind(planned(a_newborn(SERVERS), unrecorded=None), CreateMachine) == []
    assert len(of_kind(planned(a_newborn(SERVERS), guest=silent()), CreateMachine)) == 1


def test_a_vm_with_the_name_of_a_machine_that_records_another_is_held() -> None:
    vm = a_vm(WORKERS)
    (machine,) = some("w", 1, WORKERS)
    machine = replace(machine, record=replace(machine.record, name=vm.name))
    state = look(a_cluster(SERVERS, WORKERS), [*some("s", 3, SERVERS), machine], unrecorded=(vm,))

    assert of_kind(plan_cluster(state), AdoptVM) == []
    assert f"Machine {vm.name} records another VM" in describe_held(decide(state).held)


def test_one_of_no_pool_that_the_cluster_has_is_held() -> None:
    state = look(a_cluster(SERVERS), some("s", 3, SERVERS), unrecorded=(a_vm(WORKERS),))

    assert "of no machine pool that the Cluster has" in describe_held(decide(state).held)


def test_no_etcd_member_is_removed_beside_one_that_no_machine_records() -> None:
    etcd = a_pool("etcd", 0, frozenset({Role.ETCD}))
    machines = [*some("s", 2, SERVERS), missing(some("s", 3, SERVERS)[2])]
    cluster = a_cluster(SERVERS, etcd)

    assert len(of_kind(planned(cluster, machines), DeleteMachine)) == 1
    beside = planned(cluster, machines, unrecorded=(a_vm(etcd),))
    assert of_kind(beside, DeleteMachine) == []
    assert "may be an etcd member too" in beside.held[0].because


def test_a_clone_is_never_adopted() -> None:
    clone = replace(a_vm(WORKERS), unproven="it may be a copy")
    machines = some("s", 3, SERVERS) + some("w", 1, WORKERS)
    state = look(a_cluster(SERVERS, WORKERS), machines, unrecorded=(clone,))

    assert of_kind(plan_cluster(state), AdoptVM) == []
    assert "it may be a copy" in describe_held(decide(state).held)


def test_servers_are_adopted_also_where_no_recorded_one_is_ready() -> None:
    """They may be what it lacks: with two of three members unrecorded and stopped, etcd has no quorum."""
    (first,) = some("s", 1, SERVERS)
    vms = (a_vm(SERVERS, "aaaaa", "uid-a"), a_vm(SERVERS, "bbbbb", "uid-b"))
    state = look(a_cluster(SERVERS), [unready(first)], unrecorded=vms, guest=silent())

    plan = plan_cluster(state)

    adopted = of_kind(plan, AdoptVM)
    assert [each.vm for each in adopted if isinstance(each, AdoptVM)] == list(vms)
    assert {each.join_server for each in adopted if isinstance(each, AdoptVM)} == {join_url(first)}


def test_a_machine_name_is_known_also_of_a_pool_that_the_cluster_has_no_more() -> None:
    cluster = a_cluster(SERVERS)
    stem = machine_name_stem(cluster, "gone-pool")

    assert is_machine_name(cluster, f"{stem}x7k2p")
    for other in (
        f"{stem}x7k2p-copy",
        "precious-copy",
        cluster.name,
        f"{cluster.name}-gone-pool-aaaaa-x7k2p",
    ):
        assert not is_machine_name(cluster, other)


def test_a_cluster_that_never_had_an_unrecorded_vm_has_no_condition_of_them() -> None:
    machines = some("s", 3, SERVERS) + some("w", 2, WORKERS)
    state = look(a_cluster(SERVERS, WORKERS), machines)
    had = [{"type": "VMsRecorded", "status": "False", "reason": "UnrecordedVMs"}]
    recorded = replace(state.cluster.recorded, raw={"conditions": had})
    after = replace(state, cluster=replace(state.cluster, recorded=recorded))

    assert unrecorded_condition(state) is None
    told = unrecorded_condition(after)
    assert told is not None
    assert (told.status, told.reason) == ("True", "Recorded")
    assert unrecorded_condition(replace(after, unrecorded=None)) is None
    going = replace(after, cluster=replace(after.cluster, deletion_timestamp=NOON))
    assert unrecorded_condition(going) is None
