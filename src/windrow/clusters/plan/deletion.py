"""Deletion, of one machine in steps and of a whole cluster.

A machine of a running cluster: its Node is drained, its etcd member removed, its VM deleted, its Node and its password
Secret deleted; then the finalizer of its Machine is removed. Each step is visible from outside when it is done, so
nothing needs to be remembered, and a restarted controller resumes at the right step. A cluster that is deleted as a
whole needs none of the steps inside the guest.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from windrow.clusters.orphans import MachineClaim, Orphans, OrphanVm
from windrow.clusters.plan.actions import (
    CordonNode,
    DeleteMachine,
    DeleteNode,
    DeleteNodePassword,
    DeleteSecrets,
    DeleteUnrecordedClaims,
    DeleteUnrecordedVMs,
    DeleteVM,
    EvictPods,
    KeepClaims,
    KeepVMs,
    PartialPlan,
    RemoveEtcdMember,
    RemoveFinalizer,
    RemoveMachineFinalizer,
    StartVM,
    first_clause,
)
from windrow.clusters.plan.addresses import plan_release, plan_unused
from windrow.clusters.plan.diagnosis import remediation_disabled
from windrow.clusters.plan.endpoint_balancers import plan_deletion as plan_endpoint_end
from windrow.clusters.plan.guest_access import plan_deletion as plan_account_end
from windrow.clusters.plan.load_balancers import plan_deletion as plan_balancers_end
from windrow.clusters.plan.load_balancers import plan_kept
from windrow.clusters.plan.volumes import fencing, reclaim
from windrow.clusters.state import ClusterState, MachineState, unreachable_reason
from windrow.core.formats.duration import human_duration
from windrow.core.text import join_some
from windrow.harvester.unanswered import describe_expiry, plan_end
from windrow.kubernetes.kubectl import ON_HARVESTER, render_delete
from windrow.kubernetes.taints import FORCED_DETACH_TIMEOUT
from windrow.machines.port import HARVESTER, is_synthetic_uid

EVICTION_RETRY = timedelta(seconds=5)
DELETE_RETRY = timedelta(minutes=2)
REMAINS_RECHECK = timedelta(seconds=5)
REMAINS_NEXT = "the ServiceAccount on Harvester and the Secrets are deleted"


def plan(state: ClusterState) -> PartialPlan:
    """The next step of every machine that is being deleted from a running cluster."""
    partial = PartialPlan()
    for machine in state.deleting:
        if machine.record.has_finalizer:
            _next_step(machine, state, partial)
    return partial


def _next_step(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    if not machine.record.was_requested:
        plan_release(machine, partial)
        partial.actions.append(RemoveMachineFinalizer("nothing was created for it", machine.name))
    elif _must_drain(machine, state):
        _drain(machine, state, partial)
    elif state.awaits_drain(machine):
        _await_guest(machine, state, partial)
    elif state.etcd_members != (machine,) and fencing.must_detach(machine, state):
        _await_detachment(machine, state, partial)
    elif state.recorded.initialized and (
        state.is_etcd_member(machine) or _may_be_etcd_member(machine, state)
    ):
        _remove_etcd_member(machine, state, partial)
    elif machine.presence != "missing":
        _delete_vm(machine, state, partial)
    else:
        _delete_node(machine, state, partial)


def _may_be_etcd_member(machine: MachineState, state: ClusterState) -> bool:
    """It may have joined while no controller was running; only a guest that is reachable can say that it has not."""
    return machine.is_etcd and machine.node is None and not state.guest.is_reachable


def _must_drain(machine: MachineState, state: ClusterState) -> bool:
    if not state.is_drainable(machine) or state.etcd_members == (machine,):
        return False  # the last member serves until another one has joined
    return bool(machine.pods) or (machine.node is not None and not machine.node.unschedulable)


def _drain(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    node = machine.node
    assert node is not None  # else it is not drainable
    if not node.unschedulable:
        partial.actions.append(
            CordonNode("it is drained before its Machine is deleted", machine.name, node.name)
        )
    to_evict = tuple((pod.namespace, pod.name) for pod in machine.pods if not pod.is_deleting)
    if to_evict:
        partial.actions.append(
            EvictPods("the Node is drained before its Machine is deleted", machine.name, to_evict)
        )
    pool = state.cluster.find_pool(machine.pool)
    is_bounded = pool is None or pool.drain_timeout is not None
    partial.wait(
        f"{len(machine.pods)} pods to be evicted from Node {node.name}",
        "the machine is deleted, "
        + (
            "at the latest after drainBeforeDeleteTimeout"
            if is_bounded
            else "however long that takes, since drainBeforeDeleteTimeout is 0"
        ),
        machine.name,
        state.now + EVICTION_RETRY,
    )


def _await_detachment(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    """The pods are gone, and their volumes are about to be: a disk that is in use when its VM goes is free only much later."""
    until = state.find_drain_end(machine)
    limit = (
        "however long that takes, since drainBeforeDeleteTimeout is 0"
        if until is None
        else "at the latest after drainBeforeDeleteTimeout"
    )
    what = fencing.describe_attached(machine)
    partial.wait(what, f"the machine is deleted, {limit}", machine.name, state.now + EVICTION_RETRY)


def _await_guest(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    until = state.find_drain_end(machine)
    limit = (
        "however long that takes, since drainBeforeDeleteTimeout is 0"
        if until is None
        else "and the machine deleted at the latest after drainBeforeDeleteTimeout"
    )
    what = f"the guest API server ({unreachable_reason(state.guest)})"
    partial.wait(what, f"Node {machine.record.node} is drained, {limit}", machine.name, until)


def _remove_etcd_member(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    _start_for_quorum(machine, state, partial)
    node = machine.node
    if node is None:  # a member whose Node we do not see, because the API is unreachable
        partial.wait(
            f"the guest API server ({unreachable_reason(state.guest)})",
            "its etcd member is removed",
            machine.name,
        )
        return
    if node.etcd_removal_requested:
        partial.wait(f"etcd member {node.name} to be removed", "its VM is deleted", machine.name)
        return
    action = RemoveEtcdMember("it is removed before the VM is deleted", machine.name, node.name)
    partial.propose("remove-member", action)


def _start_for_quorum(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    """Start the VM of a member that was stopped while it is being deleted, where the others alone can agree on nothing."""
    if machine.presence == "missing" or not machine.is_down or remediation_disabled(machine, state):
        return
    if because := state.why_no_quorum():
        partial.actions.append(StartVM(because, machine.name))


def _delete_vm(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    """Request the deletion once, and again after a while in which nothing happened."""
    requested, vm = machine.deletion_requested, machine.vm
    if requested is None or state.now >= requested + DELETE_RETRY:
        why = "the Cluster is deleted" if state.cluster.deletion_timestamp else "its Machine is deleted"
        partial.actions.append(DeleteVM(why, machine.name))
    words = f" ({first_clause(vm.because)})" if vm and vm.because else ""
    partial.wait(
        f"{machine.vm_ref} to be deleted{words}",
        "its finalizer is removed" if state.cluster.deletion_timestamp else "its Node is deleted",
        machine.name,
        (state.now if requested is None else requested) + DELETE_RETRY,
    )


def _delete_node(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    disks_remain = _delete_remaining_disks(machine, state, partial)
    node = machine.node.name if machine.node else machine.record.node
    may_have_joined = state.recorded.initialized and not machine.node_deleted
    if may_have_joined and node:
        if not state.guest.is_reachable:
            partial.wait(
                f"the guest API server ({unreachable_reason(state.guest)})",
                f"Node {node} is deleted",
                machine.name,
            )
            return
        if fencing.awaits_release(machine, state):
            what = fencing.describe_attached(machine)
            then = f"Node {node} is deleted, at the latest {human_duration(FORCED_DETACH_TIMEOUT)} after it was tainted"
            partial.wait(what, then, machine.name, state.now + EVICTION_RETRY)
            return
        partial.actions.append(DeleteNode("its VM is deleted", machine.name, node))
    elif may_have_joined and machine.record.was_created and state.guest.is_reachable:
        why = "its VM is deleted, and the password is stored before the Node is registered"
        partial.actions.append(DeleteNodePassword(why, machine.name))
    if not disks_remain and not _awaits_creation(machine, state, partial):
        plan_release(machine, partial)
        partial.actions.append(RemoveMachineFinalizer(_describe_end(machine), machine.name))


def _awaits_creation(machine: MachineState, state: ClusterState, partial: PartialPlan) -> bool:
    """Whether the Machine has to stay since a request to create its VM was not answered and may be carried out yet, or
    Harvester was not asked for the VM since that is past."""
    end, asked = machine.may_be_made_until, machine.deletion_requested
    match plan_end(end, state.now, asked):
        case "release":
            return False
        case "wait":
            then = "Harvester is asked for it again and the finalizer of the Machine is removed"
            partial.wait(describe_expiry(machine.vm_ref), then, machine.name, end)
        case "ask" if asked is not None:
            why = "a request to create its VM may have been carried out since Harvester was asked"
            partial.actions.append(DeleteVM(why, machine.name))
        case "ask":
            pass  # it is just being asked
    return True


def _delete_remaining_disks(machine: MachineState, state: ClusterState, partial: PartialPlan) -> bool:
    """Delete the disks that a VM deleted by others may have left. Whether the Machine has to stay for them.

    One that does not terminate although that was requested is kept on purpose, such as one that another VM uses now.
    """
    requested = machine.deletion_requested
    if requested is None or (machine.claims and state.now >= requested + DELETE_RETRY):
        partial.actions.append(DeleteVM("its VM is not found, its disks may remain", machine.name))
    then, until = "its finalizer is removed", state.now + DELETE_RETRY
    if machine.claims is None:
        what = f"Harvester to show whether the disks of {machine.vm_ref} are deleted"
        partial.wait(what, then, machine.name, state.now + REMAINS_RECHECK)
        return True
    remaining = [claim for claim in machine.claims if claim.is_deleting or requested is None]
    if not remaining:
        return False
    more = _and_more(remaining)
    partial.wait(f"{remaining[0]} to be deleted{more}", then, machine.name, until)
    return True


def _describe_end(machine: MachineState) -> str:
    """What is known to be gone. The disks are known by our annotations, which other drivers do not write."""
    record = machine.record
    if record.driver != HARVESTER:
        return f"driver {record.driver} has removed it"
    if is_synthetic_uid(record.vm_uid):
        return f"{machine.vm_ref} is deleted; whether its driver has left disks on Harvester is not known"
    return "nothing of it is left on Harvester"


def plan_deletion(state: ClusterState) -> PartialPlan:
    """The next steps of a Cluster that is being deleted."""
    partial = PartialPlan()
    if not state.cluster.has_finalizer:
        return partial
    record = reclaim.plan_record(state)
    if record.waits:
        return record
    partial.add(record)
    partial.actions += [DeleteMachine("the Cluster is deleted", machine.name) for machine in state.active]
    for machine in state.deleting:
        plan_machine_end(machine, state, partial)
    if state.machines:
        partial.wait(
            _remaining_machines(state), "the ServiceAccount on Harvester and the Secrets are deleted"
        )
        return partial
    balancers = plan_balancers_end(state)
    if balancers.waits:
        return partial.add(balancers)
    remains = _plan_remains(state)
    if remains.waits:
        return partial.add(remains)
    claims = reclaim.plan_deletion(state)
    if claims.waits:
        return partial.add(claims)
    endpoint = plan_endpoint_end(state)
    if endpoint.waits:
        return partial.add(endpoint)
    account = plan_account_end(state)
    if account.waits:
        return partial.add(account)
    partial.add(account)
    partial.actions += plan_kept(state)  # not before Harvester took the rest, or each attempt would tell it
    partial.actions += _plan_kept(state.orphans)
    partial.actions += reclaim.plan_kept(state)
    partial.add(plan_unused(state, is_gone=True))
    partial.actions.append(DeleteSecrets("the Cluster is deleted"))
    gone = "its Machines are gone, and so is what Windrow made for it on Harvester"
    partial.actions.append(RemoveFinalizer(gone))
    return partial


def plan_machine_end(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    """The next step of a machine that is deleted and of which nothing in the guest matters: its cluster goes, or begins anew."""
    if not machine.record.has_finalizer:
        return
    if not machine.record.was_requested:
        plan_release(machine, partial)
        partial.actions.append(RemoveMachineFinalizer("nothing was created for it", machine.name))
    elif machine.presence == "missing":
        disks_remain = _delete_remaining_disks(machine, state, partial)
        if not disks_remain and not _awaits_creation(machine, state, partial):
            plan_release(machine, partial)
            partial.actions.append(RemoveMachineFinalizer(_describe_end(machine), machine.name))
    else:
        _delete_vm(machine, state, partial)


def _plan_remains(state: ClusterState) -> PartialPlan:
    """Delete VMs that were made for the Cluster and that no Machine records, and wait until all disks are gone too.

    The uid alone proves nothing, since a clone has it too: a VM without full proof is kept, and not waited for.
    """
    partial, orphans = PartialPlan(), state.orphans
    if orphans is None:
        return partial
    until = state.now + REMAINS_RECHECK
    if going := [vm for vm in orphans.vms if not vm.unproven]:
        named = join_some(going, 1)
        if to_delete := tuple(vm for vm in going if not vm.is_deleting):
            why = f"{named} carries the uid of the deleted Cluster, and no Machine records it"
            partial.actions.append(DeleteUnrecordedVMs(why, to_delete))
        partial.wait(f"{named} to be deleted (not recorded by any Machine)", REMAINS_NEXT, until=until)
    elif disks := tuple(claim for claim in orphans.disks if not claim.unproven):
        more = _and_more(disks)
        why = f"{disks[0]}{more} was made for a machine of the deleted Cluster, and nothing records that one"
        partial.actions.append(DeleteUnrecordedClaims(why, disks))
        partial.wait(f"{disks[0]} to be deleted{more}", REMAINS_NEXT, until=until)
    elif orphans.claims:
        more = _and_more(orphans.claims)
        partial.wait(f"{orphans.claims[0]} to be deleted{more}", REMAINS_NEXT, until=until)
    return partial


def _and_more(found: Sequence[object]) -> str:
    """What follows the first of them in a sentence."""
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""


def _plan_kept(orphans: Orphans | None) -> list[KeepVMs | KeepClaims]:
    """Report each VM and each disk that stays although it carries the uid of the deleted Cluster, and why."""
    if orphans is None:
        return []
    vms = [KeepVMs(_kept_sentence(f"{vm} with its disks", vm)) for vm in orphans.vms if vm.unproven]
    return [*vms, *(KeepClaims(_kept_sentence(str(one), one)) for one in orphans.disks if one.unproven)]


def _kept_sentence(what: str, kept: OrphanVm | MachineClaim) -> str:
    by_hand = render_delete(kept.ref, kubeconfig=ON_HARVESTER)
    return f"{what}, since {kept.unproven}; if it is not needed, delete it by hand, there: {by_hand}"


def _remaining_machines(state: ClusterState) -> str:
    count = len(state.machines)
    return (
        f"Machine {state.machines[0].name} to be deleted" if count == 1 else f"{count} Machines to be deleted"
    )
