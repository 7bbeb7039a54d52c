"""Machine pools: keep their count, and replace unhealthy machines.

Machines that are missing are created, or adopted where a VM of the pool has none (`unrecorded`); those that are too many
are proposed for deletion. Remediation starts VMs that
are stopped, and proposes to replace machines that are unhealthy, as `diagnosis` has it.

New machines are created from the present spec, except for the version: it stays that of the cluster. What of existing
machines is not as the spec asks is found by `clusters.change`.
"""

from __future__ import annotations

from windrow.clusters.api.cluster import Pool
from windrow.clusters.change.rollout import (
    find_replicas,
    find_rolling,
    find_surge,
    list_outdated,
    list_removable,
)
from windrow.clusters.plan.actions import (
    AdoptVM,
    DeleteMachine,
    PartialPlan,
    StartVM,
)
from windrow.clusters.plan.diagnosis import Diagnoses, is_last_etcd_member
from windrow.clusters.plan.endpoint import (
    find_join_server,
    find_join_server_of_adopted,
    list_joined_through,
)
from windrow.clusters.plan.hosts.hold import find_hold
from windrow.clusters.plan.names import Wanted, plan_creation
from windrow.clusters.plan.unrecorded import decide
from windrow.clusters.plan.updates.gates import has_turn
from windrow.clusters.plan.updates.vm_turns import is_vm_restart
from windrow.clusters.state import ClusterState, MachineState
from windrow.clusters.surplus import Progress, choose_machines_to_delete, find_progress


def plan(state: ClusterState, *, may_roll: bool = True) -> PartialPlan:
    """Machines that are missing or too many; and, if `may_roll`, those that take the places of others."""
    partial = PartialPlan()
    server = find_join_server(state)
    unrecorded = decide(state)
    wanted: list[Wanted] = []
    for pool in state.cluster.pools:
        if pool.paused:
            continue
        active = state.of_pool(pool)
        surplus = len(active) - find_replicas(pool, state)
        if surplus > 0:
            _scale_down(active, surplus, pool, state, partial)
        elif surplus < 0:
            adopted = unrecorded.adopted_by(pool)
            why = f"no Machine records it, and {_asks_for(pool, state)}, {len(active)} exist"
            joined = find_join_server_of_adopted(state)
            partial.actions += [AdoptVM(why, vm, pool.name, joined) for vm in adopted]
            missing = -surplus - len(adopted) - _deleting_etcd_members(pool, state)
            if not may_roll:
                missing = min(missing, pool.quantity - len(active))
            if state.unrecorded is not None:  # else the list of VMs brings the next reconcile
                wanted += _scale_up(missing, pool, server, state, partial)
        if surplus <= 0 and may_roll:
            _roll(pool, state, partial)
    partial.actions += plan_creation(wanted, state)
    _delete_machines_without_pool(state, partial)
    return partial


def _roll(pool: Pool, state: ClusterState, partial: PartialPlan) -> None:
    """Replace what of the pool cannot be changed in place."""
    if find_rolling(state).get(pool.name, "none"):
        return
    removable, missing = list_removable(pool, list_joined_through(state), state)
    for one in removable:
        partial.propose("roll", DeleteMachine(f"it is replaced, since {one.changed} changed", one.machine))
    if missing:
        left = _count_machines(len(list_outdated(state)[pool.name]) - len(removable))
        partial.wait(missing, f"{left} of it {'is' if left.startswith('1 ') else 'are'} replaced")


def _deleting_etcd_members(pool: Pool, state: ClusterState) -> int:
    """Machines being deleted that are still etcd members: remove first, then add (one learner at a time)."""
    return sum(1 for machine in state.deleting if machine.pool == pool.name and state.is_etcd_member(machine))


def _scale_up(
    missing: int, pool: Pool, server: str, state: ClusterState, partial: PartialPlan
) -> list[Wanted]:
    if missing <= 0:
        return []
    have = find_replicas(pool, state) - missing
    if pool.options is None:
        partial.wait(
            f"{pool.kind} {state.cluster.namespace}/{pool.config_name} to be created",
            f"{_count_machines(missing)} of pool {pool.name} are created",
        )
        return []
    if not server:
        init = state.recorded.init_server_name
        what = (
            "a server to become Ready"
            if state.recorded.initialized
            else f"init server {init} to report an IP address"
            if init
            else "the init server to be created"
        )
        partial.wait(what, f"{_count_machines(missing)} of pool {pool.name} join through its address")
        return []
    return [Wanted(pool.name, missing, f"{_asks_for(pool, state)}, {have} exist", server)]


def _asks_for(pool: Pool, state: ClusterState) -> str:
    asks = f"pool {pool.name} asks for {pool.quantity}"
    surge = find_surge(pool, state)
    return f"{asks}, and {surge} more while machines of it are replaced" if surge else asks


def _count_machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def _scale_down(
    active: tuple[MachineState, ...],
    surplus: int,
    pool: Pool,
    state: ClusterState,
    partial: PartialPlan,
) -> None:
    needed = list_joined_through(state)
    for machine in choose_machines_to_delete(active, surplus, state, needed):
        reason = _deletion_reason(machine, find_progress(machine, state), needed)
        why = f"pool {pool.name} asks for {pool.quantity}, {len(active)} exist; {reason}"
        partial.propose("scale-down", DeleteMachine(why, machine.name))


def _deletion_reason(machine: MachineState, progress: Progress, needed: frozenset[str]) -> str:
    if machine.record.delete_first:
        return "this one is annotated to be deleted first"
    reason = _REASONS[progress]
    if reason == OLDEST and needed and machine.name not in needed:
        return "this one is the oldest through which no machine is joining"
    return reason


OLDEST = "this one is the oldest"
_REASONS = {
    Progress.STOPPED: "the VM of this one is not running",
    Progress.NOT_JOINED: "this one has not joined yet",
    Progress.NOT_READY: "this one is not Ready",
    Progress.NOT_INITIALIZED: "this one is not initialized yet",
    Progress.LAST_KNOWN_READY: OLDEST,
    Progress.INITIALIZED: OLDEST,
}


def _delete_machines_without_pool(state: ClusterState, partial: PartialPlan) -> None:
    for machine in state.active:
        if state.cluster.find_pool(machine.pool) is None:
            why = f"pool {machine.pool} does not exist any more"
            partial.propose("scale-down", DeleteMachine(why, machine.name))


# -- remediation -------------------------------------------------------------------------------------------------


def plan_remediation(state: ClusterState, diagnoses: Diagnoses) -> PartialPlan:
    partial = PartialPlan()
    for machine in state.active:
        diagnosis = diagnoses[machine.name]
        pool = state.cluster.find_pool(machine.pool)
        if pool is None:
            continue
        if not machine.record.was_created:
            if (because := _why_never_created(machine, pool, state)) and not pool.paused:
                partial.propose("replace", DeleteMachine(because, machine.name))
            continue
        may_return = machine.presence != "missing" and diagnosis.health != "stopped"
        if has_turn(machine) and may_return and not machine.record.replace_now:
            continue  # its service restarts, and its API with it
        if is_vm_restart(machine):
            continue  # it is stopped on purpose
        match diagnosis.health:
            case "healthy" if diagnosis.until is None:
                continue
            case "healthy" | "waiting":  # looked at again at that time
                partial.wait(diagnosis.waiting_for, diagnosis.next, machine.name, diagnosis.until)
            case "stopped":
                partial.actions.append(StartVM(diagnosis.because, machine.name))
            case "unhealthy":
                partial.propose("replace", DeleteMachine(diagnosis.because, machine.name))
                continue
        # For the last member it is proposed although it is never admitted, so that the status says what will not
        # happen; of a machine whose VM is unknown there is nothing to say but that.
        if find_hold(machine, "waiting", state) is not None:
            continue
        if machine.presence != "unknown" and is_last_etcd_member(machine, state):
            because = diagnosis.because or diagnosis.waiting_for
            partial.propose("replace", DeleteMachine(because, machine.name))
    return partial


def _why_never_created(machine: MachineState, pool: Pool, state: ClusterState) -> str:
    """Why a machine without VM is not to wait for one any more: what it was to be made with has been corrected. "" while it is
    as its pool asks for, and where a VM may be its own.

    It has the options and the credential of the time at which it was recorded, and a misspelt image in them would never be there.
    """
    record = machine.record
    if machine.found_vm is not None or pool.options is None or state.cluster.remediation_disabled:
        return ""
    options = record.options
    changed = sorted(
        key for key in options.keys() | pool.options.keys() if options.get(key) != pool.options.get(key)
    )
    if record.credential != pool.credential:
        changed.append("the credential")
    return f"{', '.join(changed)} of pool {pool.name} changed before its VM was created" if changed else ""
