"""Changes that disrupt nothing, so that no turn is waited for: files that API servers apply to the cluster by themselves, and
labels and taints of Nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windrow.clusters.api.updates.turn import LIVE
from windrow.clusters.plan.actions import BeginUpdate, PartialPlan, UpdateNode
from windrow.clusters.plan.updates.wanted import WantedUpdate, new_update
from windrow.clusters.state import ClusterState, MachineState


def is_live(machine: MachineState) -> bool:
    """Whether the turn under way disrupts nothing."""
    update = machine.record.update
    return update is not None and update.change == LIVE


def begin_live(
    waiting: Iterable[MachineState],
    wanted: Mapping[str, WantedUpdate],
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    """Files are written without disrupting anything, so that no turn is waited for."""
    for machine in waiting:
        one, pool = wanted[machine.name], state.cluster.find_pool(machine.pool)
        may = state.guest.is_reachable and machine.is_ready and pool is not None and not pool.paused
        if one.change == LIVE and may:
            partial.actions.append(BeginUpdate(one.because, machine.name, new_update(machine, one, state)))


def plan_nodes(state: ClusterState, partial: PartialPlan) -> None:
    """Labels and taints of pools are those of their Nodes at once. A Machine of an earlier release does not record them."""
    for machine in state.active:
        record, node, pool = machine.record, machine.node, state.cluster.find_pool(machine.pool)
        if node is None or pool is None or pool.paused or record.labels is None or record.taints is None:
            continue
        if record.labels == pool.labels and set(record.taints) == set(pool.taints):
            continue
        labels: dict[str, str | None] = dict.fromkeys(record.labels.keys() - pool.labels.keys())
        gone = tuple(taint for taint in record.taints if taint not in pool.taints)
        why = f"labels or taints of pool {pool.name} changed"
        partial.actions.append(
            UpdateNode(why, machine.name, node.name, labels | dict(pool.labels), tuple(pool.taints), gone)
        )
