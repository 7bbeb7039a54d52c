"""Pools keep their count: record what is missing, ask to give up what is too many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from windrow.clusters.api.cluster import Pool
from windrow.clusters.plan.actions import CreateMachine, DeleteMachine, Wait
from windrow.clusters.plan.endpoint import find_join_server
from windrow.clusters.plan.partial_plan import Disruption, PartialPlan, PlanBuilder
from windrow.clusters.state import ClusterState, MachineState


def plan(state: ClusterState) -> PartialPlan:
    builder = PlanBuilder()
    server = find_join_server(state)
    for pool in state.cluster.pools:
        if pool.paused:
            continue
        active = state.of_pool(pool)
        surplus = len(active) - pool.quantity
        if surplus > 0:
            _scale_down(active, surplus, pool, state, builder)
        elif surplus < 0:
            _scale_up(-surplus - _deleting_etcd_members(pool, state), pool, server, state, builder)
    _delete_machines_without_pool(state, builder)
    return builder.build()


def _deleting_etcd_members(pool: Pool, state: ClusterState) -> int:
    """Machines on their way out whose place in etcd is not free yet: remove first, then add (one learner at a time)."""
    return sum(1 for machine in state.deleting if machine.pool == pool.name and state.is_etcd_member(machine))


def _scale_up(missing: int, pool: Pool, server: str, state: ClusterState, builder: PlanBuilder) -> None:
    if missing <= 0:
        return
    have = pool.quantity - missing
    if pool.options is None:
        builder.waits.append(Wait(f"{pool.kind} {pool.config_name}", f"pool {pool.name} gets {missing} more"))
        return
    if not server:
        first = state.recorded.init_server_name
        what = (
            f"first server {first} to report its address"
            if not state.recorded.initialized
            else "a server to be Ready"
        )
        builder.waits.append(
            Wait(what, f"{_count_machines(missing)} of pool {pool.name} will join through it")
        )
        return
    why = f"pool {pool.name} asks for {pool.quantity}, {have} there"
    builder.actions += [CreateMachine(why, pool.name, server)] * missing


def _count_machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def _scale_down(
    active: tuple[MachineState, ...], surplus: int, pool: Pool, state: ClusterState, builder: PlanBuilder
) -> None:
    for machine in choose_machines_to_delete(active, surplus, state):
        why = f"pool {pool.name} asks for {pool.quantity}, {len(active)} there; {_deletion_reason(machine, state)}"
        builder.disruptions.append(Disruption("shrink", machine.name, DeleteMachine(why, machine.name)))


def choose_machines_to_delete(
    machines: Iterable[MachineState], count: int, state: ClusterState
) -> list[MachineState]:
    """The `count` machines that are missed least."""
    return sorted(machines, key=lambda machine: _deletion_priority(machine, state))[:count]


def _deletion_priority(
    machine: MachineState, state: ClusterState
) -> tuple[bool, bool, bool, bool, bool, object, str]:
    """Marked ones first, then those that do not run, are not Ready, not complete, have not joined; then the oldest.

    Among nodes that are all Ready one without its role label yet is worth less than one that takes workloads.
    """
    record = machine.record
    return (
        not record.delete_first,
        not machine.is_down,
        machine.is_ready,
        _was_initialized(machine, state),
        machine.node is not None or record.was_ready,
        record.created,
        record.name,
    )


def _was_initialized(machine: MachineState, state: ClusterState) -> bool:
    """Whether it is complete; while the guest is silent, whether it was when the guest last spoke."""
    if state.guest.is_reachable or machine.node is None:
        return state.is_initialized(machine)
    as_was = replace(machine, node=replace(machine.node, ready=machine.record.was_ready))
    return state.is_initialized(as_was)


def _deletion_reason(machine: MachineState, state: ClusterState) -> str:
    if machine.record.delete_first:
        return "this one is marked to go first"
    if machine.is_down:
        return "this one does not run"
    if machine.node is None and not machine.record.was_ready:
        return "this one has not joined yet"
    if state.guest.is_reachable and not state.is_initialized(machine):
        return "this one is not complete yet" if machine.is_ready else "this one is not Ready"
    return "the oldest goes"


def _delete_machines_without_pool(state: ClusterState, builder: PlanBuilder) -> None:
    for machine in state.active:
        if state.cluster.find_pool(machine.pool) is None:
            why = f"there is no pool {machine.pool} any more"
            builder.disruptions.append(Disruption("shrink", machine.name, DeleteMachine(why, machine.name)))
