"""Turns that begin, in the order of tiers. Which of the proposed ones are admitted is for `gates` to say."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.clusters.api.updates.turn import LIVE
from windrow.clusters.api.version_steps import read_version
from windrow.clusters.change.revisions import list_present_hashes
from windrow.clusters.plan.actions import BeginUpdate, PartialPlan, RecordVersion
from windrow.clusters.plan.operations import rotation
from windrow.clusters.plan.operations.snapshots import request_name
from windrow.clusters.plan.updates.charts import find_unfinished
from windrow.clusters.plan.updates.gates import has_turn, tier_of
from windrow.clusters.plan.updates.live_changes import begin_live, is_live
from windrow.clusters.plan.updates.upgrade_snapshot import has_upgrade_snapshot
from windrow.clusters.plan.updates.wanted import WantedUpdate, find_version_problem, new_update
from windrow.clusters.state import ClusterState, MachineState


def begin(wanted: Mapping[str, WantedUpdate], state: ClusterState, partial: PartialPlan) -> None:
    """Propose the turns of the first tier that has machines to be changed, where no turn has failed; live changes at once."""
    if not state.recorded.provisioned:
        return  # it is still being built, by what it began with
    in_turn = [machine for machine in state.active if machine.record.update is not None]
    by_name = state.machines_by_name
    waiting = [by_name[name] for name in wanted if by_name[name].record.update is None]
    if not waiting and not in_turn and not state.deleting:
        _record_version(state, partial)
        return
    if state.cluster.paused or rotation.holds_turns(state):
        return
    waiting = [machine for machine in waiting if is_revision_recorded(wanted[machine.name], state)]
    begin_live(waiting, wanted, state, partial)
    # Also by files that are to be written first: what else a server has to run is newer than what workers run after it.
    first = min((tier_of(machine, state) for machine in (*waiting, *in_turn)), default=0)
    waiting = [machine for machine in waiting if wanted[machine.name].change != LIVE]
    in_turn = [machine for machine in in_turn if not is_live(machine)]
    if not waiting or any(not has_turn(machine) for machine in in_turn):
        return
    version = next((one.version for one in wanted.values() if one.version != state.recorded.version), "")
    if not has_upgrade_snapshot(waiting[0], version, state, partial):
        return
    for machine in waiting:
        pool = state.cluster.find_pool(machine.pool)
        if tier_of(machine, state) == first and pool is not None and not pool.paused:
            one = wanted[machine.name]
            if request_name(machine.name) in state.requests:
                what = f"Machine {machine.name} to make an etcd snapshot"
                partial.wait(what, "its turn begins", machine.name)
                continue
            if older := find_older_api_server(machine, one.version, state):
                what = f"API server {older.name}, which runs {older.record.version}, to be replaced"
                partial.wait(
                    what, f"it runs {one.version}, which no API server may be older than", machine.name
                )
                continue
            partial.propose("update", BeginUpdate(one.because, machine.name, new_update(machine, one, state)))


def find_older_api_server(machine: MachineState, version: str, state: ClusterState) -> MachineState | None:
    """A server with an API of an older minor release than `version`, as there is one until its replacement is over: a kubelet must
    not be newer than any API server. Of the machine's own nothing is said: both become newer at once."""
    wanted = read_version(version)
    if wanted is None or machine.record.is_control_plane:
        return None
    for one in state.machines:
        runs = read_version(one.record.version) if one.record.is_control_plane else None
        if runs is not None and one.record.was_ready and runs.line < wanted.line:
            return one
    return None


def is_revision_recorded(wanted: WantedUpdate, state: ClusterState) -> bool:
    """Whether it is recorded what the machine will be: were that lost with the status and the spec changed, it would be
    unknown in which fields the machine differs. The status is written after each reconcile."""
    digest, known = wanted.config_hash, state.recorded.revisions
    return digest not in list_present_hashes(state) or digest in known


def _record_version(state: ClusterState, partial: PartialPlan) -> None:
    version = state.cluster.version
    if state.recorded.version == version or find_version_problem(state) is not None:
        return
    if not state.active or any(machine.record.version != version for machine in state.active):
        return
    unfinished, until = find_unfinished(state)
    if until is not None:
        partial.wait(unfinished, f"the upgrade to {version} ends", until=until)
        return
    because = f"all its machines do; still waiting for {unfinished}" if unfinished else "all its machines do"
    partial.actions.append(RecordVersion(because, version))
