"""Rollout: how many machines a pool has while those that cannot be changed in place are replaced, and which may go next.

One machine pool of servers after the other, then those of workers. As Cluster API's MachineDeployment: up to `maxSurge` machines more
than the pool's quantity are created, and an outdated machine goes once no more than `maxUnavailable` of the quantity are missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from windrow.clusters.api.cluster import Pool
from windrow.clusters.api.names import CANARY
from windrow.clusters.change.fields import NOT_YET
from windrow.clusters.change.pending import MachineChange, pending_changes
from windrow.clusters.change.surge import find_budget
from windrow.clusters.state import ClusterState, MachineState, once_per_state


@once_per_state
def list_outdated(state: ClusterState) -> Mapping[str, tuple[MachineChange, ...]]:
    """By pool the machines that are to be replaced, in the order of their turns."""
    found: dict[str, list[MachineChange]] = {}
    if "replace" not in NOT_YET:
        for one in pending_changes(state).turns:
            if one.change == "replace":
                found.setdefault(one.pool, []).append(one)
    return {pool: tuple(changes) for pool, changes in found.items()}


def is_outdated(machine: MachineState, state: ClusterState) -> bool:
    """Whether another machine is to take its place."""
    return machine.name in _list_outdated_names(state)


@once_per_state
def _list_outdated_names(state: ClusterState) -> frozenset[str]:
    return frozenset(one.machine for changes in list_outdated(state).values() for one in changes)


@once_per_state
def find_rolling(state: ClusterState) -> Mapping[str, str]:
    """By pool with outdated machines why none of them is replaced now; "" for the pools whose turn it is."""
    outdated = list_outdated(state)
    pools = [pool for pool in state.cluster.pools if pool.name in outdated]
    held = {pool.name: _why_held(pool, state) for pool in pools}
    servers = [pool.name for pool in pools if pool.is_server]
    for pool in pools:
        if servers and pool.name != servers[0]:
            held[pool.name] = held[pool.name] or f"the servers of pool {servers[0]} are replaced first"
    return held


def _why_held(pool: Pool, state: ClusterState) -> str:
    if held := _why_suspended(pool, state):
        return held
    if busy := sorted(machine.name for machine in state.active if machine.record.update is not None):
        return f"Machine {busy[0]} has its turn"
    return ""


def _why_suspended(pool: Pool, state: ClusterState) -> str:
    """Why no machine of the pool is replaced, also where no turn is under way."""
    if not state.recorded.provisioned:
        return "the cluster is being created"
    if state.cluster.paused:
        return "the Cluster is paused"
    if pool.paused:
        return f"machine pool {pool.name} is paused"
    if not state.guest.is_reachable:
        return "the guest API server does not answer"
    if (canary := why_canary_holds(state)) and not _list_replaceable(pool, state):
        return canary
    # A server would join with what another one takes after its restart only, and be one of two members when that restarts.
    if rotation := state.recorded.operations.rotation_under_way:
        return f"{rotation} first"
    return ""


@once_per_state
def list_canaries(state: ClusterState) -> frozenset[str]:
    """The machines that were changed since there is a canary, or are about to be: those that are recorded (`status.canaries`), and of
    the pools with machines that have a turn yet those that are as their Cluster asks. Another edit changes these first."""
    if not state.cluster.canary:
        return frozenset()
    turns = {one.machine for one in pending_changes(state).turns}
    pools = {machine.pool for machine in state.active if machine.name in turns}
    return frozenset(
        machine.name
        for machine in state.active
        if machine.name in state.recorded.canaries
        or (machine.pool in pools and (machine.name not in turns or machine.record.update is not None))
    )


@once_per_state
def why_canary_holds(state: ClusterState) -> str:
    """Why no other machine is changed, where as many as the canary has are; "" where more may be."""
    limit = state.cluster.canary
    if not limit or (changed := len(list_canaries(state))) < limit:
        return ""
    name = f"{state.cluster.namespace}/{state.cluster.name}"
    are = "is" if changed == 1 else "are"
    return f"annotation {CANARY} asks for {limit}, and {changed} {are} changed; windrow resume {name} goes on"


def _list_replaceable(pool: Pool, state: ClusterState) -> tuple[MachineChange, ...]:
    """The outdated machines of the pool that the canary allows to be replaced: those that are recorded where it has no more."""
    outdated = list_outdated(state).get(pool.name, ())
    if not why_canary_holds(state):
        return outdated
    return tuple(one for one in outdated if one.machine in state.recorded.canaries)


def why_changes_wait(state: ClusterState) -> str:
    """Why no machine that exists is changed until a person says so, and the command for it; "" where nothing is held."""
    if not state.cluster.paused:
        return why_canary_holds(state)
    waiting = len(pending_changes(state).turns)
    wait = f", and {waiting} {'waits' if waiting == 1 else 'wait'} for that" if waiting else ""
    name = f"{state.cluster.namespace}/{state.cluster.name}"
    return f"the Cluster is paused: no machine that exists is changed{wait}; windrow resume {name} goes on"


def find_surge(pool: Pool, state: ClusterState) -> int:
    """How many machines beyond its quantity the pool is to have for its rollout; 0 where there is none, or it is held."""
    if find_rolling(state).get(pool.name, "none"):
        return 0
    most = min(find_budget(pool)[0], len(_list_replaceable(pool, state)))
    if not state.cluster.canary or why_canary_holds(state):
        return most
    return min(most, state.cluster.canary - len(list_canaries(state)))


def find_replicas(pool: Pool, state: ClusterState) -> int:
    """How many machines the pool is to have now. A rollout that is held keeps those that it has created."""
    if pool.name not in list_outdated(state):
        return pool.quantity
    active = len(state.of_pool(pool))
    new = active - len(list_outdated(state)[pool.name])
    kept = min(active, pool.quantity + min(find_budget(pool)[0], new))
    return max(pool.quantity + find_surge(pool, state), kept)


def find_outgoing_server(state: ClusterState) -> str:
    """A server of which the replacement is there already, so that it is about to go; "" where there is none, or its rollout is held by
    more than a turn."""
    for pool in state.cluster.pools:
        outdated = list_outdated(state).get(pool.name, ())
        is_surging = pool.is_server and len(state.of_pool(pool)) > pool.quantity
        if is_surging and outdated and not _why_suspended(pool, state):
            return outdated[0].machine
    return ""


def list_removable(
    pool: Pool, needed: frozenset[str], state: ClusterState
) -> tuple[tuple[MachineChange, ...], str]:
    """The outdated machines that may go now, and what the others wait for. Those that are not Ready go first: nothing is lost
    with them. None goes through which another machine is joining (`needed`)."""
    by_name = state.machines_by_name
    active = state.of_pool(pool)
    outdated = _list_replaceable(pool, state)
    least = pool.quantity - find_budget(pool)[1]
    available = sum(1 for machine in active if _is_available(machine, state))
    idle = [one for one in outdated if not _is_available(by_name[one.machine], state)]
    spare = max(0, available - least)
    if len(active) <= least:
        idle = []  # each of them may come yet, and is one of those that are asked for
    if state.cluster.canary:  # one goes after the other, so that no more are under way than it has
        idle, spare = idle[:1], min(spare, 1 - len(idle[:1]))
        if any(machine.pool == pool.name for machine in state.deleting):
            idle, spare = [], 0
    serving = [one for one in outdated if one not in idle and one.machine not in needed]
    removable = (*idle, *serving[:spare])
    if len(removable) == len(outdated):
        return removable, ""
    what = f"{available} of {pool.quantity} machines of pool {pool.name} are Ready, and {least} must stay"
    return removable, what


def _is_available(machine: MachineState, state: ClusterState) -> bool:
    return not machine.is_going_down and state.is_initialized(machine)
