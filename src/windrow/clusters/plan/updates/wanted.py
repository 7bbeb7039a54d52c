"""What machines are to run after their turns in place, and why no machine goes to another version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from windrow.clusters.api.updates.turn import (
    LIVE,
    SERVICE_RESTART,
    VM_RESTART,
    MachineUpdate,
    job_name,
    update_id,
)
from windrow.clusters.api.version_steps import VERSION
from windrow.clusters.change.pending import MachineChange, pending_changes
from windrow.clusters.change.revisions import find_present_hash
from windrow.clusters.plan.operations import restarts
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.formats.json import dumps
from windrow.machines.port import Problem


@dataclass(frozen=True, slots=True)
class WantedUpdate:
    """What a machine is to run after its turn."""

    machine: str
    change: str
    version: str
    config_hash: str
    because: str
    options: str = field(default="", repr=False)  # what its VM is to have, as one text
    restart: str = ""  # the request that it follows, where nothing else is asked for

    @property
    def id(self) -> str:
        return update_id(self.change, self.version, self.config_hash, self.options or self.restart)


def list_wanted(state: ClusterState) -> tuple[WantedUpdate, ...]:
    """What is to be changed in place, in the order of turns. A machine whose turn has begun, and of which nothing else is asked
    any more, is to be what it was."""
    problem, by_name = find_version_problem(state), state.machines_by_name
    found = []
    for one in pending_changes(state).turns:
        machine = by_name[one.machine]
        is_upgrade = one.version != machine.record.version
        if one.change == VM_RESTART and machine.record.was_ready:
            found.append(_want_vm_restart(one, machine, state))
        if one.change == SERVICE_RESTART and machine.record.was_ready and not (is_upgrade and problem):
            found.append(
                WantedUpdate(one.machine, SERVICE_RESTART, one.version, one.config_hash, _why(one, machine))
            )
    found += _list_restarts({one.machine for one in found}, state)
    found += _list_live(state)
    found = _put_files_first(found, state)
    named = {one.machine for one in found}
    for machine in state.active:
        update, record = machine.record.update, machine.record
        if update is not None and update.is_in_place and machine.name not in named:
            why = "what it runs is asked for again"
            found.append(WantedUpdate(machine.name, update.change, record.version, record.config_hash, why))
    return tuple(found)


def _put_files_first(found: list[WantedUpdate], state: ClusterState) -> list[WantedUpdate]:
    """A request to write files alone is followed before anything else is done to a machine: without them it may not start again."""
    request = restarts.find_request(state)
    if request is None or request.restarts:
        return found
    first = list(_list_restarts(set(), state))
    named = {one.machine for one in first}
    return [*first, *(one for one in found if one.machine not in named)]


def _list_restarts(named: set[str], state: ClusterState) -> Iterator[WantedUpdate]:
    """Machines that have yet to follow a request, and which have no other turn before that."""
    request = restarts.find_request(state)
    for machine in restarts.list_not_restarted(state):
        record = machine.record
        if machine.name not in named and request is not None:
            yield WantedUpdate(
                machine.name,
                SERVICE_RESTART if request.restarts else LIVE,
                record.version,
                record.config_hash,
                request.because,
                restart=request.id,
            )


def _want_vm_restart(change: MachineChange, machine: MachineState, state: ClusterState) -> WantedUpdate:
    """The version and the configuration stay; what else is asked for has the next turn."""
    record, pool = machine.record, state.cluster.find_pool(machine.pool)
    options = pool.options if pool is not None and pool.options is not None else {}
    text = dumps(dict(sorted(options.items()))).decode()
    why = f"{change.changed} changed"
    return WantedUpdate(machine.name, VM_RESTART, record.version, record.config_hash, why, text)


def _list_live(state: ClusterState) -> Iterator[WantedUpdate]:
    """API servers whose files are not those of the present configuration, though nothing of it needs a restart: what they apply
    to the cluster by themselves, as they would again when they restart."""
    turns = {one.machine for one in pending_changes(state).turns}
    for machine in state.active:
        record = machine.record
        if not (record.is_control_plane and record.was_ready) or machine.name in turns:
            continue
        wanted = find_present_hash(machine.pool, record.version, state)
        is_known = record.config_hash in state.recorded.revisions
        if wanted and is_known and wanted != record.config_hash:
            why = "what it applies to the cluster changed"
            yield WantedUpdate(machine.name, LIVE, record.version, wanted, why)


def _why(change: MachineChange, machine: MachineState) -> str:
    """Which fields are asked for otherwise."""
    if change.version != machine.record.version:
        return f"kubernetesVersion is {change.version}, it runs {machine.record.version}"
    return f"{change.changed} changed"


def find_version_problem(state: ClusterState) -> Problem | None:
    """Why no machine goes to the version of the spec now; None where they may."""
    if state.recorded.version == state.cluster.version:
        return None
    if state.version_problems is None:
        return Problem("the version is not compared with that of Harvester yet", "", VERSION)
    refused = (
        one
        for one in (*state.problems, *state.version_problems)
        if one.severity == "error" and one.field == VERSION and not _is_of_running(one, state)
    )
    return next(refused, None)


def _is_of_running(problem: Problem, state: ClusterState) -> bool:
    """Whether it is one of the version that the cluster goes away from."""
    return state.recorded.version in problem.message and state.cluster.version not in problem.message


def new_update(machine: MachineState, wanted: WantedUpdate, state: ClusterState) -> MachineUpdate:
    """What is recorded as the turn begins. Its Job has another name at each attempt."""
    before, node = machine.record.update, machine.node
    attempt = before.attempt + 1 if before is not None and before.id == wanted.id else 1
    is_asked_first = wanted.change == SERVICE_RESTART and wanted.version != machine.record.version
    cordoned = before is not None and before.cordoned
    if not is_asked_first:
        cordoned = cordoned or cordons(machine, wanted.change, wanted.version, state)
    return MachineUpdate(
        id=wanted.id,
        change=wanted.change,
        version=wanted.version,
        config_hash=wanted.config_hash,
        step="Preflight" if is_asked_first else "Drain",
        since=state.now,
        step_since=state.now,
        job=job_name(machine.record.uid, wanted.id, attempt, state.now),
        attempt=attempt,
        cordoned=cordoned,
        restart=wanted.restart,
        boot=node.boot_id if node is not None and wanted.change == VM_RESTART else "",
    )


def cordons(machine: MachineState, change: str, version: str, state: ClusterState) -> bool:
    """Whether the turn cordons the Node: for another version, where other Nodes can take the pods, and no one else has. A lone Node
    is never cordoned, since what its new release installs needs a Node, too."""
    if machine.node is None or machine.node.unschedulable:
        return False
    if machine.record.version == version and change != VM_RESTART:
        return False
    others = (one for one in state.active if one.name != machine.name)
    return any(one.is_ready and one.node is not None and not one.node.unschedulable for one in others)
