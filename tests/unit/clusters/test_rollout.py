"""Rollouts: which machines are replaced because the Cluster asks for others, and how many at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.clusters.builders import (
    OPTIONS,
    SERVER,
    WORKER,
    a_cluster,
    a_machine,
    a_pool,
    held,
    leaving,
    look,
    nodeless,
    of_kind,
    planned,
    record_of,
    sighted,
    silent,
    some,
    unready,
)

from windrow.bootstrap.spec import Role
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.operations.recorded import Operations, RecordedOperations
from windrow.clusters.api.operations.rotations import (
    RecordedKeyRotation,
    RecordedRenewal,
    RecordedTokenRotation,
)
from windrow.clusters.api.status import read_recorded_status
from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.api.updates.turn import SERVICE_RESTART, MachineUpdate, render_machine_update
from windrow.clusters.change.fields import OptionRules
from windrow.clusters.change.pending import pending_changes
from windrow.clusters.change.rollout import (
    find_outgoing_server,
    find_replicas,
    find_rolling,
    is_outdated,
    list_canaries,
    list_removable,
)
from windrow.clusters.plan.actions import CreateMachine, DeleteMachine
from windrow.clusters.plan.operations import restarts
from windrow.clusters.plan.planner import Plan
from windrow.clusters.plan.updates.gates import why_not_begin
from windrow.clusters.state import ClusterState, MachineState
from windrow.clusters.status import derive_cluster
from windrow.clusters.updates.status import rolling_out_condition
from windrow.nodedriver.vm.changes import find_changes

OTHER = {**OPTIONS, "imageName": "default/noble"}
NONE, ONE, TWO = IntOrPercent(None, 0), IntOrPercent(None, 1), IntOrPercent(None, 2)
SERVERS = a_pool("servers", 3, SERVER)


def wanted(pool: Pool) -> Pool:
    """The pool, asking for another image than its machines have."""
    return replace(pool, options=OTHER)


def new(name: str, pool: Pool) -> MachineState:
    return a_machine(name, wanted(pool))


def rolled(pool: Pool, machines: list[MachineState], *others: Any, **rest: Any) -> Plan:
    servers = some("s", 3, SERVERS)
    return planned(a_cluster(SERVERS, wanted(pool), **rest), [*servers, *machines])


def deleted(plan: Plan) -> list[str]:
    return sorted(action.subject for action in of_kind(plan, DeleteMachine))


def test_one_machine_more_is_created_before_an_outdated_one_goes() -> None:
    pool = a_pool("workers", 3)
    plan = rolled(pool, some("w", 3, pool))
    [made] = of_kind(plan, CreateMachine)
    assert "pool workers asks for 3, and 1 more while machines of it are replaced, 3 exist" in str(made)
    assert deleted(plan) == []


def test_once_that_one_is_ready_the_first_outdated_one_goes_and_only_it() -> None:
    pool = a_pool("workers", 3)
    plan = rolled(pool, [*some("w", 3, pool), new("w4", pool)])
    assert len(deleted(plan)) == 1
    assert not of_kind(plan, CreateMachine)
    [reason] = [str(action) for action in of_kind(plan, DeleteMachine)]
    assert "it is replaced, since HarvesterConfig nc-workers: imageName changed" in reason


@pytest.mark.parametrize("spoil", [unready, nodeless])
def test_a_new_machine_that_does_not_become_ready_stops_the_rollout(spoil: Any) -> None:
    pool = a_pool("workers", 3)
    plan = rolled(pool, [*some("w", 3, pool), spoil(new("w4", pool))])
    assert deleted(plan) == []
    assert not of_kind(plan, CreateMachine)
    assert "3 of 3 machines of pool workers are Ready, and 3 must stay" in [one.what for one in plan.waits]


def test_an_outdated_machine_that_is_not_ready_goes_before_those_that_serve() -> None:
    pool = a_pool("workers", 3)
    old = some("w", 3, pool)
    plan = rolled(pool, [old[0], old[1], unready(old[2]), nodeless(new("w4", pool))])
    assert deleted(plan) == ["w3"]


def test_without_surge_as_many_go_first_as_may_be_unavailable() -> None:
    pool = a_pool("workers", 3, max_surge=NONE, max_unavailable=TWO)
    plan = rolled(pool, some("w", 3, pool))
    assert len(deleted(plan)) == 2
    assert not of_kind(plan, CreateMachine)
    after = [leaving(a_machine("w1", pool)), leaving(a_machine("w2", pool)), a_machine("w3", pool)]
    assert deleted(rolled(pool, after)) == []


def pools_of(*parts: tuple[str, frozenset[Role], int, IntOrPercent]) -> list[Pool]:
    return [a_pool(name, size, roles, max_surge=surge) for name, roles, size, surge in parts]


ETCD, API = frozenset({Role.ETCD}), frozenset({Role.CONTROL_PLANE})


@pytest.mark.parametrize(
    ("pools", "why"),
    [
        (pools_of(("p", SERVER, 1, NONE)), "etcd has no other member without it"),
        (pools_of(("p", SERVER, 2, NONE)), "the other one of 2 etcd members is no majority without it"),
        (pools_of(("p", API, 1, NONE), ("q", ETCD, 3, ONE)), "no other machine is a control plane"),
        (pools_of(("p", API, 2, NONE), ("q", ETCD, 1, ONE)), ""),
        (pools_of(("p", API, 1, NONE), ("q", SERVER, 3, ONE)), ""),
        (pools_of(("p", ETCD, 1, NONE), ("q", SERVER, 2, ONE)), ""),
        (pools_of(("p", SERVER, 3, NONE)), ""),
        (pools_of(("p", SERVER, 1, ONE)), ""),
        (pools_of(("p", SERVER, 1, IntOrPercent(25, 0))), ""),
        (pools_of(("p", WORKER, 1, NONE)), ""),
    ],
)
def test_without_surge_the_server_that_the_cluster_cannot_do_without_is_refused_another(
    pools: list[Pool], why: str
) -> None:
    pools[0] = wanted(pools[0])
    machines = [
        one for pool in pools for one in some(pool.name, pool.quantity, replace(pool, options=OPTIONS))
    ]
    state = look(a_cluster(*pools), machines)

    pending = pending_changes(state)

    assert {one.change for one in pending.machines} == {"refused" if why else "replace"}
    assert not why or {one.because for one in pending.machines} == {pending.refused[0].message}
    said = [one.message.rpartition(", and ")[2] for one in pending.refused]
    assert said == ([why] if why else [])
    assert bool(pending.turns) is not bool(why)


def test_what_is_changed_in_place_is_so_beside_a_replacement_that_is_refused() -> None:
    [pool] = pools_of(("p", SERVER, 1, NONE))
    cluster = a_cluster(wanted(pool), recorded=replace(a_cluster(pool).recorded, version="v1.34.6+rke2r1"))
    server = record_of(a_machine("p1", pool), version="v1.34.6+rke2r1")

    [change] = pending_changes(look(cluster, [server])).machines

    assert change.change == "service restart"
    assert {one.change for one in change.fields} == {"service restart", "refused"}


def test_a_pool_that_is_to_have_no_machine_refuses_none() -> None:
    pools = pools_of(("p", SERVER, 0, NONE), ("q", SERVER, 1, ONE))

    pending = pending_changes(look(a_cluster(wanted(pools[0]), pools[1]), some("p", 1, pools[0])))

    assert (pending.refused, [one.change for one in pending.machines]) == ((), ["replace"])


def test_a_refusal_for_want_of_surge_names_the_field_and_what_to_set() -> None:
    [pool] = pools_of(("p", SERVER, 1, NONE))

    [problem] = pending_changes(look(a_cluster(wanted(pool)), some("p", 1, pool))).refused

    assert problem.field == "spec.rkeConfig.machinePools[p].rollingUpdate"
    assert problem.hint == "set rollingUpdate.maxSurge of pool p to 1"


def test_more_surge_than_outdated_machines_creates_no_more_than_those() -> None:
    pool = a_pool("workers", 3, max_surge=IntOrPercent(100))
    plan = rolled(pool, [new("w1", pool), new("w2", pool), a_machine("w3", pool)])
    assert len(of_kind(plan, CreateMachine)) == 1


def test_servers_are_replaced_before_workers() -> None:
    workers = a_pool("workers", 2)
    plan = planned(
        a_cluster(wanted(SERVERS), wanted(workers)), [*some("s", 3, SERVERS), *some("w", 2, workers)]
    )
    assert [made.pool for made in of_kind(plan, CreateMachine)] == ["servers"]


def test_pools_of_workers_are_replaced_side_by_side() -> None:
    pools = a_pool("a", 1), a_pool("b", 1)
    machines = [*some("s", 3, SERVERS), a_machine("a1", pools[0]), a_machine("b1", pools[1])]
    plan = planned(a_cluster(SERVERS, *map(wanted, pools)), machines)
    assert sorted(made.pool for made in of_kind(plan, CreateMachine)) == ["a", "b"]


def test_of_three_servers_one_goes_at_a_time_and_none_while_a_member_is_unhealthy() -> None:
    old = some("s", 3, SERVERS)
    plan = planned(a_cluster(wanted(SERVERS)), [*old, new("s4", SERVERS)])
    assert len(deleted(plan)) == 1
    two = replace(SERVERS, max_surge=TWO)
    sick = planned(a_cluster(wanted(two)), [*old, new("s4", two), unready(new("s5", two))])
    assert len(deleted(sick)) <= 1
    both = planned(a_cluster(wanted(two)), [*old, new("s4", two), new("s5", two)])
    assert len(deleted(both)) == 1
    assert any("at a time" in because for because in held(both).values())


@pytest.mark.parametrize(
    "rest",
    [
        {"paused": True},
        {"canary": 1},
    ],
)
def test_a_rollout_that_is_held_creates_nothing_deletes_nothing_and_keeps_what_it_has_created(
    rest: dict[str, Any],
) -> None:
    pool = a_pool("workers", 3)
    plan = rolled(pool, [*some("w", 3, pool), new("w4", pool)], **rest)
    assert deleted(plan) == []
    assert not of_kind(plan, CreateMachine)


def test_a_paused_cluster_is_scaled_all_the_same() -> None:
    had = a_pool("workers", 3)
    plan = rolled(replace(had, quantity=2), some("w", 3, had), paused=True)
    assert len(deleted(plan)) == 1


@pytest.mark.parametrize("limit", [1, 2])
def test_no_more_are_replaced_than_the_canary_has(limit: int) -> None:
    pool = a_pool("workers", 4, max_surge=TWO)
    plan = rolled(pool, some("w", 4, pool), canary=limit)
    assert len(of_kind(plan, CreateMachine)) == limit
    apart = a_pool("workers", 4, max_surge=NONE, max_unavailable=TWO)
    assert len(deleted(rolled(apart, some("w", 4, apart), canary=limit))) == 1


def test_while_one_of_a_canary_is_deleted_no_other_goes() -> None:
    pool = a_pool("workers", 4, max_surge=NONE, max_unavailable=TWO)
    old = some("w", 4, pool)
    assert deleted(rolled(pool, [leaving(old[0]), *old[1:]], canary=1)) == []


def test_an_unreachable_guest_holds_the_rollout() -> None:
    pool = a_pool("workers", 3)
    plan = planned(
        a_cluster(SERVERS, wanted(pool)), [*some("s", 3, SERVERS), *some("w", 3, pool)], guest=silent()
    )
    assert not of_kind(plan, CreateMachine, DeleteMachine)


def test_a_cluster_that_is_being_created_rolls_nothing() -> None:
    pool = a_pool("workers", 3)
    cluster = a_cluster(SERVERS, wanted(pool))
    young = replace(cluster, recorded=replace(cluster.recorded, provisioned=False))
    assert not of_kind(planned(young, [*some("s", 3, SERVERS), *some("w", 3, pool)]), CreateMachine)


def test_when_the_old_options_are_asked_for_again_the_new_machine_goes() -> None:
    pool = a_pool("workers", 3)
    machines = [*some("s", 3, SERVERS), *some("w", 3, pool), new("w4", pool)]
    assert deleted(planned(a_cluster(SERVERS, pool), machines)) == ["w4"]


def test_a_server_through_which_a_machine_is_joining_is_not_the_one_to_go() -> None:
    pool = replace(SERVERS, max_surge=TWO)
    joining = record_of(nodeless(new("s5", pool)), join_server="https://10.0.0.3:9345")
    machines = [*some("s", 3, pool), new("s4", pool), joining]
    assert "s3" not in deleted(planned(a_cluster(wanted(pool)), machines))


def test_what_can_be_changed_in_place_replaces_no_machine() -> None:
    pool = a_pool("workers", 3)
    larger = replace(pool, options={**OPTIONS, "labels": "x"})
    assert find_replicas(larger, look(a_cluster(SERVERS, pool), some("w", 3, pool))) == 3


def test_a_cluster_that_replaces_its_machines_restarts_none() -> None:
    """But for another version: a new machine is made with the one that the cluster runs."""
    pool = a_pool("workers", 2, options={"cpuCount": "2", "vmNamespace": "default"})
    larger = replace(pool, options={**(pool.options or {}), "cpuCount": "8"})
    machines = [*some("s", 3, SERVERS), *some("w", 2, pool)]
    rules = OptionRules(frozenset({"cpuCount"}), find_changes)
    by_default = pending_changes(look(a_cluster(SERVERS, larger), machines, option_rules=rules))
    assert {one.change for one in by_default.turns} == {"VM restart"}
    replacing = a_cluster(SERVERS, larger, replaces=True, version_wish="v1.35.2+rke2r1")
    changed = pending_changes(look(replacing, machines, option_rules=rules))
    assert {one.pool: one.change for one in changed.turns} == {
        "servers": "service restart",
        "workers": "replace",
    }


def a_raw(**annotations: str) -> dict[str, Any]:
    metadata = {"name": "prod", "namespace": "ns", "annotations": annotations}
    return {"metadata": metadata, "spec": {"rkeConfig": {"machinePools": []}}}


def read(**annotations: str) -> tuple[Cluster, list[str]]:
    found = read_cluster(a_raw(**{f"windrow.io/{name}": value for name, value in annotations.items()}), ())
    return found.cluster, [str(problem) for problem in found.problems]


@pytest.mark.parametrize(
    ("value", "canary", "told"),
    [("1", 1, False), ("0", 0, False), ("", 0, False), ("25", 25, False), ("one", 1, True), ("-1", 1, True)],
)
def test_a_canary_that_cannot_be_read_is_one_machine_and_told(value: str, canary: int, told: bool) -> None:
    cluster, problems = read(canary=value)
    assert cluster.canary == canary
    assert any("canary" in problem for problem in problems) is told


@pytest.mark.parametrize(
    ("value", "replaces", "told"),
    [("replace", True, False), ("Replace", True, False), ("", False, False), ("recreate", False, True)],
)
def test_the_strategy_is_to_replace_or_the_least_disruptive_one(
    value: str, replaces: bool, told: bool
) -> None:
    cluster, problems = read(strategy=value)
    assert cluster.replaces is replaces
    assert any("strategy" in problem for problem in problems) is told


@given(
    quantity=st.integers(1, 6),
    surge=st.integers(0, 4),
    unavailable=st.integers(0, 4),
    old=st.integers(0, 6),
    fresh=st.integers(0, 6),
    sick=st.sets(st.integers(0, 11)),
)
def test_the_budget_of_a_pool_is_kept_whatever_its_machines_are(
    quantity: int, surge: int, unavailable: int, old: int, fresh: int, sick: set[int]
) -> None:
    """Of those that are Ready no more go than leave quantity less maxUnavailable; and never more exist than quantity and maxSurge."""
    if not surge and not unavailable:
        surge = 1
    pool = a_pool(
        "workers",
        quantity,
        max_surge=IntOrPercent(None, surge),
        max_unavailable=IntOrPercent(None, unavailable),
    )
    machines = [a_machine(f"w{n}", pool) for n in range(old)] + [
        new(f"w{n}", pool) for n in range(old, old + fresh)
    ]
    machines = [unready(one) if place in sick else one for place, one in enumerate(machines)]
    plan = rolled(pool, machines)
    gone = set(deleted(plan))
    ready = {one.name for one in machines if one.is_ready}
    if len(machines) <= quantity + surge:
        assert len(ready - gone) >= min(len(ready), quantity - unavailable)
    assert len(machines) + len(of_kind(plan, CreateMachine)) <= max(len(machines), quantity + surge)


# -- which pools, and which machines of them -------------------------------------------------------------------------


def rolling(
    pool: Pool, machines: list[MachineState], *, servers: Pool = SERVERS, **rest: Any
) -> ClusterState:
    return look(a_cluster(servers, wanted(pool), **rest), [*some("s", 3, SERVERS), *machines])


def updated(machine: MachineState) -> MachineState:
    """The machine in its turn of a change in place."""
    update = MachineUpdate("digest", SERVICE_RESTART, "v1.35.1+rke2r1", "", "Apply")
    return record_of(machine, status={**machine.record.status, "update": render_machine_update(update)})


def removable(pool: Pool, state: ClusterState, *needed: str) -> tuple[list[str], str]:
    changes, waits = list_removable(pool, frozenset(needed), state)
    return [one.machine for one in changes], waits


def test_an_outdated_machine_is_one_that_is_not_as_its_pool_asks() -> None:
    pool = a_pool("workers", 3)
    old, fresh = a_machine("w1", pool), new("w2", pool)
    state = rolling(pool, [old, fresh])
    assert [is_outdated(one, state) for one in (old, fresh)] == [True, False]
    assert not is_outdated(old, look(a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), old]))


def test_why_a_pool_is_not_replaced_now_is_said_of_each_pool() -> None:
    pool = a_pool("workers", 1)
    machines = [a_machine("w1", pool)]
    assert find_rolling(rolling(pool, machines)) == {"workers": ""}
    assert find_rolling(rolling(replace(pool, paused=True), machines)) == {
        "workers": "machine pool workers is paused"
    }
    assert find_rolling(rolling(pool, [updated(machines[0])])) == {"workers": "Machine w1 has its turn"}
    assert find_rolling(rolling(pool, machines, servers=wanted(SERVERS))) == {
        "servers": "",
        "workers": "the servers of pool servers are replaced first",
    }
    assert find_rolling(rolling(replace(pool, paused=True), machines, servers=wanted(SERVERS))) == {
        "servers": "",
        "workers": "machine pool workers is paused",
    }


def test_of_a_canary_those_that_are_changed_already_are_taken_off() -> None:
    pool = a_pool("workers", 4, max_surge=IntOrPercent(None, 4))
    assert find_replicas(wanted(pool), rolling(pool, some("w", 4, pool), canary=3)) == 4 + 3
    half = [new("w1", pool), *some("w", 4, pool)[1:]]
    assert find_replicas(wanted(pool), rolling(pool, half, canary=3)) == 4 + 2


def recording(state: ClusterState, *names: str) -> ClusterState:
    recorded = replace(state.cluster.recorded, canaries=names)
    return replace(state, cluster=replace(state.cluster, recorded=recorded))


def test_a_pool_that_is_done_counts_for_the_canary_where_its_machine_is_recorded() -> None:
    """Red before: of a pool of one server the server was changed, and then one machine of the next pool."""
    pool = a_pool("workers", 3)
    state = rolling(pool, some("w", 3, pool), canary=1)
    assert find_rolling(state) == {"workers": ""}
    done = recording(state, "s1")
    assert "canary asks for 1, and 1 is changed" in find_rolling(done)["workers"]
    assert find_replicas(wanted(pool), done) == 3
    assert list_canaries(recording(state, "s1", "gone")) == {"s1"}, "one that is gone counts no more"
    assert list_canaries(recording(rolling(pool, some("w", 3, pool)), "s1")) == frozenset()


def test_another_edit_replaces_the_machine_that_was_the_canary_and_no_other() -> None:
    pool = a_pool("workers", 3)
    state = recording(rolling(pool, some("w", 4, pool), canary=1), "w4")
    assert find_rolling(state) == {"workers": ""}
    assert removable(wanted(pool), state) == (["w4"], "")
    assert find_replicas(wanted(pool), state) == 4


def test_what_is_recorded_of_a_canary_is_in_the_status_and_read_back() -> None:
    pool = a_pool("workers", 3)
    state = rolling(pool, [new("w1", pool), *some("w", 3, pool)[1:]], canary=1)
    status = derive_cluster(state, Plan(), None)
    assert status["canaries"] == ["w1"]
    assert read_recorded_status(status).canaries == ("w1",)
    resumed = rolling(pool, [new("w1", pool), *some("w", 3, pool)[1:]])
    assert derive_cluster(resumed, Plan(), None)["canaries"] is None


def test_a_machine_in_its_turn_is_one_of_those_that_a_canary_has() -> None:
    pool = a_pool("workers", 3)
    machines = [updated(a_machine("w1", pool)), *some("w", 3, pool)[1:]]
    assert "canary asks for 1, and 1 is changed" in find_rolling(rolling(pool, machines, canary=1))["workers"]


def test_a_budget_that_is_rounded_to_nothing_lets_one_be_unavailable() -> None:
    pool = a_pool("workers", 3, max_surge=IntOrPercent(0), max_unavailable=IntOrPercent(10))
    plan = rolled(pool, some("w", 3, pool))
    assert len(deleted(plan)) == 1
    assert not of_kind(plan, CreateMachine)


def test_a_server_through_which_another_joins_stays_while_it_serves_and_goes_when_it_does_not() -> None:
    pool = a_pool("workers", 2, max_surge=NONE, max_unavailable=TWO)
    w1, w2 = some("w", 2, pool)
    waits = "2 of 2 machines of pool workers are Ready, and 0 must stay"
    assert removable(wanted(pool), rolling(pool, [w1, w2]), "w1") == (["w2"], waits)
    assert removable(wanted(pool), rolling(pool, [w1, w2])) == (["w1", "w2"], "")
    lost = "1 of 2 machines of pool workers are Ready, and 1 must stay"
    three = a_pool("workers", 3, max_surge=NONE, max_unavailable=TWO)
    sick = [unready(a_machine("w1", three)), *some("w", 3, three)[1:]]
    assert removable(wanted(three), rolling(three, sick))[0] == ["w1", "w2"]
    careful = replace(pool, max_unavailable=ONE)
    assert removable(wanted(careful), rolling(careful, [w1, unready(w2)]), "w2") == (["w2"], lost)


@pytest.mark.parametrize(
    "spoil",
    [
        unready,
        lambda one: sighted(one, state="stopping"),
        lambda one: replace(one, node=replace(one.node, labels=frozenset())),
    ],
)
def test_a_machine_that_is_not_well_is_not_counted_as_available_and_goes_first(spoil: Any) -> None:
    pool = a_pool("workers", 3)
    machines = [*some("w", 2, pool), spoil(a_machine("w3", pool)), new("w4", pool)]
    assert removable(wanted(pool), rolling(pool, machines)) == (
        ["w3"],
        "3 of 3 machines of pool workers are Ready, and 3 must stay",
    )


def test_with_a_canary_one_goes_after_the_other() -> None:
    pool = a_pool("workers", 4, max_surge=NONE, max_unavailable=IntOrPercent(None, 3))
    w1, w2, w3, w4 = some("w", 4, pool)

    def going(*machines: MachineState) -> list[str]:
        return removable(wanted(pool), rolling(pool, list(machines), canary=4))[0]

    assert going(w1, w2, w3, w4) == ["w1"]
    assert going(w1, w2, w3, unready(w4)) == ["w4"]
    assert going(w1, w2, unready(w3), unready(w4)) == ["w3"]
    assert going(w1, w2, w3, leaving(w4)) == []


# -- what the status says of it ----------------------------------------------------------------------------------


def rolling_out(pool: Pool, machines: list[MachineState], **rest: Any) -> tuple[str, str, str]:
    found = rolling_out_condition(
        look(a_cluster(SERVERS, wanted(pool), **rest), [*some("s", 3, SERVERS), *machines])
    )
    assert found is not None
    return found.status, found.reason, found.message


def test_rolling_out_names_the_machines_that_are_to_be_replaced() -> None:
    pool = a_pool("workers", 5)

    assert rolling_out(pool, some("w", 5, pool)) == (
        "True",
        "Replacing",
        "5 machines of pool workers to be replaced (w1, w2, w3 and 2 more)",
    )


def test_rolling_out_says_which_machine_is_waited_for_and_which_goes() -> None:
    pool = a_pool("workers", 2)
    coming = rolling_out(pool, [*some("w", 2, pool), unready(new("w3", pool))])
    going = rolling_out(pool, [leaving(a_machine("w1", pool)), a_machine("w2", pool), new("w3", pool)])

    assert coming[2].endswith("(w1, w2); waiting for Machine w3 to become Ready")
    assert going[2] == "1 machine of pool workers to be replaced (w2); Machine w1 is being deleted"


def test_rolling_out_is_false_and_says_why_while_a_pool_is_held() -> None:
    pool = replace(a_pool("workers", 1), paused=True)

    assert rolling_out(pool, some("w", 1, pool)) == (
        "False",
        "Held",
        "1 machine of pool workers to be replaced (w1); machine pool workers is paused",
    )


def test_a_status_names_the_generations_of_the_machine_configs_that_it_is_about() -> None:
    pool = a_pool("workers", 1)
    state = look(a_cluster(pool, config_generations={"nc-workers": 7}), some("w", 1, pool))

    assert derive_cluster(state, Plan(), None)["observedMachineConfigs"] == {"nc-workers": 7}


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        (RecordedOperations(), ""),
        (RecordedOperations(token=RecordedTokenRotation(2, "Done")), ""),
        (RecordedOperations(token=RecordedTokenRotation(2, "Rotate")), "the server token is rotated first"),
        (RecordedOperations(rotation=RecordedKeyRotation(2, "Prepare")), "encryption keys are rotated first"),
        (
            RecordedOperations(rotation=RecordedKeyRotation(2, "PostRotateRestart")),
            "encryption keys are rotated first",
        ),
        (RecordedOperations(renewal=RecordedRenewal(id="certificates-1")), "certificates are renewed first"),
    ],
)
def test_no_machine_is_replaced_while_servers_restart_for_a_rotation(
    operations: RecordedOperations, why: str
) -> None:
    """A server that joins meanwhile would have another token, or be one of two members when the other restarts."""
    pool = wanted(SERVERS)
    cluster = a_cluster(pool)
    cluster = replace(cluster, recorded=replace(cluster.recorded, operations=operations))
    state = look(cluster, some("s", 3, SERVERS))

    assert find_rolling(state) == {"servers": why}
    assert find_replicas(pool, state) == (3 if why else 4)


@pytest.mark.parametrize(
    ("asked", "created"),
    [
        (Operations(), ["servers"]),
        (Operations(rotate_token=1), []),
        (Operations(rotate_keys=1), []),
        (Operations(rotate_certificates=1), []),
    ],
)
def test_no_replacement_begins_beside_a_rotation(asked: Operations, created: list[str]) -> None:
    plan = planned(a_cluster(wanted(SERVERS), operations=asked), some("s", 3, SERVERS))

    assert [one.pool for one in of_kind(plan, CreateMachine) if isinstance(one, CreateMachine)] == created


def test_a_machine_that_is_missing_is_created_though_a_rotation_begins() -> None:
    asked = Operations(rotate_certificates=1)
    pool = a_pool("workers", 3)

    plan = planned(
        a_cluster(SERVERS, wanted(pool), operations=asked), [*some("s", 3, SERVERS), *some("w", 2, pool)]
    )

    assert len(of_kind(plan, CreateMachine)) == 1


LONE = a_pool("servers", 1, SERVER)


def test_a_server_does_not_restart_while_the_one_whose_place_it_takes_is_an_etcd_member() -> None:
    """Red before: of two members, one too many for a while, the new one was restarted, and etcd had no quorum."""
    pool = wanted(LONE)
    old, fresh = a_machine("s1", LONE), new("s2", LONE)
    removing = planned(a_cluster(pool), [old, fresh])
    assert deleted(removing) == ["s1"]

    state = look(a_cluster(pool), [old, fresh])
    assert find_outgoing_server(state) == "s1"
    assert why_not_begin(fresh, state, ()) == (
        "etcd would keep 1 of 2 members meanwhile; s1 is replaced first"
    )


def test_a_server_restarts_where_no_other_is_about_to_go() -> None:
    two = a_pool("servers", 2, SERVER)
    state = look(a_cluster(two), some("s", 2, two))
    assert (find_outgoing_server(state), why_not_begin(state.machines[0], state, ())) == ("", "")
    pool = wanted(LONE)
    pair = [a_machine("s1", LONE), new("s2", LONE)]
    for held_up in (a_cluster(replace(pool, paused=True)), a_cluster(pool, paused=True)):
        assert find_outgoing_server(look(held_up, pair)) == ""


def test_four_members_can_do_without_the_one_that_restarts() -> None:
    pool = wanted(SERVERS)
    state = look(a_cluster(pool), [*some("s", 3, SERVERS), new("s4", SERVERS)])
    assert find_outgoing_server(state) == "s2"  # s1 is the one through which others join
    assert why_not_begin(state.machines[3], state, ()) == ""


def test_a_rotation_begins_once_the_server_has_gone_whose_replacement_is_there() -> None:
    """Red before: its restarts took quorum from two members that were one afterwards."""
    pair = [a_machine("s1", LONE), new("s2", LONE)]
    assert restarts.why_not_begin(look(a_cluster(wanted(LONE)), pair)) == "Machine s1 to be replaced"
    assert restarts.why_not_begin(look(a_cluster(wanted(LONE)), pair[1:])) == ""
    assert restarts.why_not_begin(look(a_cluster(wanted(LONE)), pair[:1])) == ""  # which may wait for ever
