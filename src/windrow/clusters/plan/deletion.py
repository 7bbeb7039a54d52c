"""Removal, of one machine in steps and of a whole cluster.

A machine of a living cluster: its node is emptied, its etcd member dropped, its VM removed, its Node and its password
forgotten; then its record goes. Every step shows in the world when it is done, so nothing needs to be remembered, and
a crash resumes where it was. A cluster that ends as a whole needs none of the guest's steps.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.plan.actions import (
    CordonNode,
    DeleteMachine,
    DeleteNode,
    DeleteSecrets,
    DeleteVM,
    EvictPods,
    RemoveEtcdMember,
    RemoveFinalizer,
    RemoveMachineFinalizer,
    Wait,
    first_clause,
)
from windrow.clusters.plan.guest_access import plan_deletion as plan_account_end
from windrow.clusters.plan.load_balancers import plan_deletion as plan_balancers_end
from windrow.clusters.plan.load_balancers import plan_kept
from windrow.clusters.plan.partial_plan import Disruption, PartialPlan, PlanBuilder, merge_plans
from windrow.clusters.state import ClusterState, MachineState, unreachable_reason

EVICTION_RETRY = timedelta(seconds=5)
DELETE_RETRY = timedelta(minutes=2)


def plan(state: ClusterState) -> PartialPlan:
    """The next step of every machine that leaves a living cluster."""
    builder = PlanBuilder()
    for machine in state.deleting:
        if machine.record.has_finalizer:
            _next_step(machine, state, builder)
    return builder.build()


def _next_step(machine: MachineState, state: ClusterState, builder: PlanBuilder) -> None:
    if not machine.record.was_requested:
        builder.actions.append(RemoveMachineFinalizer("nothing was made for it", machine.name))
    elif _must_drain(machine, state):
        _drain(machine, state, builder)
    elif state.recorded.initialized and (
        state.is_etcd_member(machine) or _may_be_etcd_member(machine, state)
    ):
        _remove_etcd_member(machine, state, builder)
    elif machine.presence != "missing":
        _delete_vm(machine, state, builder)
    else:
        _delete_node(machine, state, builder)


def _may_be_etcd_member(machine: MachineState, state: ClusterState) -> bool:
    """It may have joined while no manager looked; only a guest that answers can say that it has not."""
    return machine.is_etcd and machine.node is None and not state.guest.is_reachable


def needs_pods(machine: MachineState, state: ClusterState) -> bool:
    """Whether the pods on its node are of interest: somebody has to look at them."""
    return machine.is_deleting and not state.cluster.deletion_timestamp and _is_drainable(machine, state)


def _is_drainable(machine: MachineState, state: ClusterState) -> bool:
    """A node that is not Ready cannot end its pods; waiting for it would be in vain."""
    pool = state.cluster.find_pool(machine.pool)
    wanted = pool is None or pool.drain
    if not (wanted and machine.is_ready and state.guest.is_reachable and machine.presence != "missing"):
        return False
    if machine.deletion_requested is not None or (machine.node and machine.node.etcd_removal_requested):
        return False
    within = pool.drain_timeout if pool else timedelta(minutes=5)
    return (
        machine.record.deletion_timestamp is not None
        and state.now < machine.record.deletion_timestamp + within
    )


def _must_drain(machine: MachineState, state: ClusterState) -> bool:
    if not _is_drainable(machine, state):
        return False
    return bool(machine.pods) or (machine.node is not None and not machine.node.unschedulable)


def _drain(machine: MachineState, state: ClusterState, builder: PlanBuilder) -> None:
    node = machine.node
    if node is None:
        return
    if not node.unschedulable:
        builder.actions.append(CordonNode("it is emptied before it is removed", machine.name, node.name))
    to_evict = tuple((pod.namespace, pod.name) for pod in machine.pods if not pod.is_deleting)
    if to_evict:
        builder.actions.append(EvictPods("they must leave before the machine does", machine.name, to_evict))
    builder.waits.append(
        Wait(
            f"{len(machine.pods)} pods to leave node {node.name}",
            "the machine is removed, with or without them once the drain's time is over",
            machine.name,
            state.now + EVICTION_RETRY,
        )
    )


def _remove_etcd_member(machine: MachineState, state: ClusterState, builder: PlanBuilder) -> None:
    node = machine.node
    if node is None:  # a member whose Node we do not see, because the API is silent
        builder.waits.append(
            Wait(
                f"the guest API ({unreachable_reason(state.guest)})",
                "its etcd member is dropped",
                machine.name,
            )
        )
        return
    if node.etcd_removal_requested:
        builder.waits.append(
            Wait(f"the servers to drop etcd member {node.name}", "its VM is removed", machine.name)
        )
        return
    action = RemoveEtcdMember("its member must be dropped before its VM goes", machine.name, node.name)
    builder.disruptions.append(Disruption("leave", machine.name, action))


def _delete_vm(machine: MachineState, state: ClusterState, builder: PlanBuilder) -> None:
    """Order the removal once, and again after a while in which nothing happened."""
    ordered, vm = machine.deletion_requested, machine.vm
    if ordered is None or state.now >= ordered + DELETE_RETRY:
        why = "the cluster is deleted" if state.cluster.deletion_timestamp else "it was given up"
        builder.actions.append(DeleteVM(why, machine.name))
    words = f" ({first_clause(vm.because)})" if vm and vm.because else ""
    builder.waits.append(
        Wait(
            f"VM {machine.name} to be gone from Harvester{words}",
            "its record goes" if state.cluster.deletion_timestamp else "its Node is forgotten",
            machine.name,
            (state.now if ordered is None else ordered) + DELETE_RETRY,
        )
    )


def _delete_node(machine: MachineState, state: ClusterState, builder: PlanBuilder) -> None:
    _delete_remaining_disks(machine, builder)
    node = machine.node.name if machine.node else machine.record.node
    if node and state.recorded.initialized and not state.cluster.deletion_timestamp:
        if not state.guest.is_reachable:
            builder.waits.append(
                Wait(
                    f"the guest API ({unreachable_reason(state.guest)})",
                    f"Node {node} is forgotten",
                    machine.name,
                )
            )
            return
        builder.actions.append(DeleteNode("its VM is gone", machine.name, node))
    builder.actions.append(RemoveMachineFinalizer("nothing is left of it", machine.name))


def _delete_remaining_disks(machine: MachineState, builder: PlanBuilder) -> None:
    """A VM that vanished by itself left its disks behind; the order to remove it clears them up."""
    if machine.deletion_requested is None:
        builder.actions.append(DeleteVM("its VM is gone, its disks may not be", machine.name))


def plan_deletion(state: ClusterState) -> PartialPlan:
    """The next steps of a Cluster that is being deleted."""
    builder = PlanBuilder()
    if not state.cluster.has_finalizer:
        return builder.build()
    builder.actions += [DeleteMachine("the cluster is deleted", machine.name) for machine in state.active]
    for machine in state.deleting:
        if not machine.record.has_finalizer:
            continue
        if not machine.record.was_requested:
            builder.actions.append(RemoveMachineFinalizer("nothing was made for it", machine.name))
        elif machine.presence == "missing":
            _delete_remaining_disks(machine, builder)
            builder.actions.append(RemoveMachineFinalizer("nothing is left of it", machine.name))
        else:
            _delete_vm(machine, state, builder)
    if state.machines:
        builder.waits.append(Wait(_remaining_machines(state), "the account on Harvester and the Secrets go"))
        return builder.build()
    balancers = plan_balancers_end(state)
    if balancers.waits:
        return merge_plans([builder.build(), balancers])
    builder.actions += plan_account_end(state)
    builder.actions += plan_kept(state)  # not before Harvester took the rest, or each attempt would tell it
    builder.actions.append(DeleteSecrets("the cluster is deleted"))
    builder.actions.append(RemoveFinalizer("nothing is left of it"))
    return builder.build()


def _remaining_machines(state: ClusterState) -> str:
    count = len(state.machines)
    return "the last machine to be gone" if count == 1 else f"{count} machines to be gone"
