"""When a Node gets the taint out-of-service, when it loses it, and how long it stays for what is attached to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.clusters.builders import (
    NOON,
    SERVER,
    a_cluster,
    a_machine,
    a_pool,
    condition,
    leaving,
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

from windrow.clusters.plan.actions import (
    DeleteMachine,
    DeleteNode,
    DeleteVM,
    MachineAction,
    TaintNode,
    UntaintNode,
)
from windrow.clusters.plan.volumes.fencing import is_shutdown_suspected
from windrow.clusters.state import MachineState, read_node
from windrow.harvester.shutdown import Shutdown
from windrow.kubernetes.taints import FORCED_DETACH_TIMEOUT

SERVERS = a_pool("servers", 3, SERVER)
# Remediation is off, so that nothing but the taint is decided about the machine.
WORKERS = a_pool("workers", 1, paused=True)
DRAINED = a_pool("workers", 0, drain=True)
WORKER = a_machine("w4", WORKERS)
GONE = Shutdown(True, "VirtualMachine default/w4 is not found, and no launcher pod of it runs")
DOUBT = Shutdown(False, "Pod default/virt-launcher-w4-x is Running")
DISKS = ("pvc-1", "pvc-2")


def proven(machine: MachineState, shutdown: Shutdown | None = GONE, attached: Any = DISKS) -> MachineState:
    return replace(machine, shutdown=shutdown, attached=attached)


def tainted(machine: MachineState, by_manager: bool = True, since: Any = NOON) -> MachineState:
    assert machine.node is not None
    node = replace(
        machine.node,
        out_of_service=True,
        out_of_service_by_manager=by_manager,
        out_of_service_since=since,
    )
    return replace(machine, node=node)


def removed(machine: MachineState, requested: Any = NOON, since: Any = NOON) -> MachineState:
    """Its Machine is being deleted, and its VM is gone."""
    return replace(missing(leaving(machine, since)), deletion_requested=requested, claims=())


def of_worker(machine: MachineState, pool: Any = WORKERS, **rest: Any) -> list[MachineAction]:
    plan = planned(a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), machine], **rest)
    return [action for action in plan.actions if action.subject == "w4"]  # type: ignore[misc]


def waits(machine: MachineState, pool: Any = WORKERS, **rest: Any) -> list[str]:
    plan = planned(a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), machine], **rest)
    return [f"{wait.what}; then {wait.then}" for wait in plan.waits if wait.machine == "w4"]


def test_a_node_whose_vm_is_deleted_is_tainted_while_it_is_still_shown_as_ready() -> None:
    machine = replace(proven(missing(WORKER)), node=WORKER.node)

    assert of_worker(machine) == [TaintNode(GONE.because, "w4", "w4", "node-w4")]


def test_a_node_whose_vm_was_stopped_is_tainted_once_it_is_not_ready() -> None:
    assert [type(one) for one in of_worker(proven(stopped(WORKER)))] == [TaintNode]


def test_a_node_that_is_ready_is_not_tainted_since_its_vm_may_only_be_restarted() -> None:
    machine = sighted(WORKER, state="stopped")

    assert not is_shutdown_suspected(machine)
    assert of_worker(proven(machine)) == []


def test_the_states_of_a_vm_that_are_worth_a_proof() -> None:
    down = unready(WORKER)
    found = {
        state: is_shutdown_suspected(sighted(down, state=state))
        for state in ("provisioning", "starting", "running", "stopping", "migrating", "deleting")
    }

    assert not any(found.values()), found
    assert not is_shutdown_suspected(unknown(down))
    assert not is_shutdown_suspected(replace(down, vm=None))
    assert is_shutdown_suspected(sighted(down, state="failed"))
    assert is_shutdown_suspected(missing(WORKER))


def test_a_node_of_another_driver_that_is_ready_is_not_tainted_whatever_the_driver_says() -> None:
    gone = record_of(missing(WORKER), driver="digitalocean")
    proof = Shutdown(True, "driver digitalocean does not find it")

    assert not is_shutdown_suspected(replace(gone, node=WORKER.node))
    assert of_worker(proven(replace(gone, node=WORKER.node), proof)) == []
    assert is_shutdown_suspected(unready(gone))
    assert [type(one) for one in of_worker(proven(unready(gone), proof))] == [TaintNode]


def test_without_a_proof_a_node_is_not_tainted_and_the_status_says_what_is_lacking() -> None:
    machine = proven(missing(WORKER), DOUBT)

    assert of_worker(machine) == []
    assert (
        "proof that VirtualMachine default/w4 was shut down (Pod default/virt-launcher-w4-x is Running); "
        "then Node w4 is tainted as out of service, so that its volumes are released"
    ) in waits(machine)


def test_nothing_is_done_without_reads_of_harvester_or_of_the_guest() -> None:
    assert of_worker(proven(missing(WORKER), shutdown=None)) == []
    assert of_worker(proven(missing(WORKER)), guest=silent()) == []


def test_a_node_that_has_the_taint_already_is_left_as_it_is() -> None:
    assert of_worker(tainted(proven(missing(WORKER)))) == []
    assert of_worker(tainted(proven(missing(WORKER)), by_manager=False)) == []


def test_the_node_of_a_deleted_machine_is_tainted_where_something_is_attached_to_it() -> None:
    assert [type(one) for one in of_worker(proven(removed(WORKER)))] == [TaintNode]
    assert [type(one) for one in of_worker(proven(removed(WORKER), attached=None))] == [TaintNode]
    assert TaintNode not in [type(one) for one in of_worker(proven(removed(WORKER), attached=()))]


def test_a_machine_that_is_back_loses_the_taint_that_the_manager_set() -> None:
    because = "VirtualMachine default/w4 runs and its Node is Ready"

    assert of_worker(tainted(WORKER)) == [UntaintNode(because, "w4", "w4", "node-w4")]
    assert [type(one) for one in of_worker(sighted(tainted(WORKER), state="migrating"))] == [UntaintNode]


@pytest.mark.parametrize(
    "machine",
    [
        tainted(WORKER, by_manager=False),
        tainted(unready(WORKER)),
        sighted(tainted(WORKER), state="stopping"),
        sighted(tainted(WORKER), state="stopped"),
        unknown(tainted(WORKER)),
        replace(tainted(WORKER), vm=None),
        replace(missing(tainted(WORKER)), node=tainted(WORKER).node),
    ],
    ids=["of-a-person", "not-ready", "stopping", "stopped", "unknown", "unseen", "missing"],
)
def test_a_taint_stays_while_it_is_not_certain_that_the_machine_is_back(machine: MachineState) -> None:
    assert UntaintNode not in [type(one) for one in of_worker(machine)]


def test_no_node_is_tainted_of_a_cluster_that_is_deleted() -> None:
    cluster = a_cluster(SERVERS, WORKERS, deletion_timestamp=NOON)

    plan = planned(cluster, [*some("s", 3, SERVERS), proven(missing(WORKER))])

    assert of_kind(plan, TaintNode, UntaintNode) == []


# --- the Node of a machine that is gone ------------------------------------------------------------------------------


def test_a_node_is_not_deleted_before_its_volumes_are_detached() -> None:
    machine = tainted(proven(removed(WORKER)))

    assert of_worker(machine) == []
    assert (
        "PersistentVolume pvc-1 and 1 more to be detached from Node w4; then Node w4 is deleted, at the latest 6m after "
        "it was tainted"
    ) in waits(machine)


@pytest.mark.parametrize("what", ["node", "vm"])
def test_whether_volumes_are_detached_is_looked_at_again_in_five_seconds(what: str) -> None:
    pool = WORKERS if what == "node" else DRAINED
    machine = tainted(proven(removed(WORKER))) if what == "node" else drained(("pvc-1",))
    plan = planned(a_cluster(SERVERS, pool), [*some("s", 3, SERVERS), machine])
    assert [wait.until for wait in plan.waits if "to be detached" in wait.what] == [
        NOON + timedelta(seconds=5)
    ]


def test_a_node_is_deleted_once_nothing_is_attached_to_it() -> None:
    machine = tainted(proven(removed(WORKER), attached=()))

    assert DeleteNode("its VM is deleted", "w4", "w4") in of_worker(machine)


@pytest.mark.parametrize(
    ("machine", "at"),
    [
        (tainted(removed(WORKER)), NOON + FORCED_DETACH_TIMEOUT),
        (tainted(removed(WORKER), since=None), NOON + FORCED_DETACH_TIMEOUT),
        (proven(removed(WORKER), DOUBT), NOON + FORCED_DETACH_TIMEOUT),
    ],
    ids=["dated", "undated", "unproven"],
)
def test_a_node_is_deleted_after_six_minutes_whatever_is_attached(machine: MachineState, at: Any) -> None:
    attached = replace(machine, attached=DISKS)

    before = of_worker(attached, now=at - minutes(0.01))
    after = of_worker(attached, now=at)

    assert DeleteNode not in [type(one) for one in before]
    assert DeleteNode in [type(one) for one in after]


def test_a_node_stays_while_it_is_not_known_what_is_attached_to_it() -> None:
    machine = tainted(proven(removed(WORKER), attached=None))

    assert DeleteNode not in [type(one) for one in of_worker(machine)]
    assert "VolumeAttachments of Node w4 to be listed" in waits(machine)[-1]


def test_a_node_stays_before_anything_was_requested_of_its_vm() -> None:
    machine = replace(removed(WORKER, requested=None), attached=DISKS)

    assert [type(one) for one in of_worker(machine)] == [DeleteVM]


# --- before a VM goes ------------------------------------------------------------------------------------------------


def drained(attached: Any, **rest: Any) -> MachineState:
    worker = a_machine("w4", DRAINED)
    assert worker.node is not None
    worker = replace(worker, node=replace(worker.node, unschedulable=True), attached=attached)
    return leaving(worker, rest.get("since", NOON))


def test_a_drained_machine_keeps_its_vm_until_its_volumes_are_detached() -> None:
    machine = drained(("pvc-1",))

    assert of_worker(machine, DRAINED) == []
    assert waits(machine, DRAINED)[0] == (
        "PersistentVolume pvc-1 to be detached from Node w4; then the machine is deleted, at the latest after "
        "drainBeforeDeleteTimeout"
    )
    assert [type(one) for one in of_worker(drained(()), DRAINED)] == [DeleteVM]


def test_what_the_pods_of_daemon_sets_use_is_not_waited_for_while_the_vm_runs() -> None:
    stays = frozenset({"pvc-1"})

    assert [type(one) for one in of_worker(replace(drained(("pvc-1",)), staying=stays), DRAINED)] == [
        DeleteVM
    ]
    both = replace(drained(("pvc-1", "pvc-2")), staying=stays)
    assert of_worker(both, DRAINED) == []
    assert waits(both, DRAINED)[0].startswith("PersistentVolume pvc-2 to be detached from Node w4; then")


def test_volumes_that_cannot_be_listed_are_waited_for_within_the_drain() -> None:
    machine = drained(None)

    assert of_worker(machine, DRAINED) == []
    assert "VolumeAttachments of Node w4 to be listed" in waits(machine, DRAINED)[0]


def test_it_is_not_waited_for_beyond_the_time_of_the_drain() -> None:
    machine = drained(("pvc-1",), since=NOON - minutes(5))

    assert [type(one) for one in of_worker(machine, DRAINED)] == [DeleteVM]


def test_a_drain_without_a_limit_waits_for_the_volumes_however_long_that_takes() -> None:
    forever = replace(DRAINED, drain_timeout=None)
    machine = drained(("pvc-1",), since=NOON - minutes(500))

    assert of_worker(machine, forever) == []
    assert "however long that takes, since drainBeforeDeleteTimeout is 0" in waits(machine, forever)[0]


def test_the_volumes_of_a_pool_without_drain_are_not_waited_for() -> None:
    machine = leaving(replace(WORKER, attached=DISKS))

    assert [type(one) for one in of_worker(machine)] == [DeleteVM]


def test_the_last_etcd_member_is_not_kept_for_what_is_attached_to_it() -> None:
    alone = a_pool("servers", 1, SERVER, drain=True)
    machine = leaving(replace(a_machine("s1", alone), attached=DISKS))

    plan = planned(a_cluster(alone), [machine])

    assert not any("to be detached" in wait.what for wait in plan.waits)


def test_a_machine_that_is_lost_is_proposed_for_deletion_as_before() -> None:
    lost = record_of(
        proven(missing(WORKER)), conditions=(condition("Joined", "True"), condition("Ready", "False"))
    )
    plan = planned(a_cluster(SERVERS, replace(WORKERS, paused=False)), [*some("s", 3, SERVERS), lost])

    assert subjects(plan, DeleteMachine) == ["w4"]
    assert subjects(plan, TaintNode) == []


# --- readings --------------------------------------------------------------------------------------------------------


def a_raw_node(*taints: dict[str, str]) -> dict[str, Any]:
    annotations = {"windrow.io/out-of-service-by": "windrow"}  # a kubelet may write any on its Node
    return {"metadata": {"name": "w4", "annotations": annotations}, "spec": {"taints": list(taints)}}


def test_a_node_says_since_when_and_its_taint_by_whom_it_is_out_of_service() -> None:
    taint = {
        "key": "node.kubernetes.io/out-of-service",
        "value": "nodeshutdown",
        "effect": "NoExecute",
        "timeAdded": "2026-01-01T12:00:00Z",
    }

    marked = {**taint, "value": "nodeshutdown-by-windrow"}
    ours = read_node(a_raw_node({"key": "other", "effect": "NoSchedule"}, marked))
    theirs = read_node(a_raw_node(taint, {"key": "other", "value": "nodeshutdown-by-windrow"}))
    none = read_node(a_raw_node({"key": "other", "effect": "NoSchedule"}))

    assert (ours.out_of_service, ours.out_of_service_by_manager, ours.out_of_service_since) == (
        True,
        True,
        NOON,
    )
    assert (theirs.out_of_service, theirs.out_of_service_by_manager) == (True, False)
    assert (none.out_of_service, none.out_of_service_since) == (False, None)
