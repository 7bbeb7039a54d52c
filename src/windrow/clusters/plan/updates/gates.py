"""When a machine may have its turn of a change in place: asked by `disruptions.admit`, which keeps quorum and budgets.

A service that is restarted is away for a minute or two and comes back with its data. So other rules hold than for a
machine that goes: a lone etcd member may be restarted, and of three members the two others must be healthy, not only
many enough. Servers change one at a time, workers as many as `upgradeStrategy` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from windrow.clusters.api.updates.turn import LIVE
from windrow.clusters.change.pending import find_tier
from windrow.clusters.change.rollout import find_outgoing_server, list_canaries, why_canary_holds
from windrow.clusters.plan.hosts.hold import is_shutting_down, why_not_disrupted
from windrow.clusters.state import ClusterState, MachineState, unreachable_reason


def tier_of(machine: MachineState, state: ClusterState) -> int:
    """The place of its tier: one is complete before the next begins. The order of turns is that of `pending_changes`. Where the server
    token was rotated servers with etcd come first: one without asks them at its start, with the new token."""
    if state.recorded.operations.token.phase == "PostRotateRestart" and machine.record.is_server:
        return 0 if machine.is_etcd else 1
    return find_tier(machine.record)


def why_not_begin(machine: MachineState, state: ClusterState, begun: Sequence[str]) -> str:
    """Why its turn may not begin now, "" where it may. `begun` are the machines whose turns have just been admitted."""
    if not state.guest.is_reachable:
        return f"no machine is updated while {unreachable_reason(state.guest)}"
    if state.guest.interruption:
        return f"no machine is updated while the guest API is not watched ({state.guest.interruption})"
    if machine.is_deleting:
        return "it is being deleted"
    if not machine.is_ready:
        return f"Node {machine.node_name} is not Ready"
    if machine.is_going_down:
        return f"{machine.vm_ref} is not running"
    if machine.is_etcd and not state.is_healthy_etcd_member(machine):
        return f"its etcd member on Node {machine.node_name} does not vote"
    if maintenance := why_not_disrupted(machine):
        return maintenance
    if replaced := _why_after_replacement(machine, state):
        return replaced
    canary = "" if machine.name in list_canaries(state) else why_canary_holds(state)
    if canary or (state.cluster.canary and begun):
        return canary or "one machine at a time while there is a canary"
    in_turn = {one.name for one in state.active if has_turn(one)} | set(begun)
    return (
        _why_no_server(machine, state, in_turn)
        if machine.record.is_server
        else _why_no_worker(machine, state, in_turn)
    )


def _why_after_replacement(machine: MachineState, state: ClusterState) -> str:
    """A server that takes the place of another one is an etcd member beside it: of two that are one afterwards, neither restarts."""
    if not state.is_etcd_member(machine):
        return ""
    members = state.etcd_members
    others = [one for one in members if one.name != machine.name and state.is_healthy_etcd_member(one)]
    if 2 * len(others) > len(members):
        return ""
    outgoing = find_outgoing_server(state)
    if not outgoing or outgoing == machine.name:
        return ""
    return f"etcd would keep {len(others)} of {len(members)} members meanwhile; {outgoing} is replaced first"


def why_not_go_on(machine: MachineState, state: ClusterState) -> str:
    """Why a turn that was admitted may not restart anything now, "" where it may: what the others are, once more. Turns that are
    not over count where they restart already; of those that do not, the first by name goes on first."""
    if state.guest.interruption:
        return f"the guest API to be watched again ({state.guest.interruption})"
    if machine.maintenance is not None:
        return f"its host to be back ({machine.maintenance})"
    in_turn = {
        one.name
        for one in state.active
        if (update := one.record.update) is not None
        and update.failure is None
        and (not update.is_preparing or one.name < machine.name)
    }
    return (
        _why_no_server(machine, state, in_turn)
        if machine.record.is_server
        else _why_no_worker(machine, state, in_turn)
    )


def has_turn(machine: MachineState) -> bool:
    """Whether the machine is being changed now; one whose turn has failed is not."""
    update = machine.record.update
    return update is not None and update.failure is None


def why_not_removed(machine: MachineState, state: ClusterState) -> str:
    """Why a machine is neither replaced nor loses its etcd member during turns; "" where it may. Its own turn is no reason where a
    user asks for its replacement."""
    update = machine.record.update
    is_own = not machine.is_deleting and machine.presence != "missing"
    if update is not None and is_own and not machine.record.replace_now:
        if update.failure is None:
            return f"it is being updated to {update.version}"
        return (
            f"its update failed; correct what it says, or annotate it to be replaced ({update.failure.step})"
        )
    if not machine.is_etcd:
        return ""
    others = [
        one.name
        for one in state.active
        if one.is_etcd and has_turn(one) and one.name != machine.name and not _awaits(one, machine, state)
    ]
    return f"one etcd member at a time; {others[0]} is being updated" if others else ""


def _awaits(one: MachineState, lost: MachineState, state: ClusterState) -> bool:
    """Whether the turn of `one` does not go on before `lost` is replaced, so that its repair must not wait for the turn."""
    update = one.record.update
    is_lost = not state.is_healthy_etcd_member(lost)
    return update is not None and update.is_preparing and update.change != LIVE and is_lost


def _why_no_server(machine: MachineState, state: ClusterState, in_turn: set[str]) -> str:
    servers = [one for one in state.machines if one.record.is_server and one.name != machine.name]
    for other in servers:
        if other.name in in_turn:
            return f"one server at a time; {other.name} has its turn"
        if other.is_deleting:
            return f"one server at a time; {other.name} is being deleted"
        if not other.record.was_ready:
            return f"server {other.name} has not joined yet"
        if other.is_etcd and not state.is_healthy_etcd_member(other):
            return f"etcd member {other.name} is not healthy"
        if not other.is_ready or other.is_going_down:
            return f"server {other.name} is not Ready"
        if is_shutting_down(other):
            return f"server {other.name} is about to be shut down ({other.record.maintenance})"
    return ""


def _why_no_worker(machine: MachineState, state: ClusterState, in_turn: set[str]) -> str:
    """Workers that are not Ready count as well: they are missed already."""
    tier = [one for one in state.machines if tier_of(one, state) == tier_of(machine, state)]
    most = state.cluster.upgrade_strategy.workers.resolve_concurrency(
        len([one for one in tier if not one.is_deleting])
    )
    away = [one.name for one in tier if one.name != machine.name and (one.name in in_turn or _is_away(one))]
    if len(away) < most:
        return ""
    named = ", ".join(sorted(away)[:3])
    return f"workerConcurrency {state.cluster.upgrade_strategy.workers} allows {most} at a time; {named} is in its turn or not Ready"


def _is_away(machine: MachineState) -> bool:
    return machine.record.was_ready and (not machine.is_ready or machine.is_going_down)
