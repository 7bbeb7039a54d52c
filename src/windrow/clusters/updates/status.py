"""What statuses say of changes in place: the condition Updating of a Machine, and RollingOut of its Cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windrow.clusters.api.updates.turn import VM_RESTART
from windrow.clusters.change.rollout import why_changes_wait
from windrow.clusters.plan.actions import Wait
from windrow.clusters.plan.updates.charts import list_blockers
from windrow.clusters.plan.updates.gates import has_turn
from windrow.clusters.state import ClusterState, MachineState
from windrow.kubernetes.conditions import Condition, find_condition, set_condition

UPDATING, ROLLING_OUT = "Updating", "RollingOut"
UPDATE_FAILED = "UpdateFailed"
_REASONS = {
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
    if find_condition(state.recorded.raw.get("conditions"), ROLLING_OUT) is None:
        return None
    return Condition(ROLLING_OUT, "False", "NotRollingOut", "")


def is_api_away_for_update(state: ClusterState) -> bool:
    """Whether the API server is expected not to answer: all that there are restart in their turn."""
    servers = [machine for machine in state.active if machine.record.is_control_plane]
    return bool(servers) and all(has_turn(machine) for machine in servers)
