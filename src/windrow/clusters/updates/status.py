"""What statuses say of changes: the condition Updating of a Machine, RollingOut and UpToDate of its Cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windrow.clusters.api.updates.turn import VM_RESTART
from windrow.clusters.change.describe import count_machines, is_up_to_date, list_sentences
from windrow.clusters.change.pending import list_outdated_deleting, pending_changes
from windrow.clusters.change.rollout import find_rolling, list_outdated, why_changes_wait
from windrow.clusters.plan.actions import Wait
from windrow.clusters.plan.updates.charts import is_upgrading, list_blockers
from windrow.clusters.plan.updates.gates import has_turn
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.text import join_some
from windrow.kubernetes.conditions import Condition, ConditionStatus, find_condition, set_condition

UPDATING, ROLLING_OUT, UP_TO_DATE = "Updating", "RollingOut", "UpToDate"
UPDATE_FAILED = "UpdateFailed"
MAX_NAMED = 3
_REASONS = {
    "Preflight": "AskingNode",
    "Drain": "Draining",
    "Apply": "Applying",
    "Withdraw": "Withdrawing",
    "Stop": "Stopping",
    "Start": "Starting",
}


def with_updating(
    conditions: list[dict[str, Any]], machine: MachineState, wait: Wait | None, state: ClusterState
) -> list[dict[str, Any]]:
    """The conditions of a Machine with Updating, once it has had a turn."""
    update = machine.record.update
    if update is None:
        if find_condition(conditions, UPDATING) is None:
            return conditions
        over = Condition(UPDATING, "False", "NotUpdating", "")
        return set_condition(conditions, over, state.now)
    if (failure := update.failure) is not None:
        message = f"step {failure.step}: {failure.message}; {failure.hint}"
        return set_condition(conditions, Condition(UPDATING, "False", UPDATE_FAILED, message), state.now)
    what = "its VM restarts" if update.change == VM_RESTART else f"to {update.version}"
    message = what + (f"; waiting for {wait.what}" if wait else "")
    reason = _REASONS.get(update.step, UPDATING)
    return set_condition(conditions, Condition(UPDATING, "True", reason, message), state.now)


def rolling_out_condition(state: ClusterState, waits: Sequence[Wait] = ()) -> Condition | None:
    """Whether machines of the cluster are being changed, and what holds them; None where none ever was, nor is held."""
    in_turn = [machine for machine in state.active if machine.record.update is not None]
    failed = [machine for machine in in_turn if not has_turn(machine)]
    if failed:
        update = failed[0].record.update
        assert update is not None
        assert update.failure is not None
        failure = update.failure
        message = f"update of Machine {failed[0].name} failed in step {failure.step}: {failure.message}; {failure.hint}"
        return Condition(ROLLING_OUT, "False", UPDATE_FAILED, message)
    if in_turn:
        wait = next((one for one in waits if one.machine == in_turn[0].name), None)
        words = f"; waiting for {wait.what}" if wait else ""
        blocked = next(list_blockers(state.charts), "") if state.charts is not None else ""
        words += f"; of its charts: {blocked}" if blocked else ""
        named = ", ".join(machine.name for machine in in_turn[:3])
        return Condition(ROLLING_OUT, "True", UPDATING, f"{named} is being updated{words}")
    if (held := why_changes_wait(state)) and state.cluster.deletion_timestamp is None:
        return Condition(ROLLING_OUT, "False", "Paused" if state.cluster.paused else "Canary", held)
    if rollout := _describe_rollout(state):
        return Condition(ROLLING_OUT, *rollout)
    if find_condition(state.recorded.raw.get("conditions"), ROLLING_OUT) is None:
        return None
    return Condition(ROLLING_OUT, "False", "NotRollingOut", "")


def up_to_date_condition(state: ClusterState) -> Condition:
    """Whether its machines are as the spec asks now, and what makes them so is over. The sentences are those of
    `status.pendingChanges`, and after them what is under way."""
    pending = pending_changes(state)
    sentences = list_sentences(pending)
    if not is_up_to_date(pending):
        return Condition(UP_TO_DATE, "False", "OutOfDate", "; ".join(sentences))
    if under_way := _find_under_way(state):
        return Condition(UP_TO_DATE, "False", ROLLING_OUT, "; ".join([*sentences, under_way]))
    reason = "NewMachinesOnly" if sentences else UP_TO_DATE
    return Condition(UP_TO_DATE, "True", reason, "; ".join(sentences))


def _find_under_way(state: ClusterState) -> str:
    """What of the changes is not over though every machine is recorded as the spec asks; "" for nothing.

    A new release is not over before its charts are installed, or late: until then the Cluster has its former version, with which
    a machine would be created."""
    if state.cluster.deletion_timestamp is not None:
        return ""
    if in_turn := [machine.name for machine in state.active if machine.record.update is not None]:
        return f"not over yet: the turn of {join_some(in_turn, MAX_NAMED)}"
    if deleting := list_outdated_deleting(state):
        return f"being deleted since they are replaced: {join_some(deleting, MAX_NAMED)}"
    if is_upgrading(state):
        return (
            f"not over yet: the upgrade to {state.cluster.version}, which waits for the charts of the release"
        )
    return ""


def _describe_rollout(state: ClusterState) -> tuple[ConditionStatus, str, str] | None:
    """Status, reason and message while machines are to be replaced by others: the first pool whose turn it is, else the first
    that is held."""
    if state.cluster.deletion_timestamp is not None:
        return None
    held = find_rolling(state)
    pools = [pool for pool in state.cluster.pools if pool.name in held]
    pool = min(pools, key=lambda one: bool(held[one.name]), default=None)
    if pool is None:
        return None
    names = [one.machine for one in list_outdated(state)[pool.name]]
    named = join_some(names, MAX_NAMED)
    what = f"{count_machines(len(names))} of pool {pool.name} to be replaced ({named})"
    if why := held[pool.name]:
        return "False", "Held", f"{what}; {why}"
    new = [one for one in state.of_pool(pool) if one.name not in names and not state.is_initialized(one)]
    coming = f"; waiting for Machine {new[0].name} to become Ready" if new else ""
    gone = [one.name for one in state.deleting if one.pool == pool.name]
    going = f"; Machine {gone[0]} is being deleted" if gone and not new else ""
    return "True", "Replacing", f"{what}{coming}{going}"


def is_api_away_for_update(state: ClusterState) -> bool:
    """Whether the API server is expected not to answer: all that there are restart in their turn."""
    servers = [machine for machine in state.active if machine.record.is_control_plane]
    return bool(servers) and all(has_turn(machine) for machine in servers)
