"""Changes that disrupt nothing, so that no turn is waited for: files that API servers apply to the cluster by themselves, labels
and taints of Nodes, and cordons that nothing needs any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windrow.clusters.api.machine import Machine
from windrow.clusters.api.updates.turn import LIVE
from windrow.clusters.plan.actions import BeginUpdate, PartialPlan, UncordonNode, UpdateNode
from windrow.clusters.plan.updates.wanted import WantedUpdate, new_update
from windrow.clusters.state import ClusterState, MachineState, Node
from windrow.kubernetes.objects import nested

MAX_FORMER_TAINTS = 64


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
    """Labels and taints of pools are those of their Nodes at once. A Machine of an earlier release does not record them.

    The distribution gives a Node the labels of its configuration file whenever its service starts, those of the last Job: what has
    come back is set right again. A label that a Node lacks, and what others have put on it, stays so.

    What a Node is to have is recorded before it has it: a manager that dies between the two leaves it on the Node, and the pool may
    not ask for it any more.
    """
    for machine in state.active:
        record, node, pool = machine.record, machine.node, state.cluster.find_pool(machine.pool)
        if node is None or pool is None or pool.paused or record.labels is None or record.taints is None:
            continue
        former = {**former_labels(record), **record.labels}
        former = {key: value for key, value in former.items() if key not in pool.labels}
        left = [one for one in former_taints(record) if one in node.taints and one not in pool.taints]
        is_recorded = record.labels == pool.labels and set(record.taints) == set(pool.taints)
        if is_recorded and not (left or _has_come_back(node, pool.labels, former)):
            continue
        labels: dict[str, str | None] = dict.fromkeys(former)
        given = {key: value for key, value in pool.labels.items() if record.labels.get(key) != value}
        gone = tuple(dict.fromkeys([one for one in record.taints if one not in pool.taints] + left))
        taints = dict.fromkeys((*former_taints(record), *record.taints, *pool.taints))
        why = f"labels or taints of pool {pool.name} changed"
        partial.actions.append(
            UpdateNode(
                why,
                machine.name,
                node.name,
                labels | dict(pool.labels),
                tuple(pool.taints),
                gone,
                former | given,
                tuple(taints)[-MAX_FORMER_TAINTS:],
            )
        )


def plan_cordons(state: ClusterState, partial: PartialPlan) -> None:
    """What the manager has cordoned without a turn or a host in maintenance that needs it is uncordoned: data that were restored had
    it cordoned, or the write of a manager that does not lead any more arrived late."""
    for machine in state.active:
        record, node = machine.record, machine.node
        if record.update is not None or record.maintenance is not None:
            continue
        if node is not None and node.unschedulable and node.is_cordoned_by_manager:
            why = "neither a turn nor a host in maintenance needs its cordon"
            partial.actions.append(UncordonNode(why, machine.name, node.name))


def former_labels(record: Machine) -> dict[str, str]:
    """Labels that its pool had, and that its configuration file may still have."""
    found = nested(record.status, "formerLabels", default={})
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, Mapping) else {}


def former_taints(record: Machine) -> tuple[str, ...]:
    """Taints that its pool had or was about to have, which its Node may still have."""
    found = nested(record.status, "formerTaints", default=())
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _has_come_back(node: Node, labels: Mapping[str, str], former: Mapping[str, str]) -> bool:
    """Whether the Node has a label of its pool with another value, or one that its pool had."""
    found = dict(node.label_items)
    other = any(found.get(key, value) != value for key, value in labels.items())
    return other or any(found.get(key) == value for key, value in former.items())
