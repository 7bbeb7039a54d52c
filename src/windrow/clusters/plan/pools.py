"""Pools keep their count: create the machines that are missing, propose to delete those that are too many."""

from __future__ import annotations

from collections.abc import Iterable

from windrow.clusters.api.cluster import Pool
from windrow.clusters.plan.actions import CreateMachine, DeleteMachine, Disruption, PartialPlan, Wait
from windrow.clusters.plan.diagnosis import Diagnoses, Progress
from windrow.clusters.plan.endpoint import find_join_server
from windrow.clusters.state import ClusterState, MachineState


def plan(state: ClusterState, diagnoses: Diagnoses) -> PartialPlan:
    partial = PartialPlan()
    server = find_join_server(state)
    for pool in state.cluster.pools:
        if pool.paused:
            continue
        active = state.of_pool(pool)
        surplus = len(active) - pool.quantity
        if surplus > 0:
            _scale_down(active, surplus, pool, diagnoses, partial)
        elif surplus < 0:
            _scale_up(-surplus - _deleting_etcd_members(pool, state), pool, server, state, partial)
    _delete_machines_without_pool(state, partial)
    return partial


def _deleting_etcd_members(pool: Pool, state: ClusterState) -> int:
    """Machines being deleted that are still etcd members: remove first, then add (one learner at a time)."""
    return sum(1 for machine in state.deleting if machine.pool == pool.name and state.is_etcd_member(machine))


def _scale_up(missing: int, pool: Pool, server: str, state: ClusterState, partial: PartialPlan) -> None:
    if missing <= 0:
        return
    have = pool.quantity - missing
    if pool.options is None:
        partial.waits.append(
            Wait(
                f"{pool.kind} {state.cluster.namespace}/{pool.config_name} to be created",
                f"{_count_machines(missing)} of pool {pool.name} are created",
            )
        )
        return
    if not server:
        init = state.recorded.init_server_name
        what = (
            f"init server {init} to report an IP address"
            if not state.recorded.initialized
            else "a server to become Ready"
        )
        partial.waits.append(
            Wait(what, f"{_count_machines(missing)} of pool {pool.name} join through its address")
        )
        return
    why = f"pool {pool.name} asks for {pool.quantity}, {have} exist"
    partial.actions += [CreateMachine(why, pool.name, server)] * missing


def _count_machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def _scale_down(
    active: tuple[MachineState, ...], surplus: int, pool: Pool, diagnoses: Diagnoses, partial: PartialPlan
) -> None:
    for machine in choose_machines_to_delete(active, surplus, diagnoses):
        reason = _deletion_reason(machine, diagnoses[machine.name].progress)
        why = f"pool {pool.name} asks for {pool.quantity}, {len(active)} exist; {reason}"
        partial.disruptions.append(Disruption("scale-down", machine.name, DeleteMachine(why, machine.name)))


def choose_machines_to_delete(
    machines: Iterable[MachineState], count: int, diagnoses: Diagnoses
) -> list[MachineState]:
    """`count` machines: annotated ones first, then those that have come the least far, then the oldest."""
    return sorted(
        machines,
        key=lambda machine: (
            not machine.record.delete_first,
            diagnoses[machine.name].progress,
            machine.record.created,
            machine.name,
        ),
    )[:count]


def _deletion_reason(machine: MachineState, progress: Progress) -> str:
    if machine.record.delete_first:
        return "this one is annotated to be deleted first"
    return _REASONS[progress]


_REASONS = {
    Progress.STOPPED: "the VM of this one is not running",
    Progress.NOT_JOINED: "this one has not joined yet",
    Progress.NOT_READY: "this one is not Ready",
    Progress.NOT_INITIALIZED: "this one is not initialized yet",
    Progress.LAST_KNOWN_READY: "this one is the oldest",
    Progress.INITIALIZED: "this one is the oldest",
}


def _delete_machines_without_pool(state: ClusterState, partial: PartialPlan) -> None:
    for machine in state.active:
        if state.cluster.find_pool(machine.pool) is None:
            why = f"pool {machine.pool} does not exist any more"
            partial.disruptions.append(
                Disruption("scale-down", machine.name, DeleteMachine(why, machine.name))
            )
