"""Restore by a server that stays: from a snapshot on its own disk, or with its own data where etcd has lost its quorum.

| Phase | What is done |
|---|---|
| Started | as in every restore |
| Shutdown | the VMs of all servers are stopped; none is deleted |
| Restore | the member starts with other user data, by which its service resets etcd before it starts |
| PostRestorePodCleanup | the API answers; only now the other servers are deleted with their disks |
| InitialRestartCluster and later | as in every restore: other servers join anew, workers have stayed |

The VMs are restarted, also where the API answers: no server may run beside the one that is reset, or there would be two
clusters, so all of them are stopped anyhow, and stopped again where one is started by hand. That the API answers at the member's
own address proves that etcd was reset: its service does not start before. Until then every disk is as it was, but for that of the member, which moves its data
aside and puts them back where the snapshot cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

from windrow.clusters.api.operations.recorded import RestoreRequest
from windrow.clusters.api.operations.snapshot import SnapshotFile, token_hash
from windrow.clusters.plan.actions import DeleteMachine, PartialPlan, PowerVM
from windrow.clusters.plan.deletion import plan_machine_end
from windrow.clusters.plan.endpoint import find_api_url, list_api_servers
from windrow.clusters.plan.operations.actions import (
    AdvanceRestore,
    EndClusterReset,
    FailRestore,
    RequestClusterReset,
)
from windrow.clusters.state import STOPPED_STATES, ClusterState, MachineState
from windrow.machines.port import HARVESTER, Problem

FIELD = "spec.rkeConfig.etcdSnapshotRestore"
MEMBER_FIELD = f"{FIELD}.clusterResetMember"
RECHECK = timedelta(seconds=30)
MAX_NAMED = 3
MAX_PATH = 1000  # a longer one may have been cut when it was read
COMPRESSED = ".zip"
_SCHEME = "file://"
# A snapshot ends with the SHA-256 of its pages.
_PAGE, _DIGEST = 512, 32
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def find_member(state: ClusterState) -> MachineState | None:
    """The machine that is reset, while its record is there and it stays."""
    uid = state.recorded.operations.restore.member
    return next((one for one in state.active if uid and one.record.uid == uid), None)


def list_apis_to_ask(state: ClusterState) -> tuple[str, ...]:
    """Where the guest API is asked: while a member resets etcd at its own address only. What another server answers, or what is
    behind the endpoint, proves nothing of that."""
    member = find_member(state)
    if member is None or state.recorded.operations.restore.phase not in ("Restore", "PostRestorePodCleanup"):
        return list_api_servers(state)
    own = find_api_url(member)
    return (own,) if own else ()


def list_other_servers(state: ClusterState, member: MachineState) -> tuple[str, ...]:
    """The uids of those that are stopped, and deleted once the member has reset etcd. Workers find the member, which keeps its
    address."""
    others = (one for one in state.machines if one.record.is_server and one is not member)
    return tuple(sorted(one.record.uid for one in others))


def can_be_reset(machine: MachineState) -> bool:
    """Whether a machine has what a reset needs: data of etcd, and an API of its own that shows how it ended."""
    return machine.is_etcd and machine.record.is_control_plane


# -- what is asked for ---------------------------------------------------------------------------------------------


def find_holder(file: SnapshotFile, state: ClusterState) -> MachineState | None:
    """The machine on whose disk a snapshot is."""
    return next((one for one in state.active if one.is_etcd and one.node_name == file.node), None)


def check_local(file: SnapshotFile, where: str, state: ClusterState) -> Problem | None:
    """What keeps the server that has the file from restoring it."""
    holder = find_holder(file, state)
    if holder is None or holder.presence == "missing":
        return _refuse(
            f"{where} is on the disk of Node {file.node} only, and no server of the Cluster is that Node any more",
            "name one that is in S3, or on the disk of another server: windrow snapshot list",
        )
    if not snapshot_path(file):
        return _refuse(f"{where} does not say where its file is", "name another snapshot")
    own = token_hash(state.secrets.server_password) if state.secrets else ""
    if file.token_hash not in ("", own):
        return _refuse(
            f"{where} was made with a former server token, and Machine {holder.name} starts with the present one",
            "name one that is in S3",
        )
    return _check_api(holder) or _check_driver(holder)


def snapshot_path(file: SnapshotFile) -> str:
    """Where the file is on its disk; "" where the guest does not say so in a way that can be used."""
    path = file.location.removeprefix(_SCHEME)
    is_usable = path != file.location and path.startswith("/") and len(path) <= MAX_PATH
    return path if is_usable and not _CONTROL.search(path) else ""


def is_cut_off(file: SnapshotFile) -> bool:
    """Whether a snapshot of that size has lost its end."""
    return not file.snapshot.endswith(COMPRESSED) and file.size % _PAGE != _DIGEST


def check_reset(request: RestoreRequest, state: ClusterState) -> Problem | None:
    """What keeps the cluster from going on with the data of one member."""
    if state.guest.is_reachable:
        return _refuse(
            "the guest API answers, so etcd has its quorum, and what is written to it would be lost",
            "restore a snapshot, or delete the Machines that are lost",
        )
    if awaits_guest(request, state):
        return _refuse(
            f"it is not known whether etcd has its quorum: {describe_unknown(state)}",
            "wait until it is known",
        )
    member = state.find_machine(request.member)
    if member is None or member.is_deleting or not member.is_etcd or not member.record.was_created:
        kept = [one.name for one in state.active if can_be_reset(one) and one.presence == "present"]
        named = ", ".join(kept[:MAX_NAMED]) or "none"
        return _refuse(
            f"{MEMBER_FIELD} is {request.member}, which is no Machine of the Cluster with etcd",
            f"name the one with the newest data; there are: {named}",
        )
    if member.presence == "missing":
        return _refuse(f"{member.vm_ref} is gone, and its data with it", "name another Machine with etcd")
    return _check_datastore(state) or _check_api(member) or _check_driver(member)


def awaits_guest(request: RestoreRequest, state: ClusterState) -> bool:
    """Whether it has yet to be found out if etcd has its quorum: an API that was not asked is not one that is silent. Where no
    server of it runs there is none to ask."""
    return bool(request.member) and state.guest.state == "unknown" and _may_answer(state)


def awaits_first_answer(state: ClusterState) -> bool:
    """Whether the guest API was not asked yet, as after a start of the manager. It may have on record that it was restored."""
    is_unasked = state.guest.state == "unknown" and not state.guest.because
    return is_unasked and state.recorded.initialized and _may_answer(state)


def _may_answer(state: ClusterState) -> bool:
    return any(one.record.is_control_plane and not one.is_down for one in state.servers)


def describe_unknown(state: ClusterState) -> str:
    """Why it is not known whether the guest API answers."""
    return state.guest.because or "the guest API was not asked yet"


def _check_datastore(state: ClusterState) -> Problem | None:
    if "datastore-endpoint" not in state.cluster.global_config:
        return None
    return _refuse(
        "machineGlobalConfig has a datastore-endpoint, so the cluster has no etcd", "restore that datastore"
    )


def _check_api(machine: MachineState) -> Problem | None:
    if machine.record.is_control_plane:
        return None
    return _refuse(
        f"Machine {machine.name} has etcd and no control plane, so no API of its own would show that etcd was reset",
        "restore a snapshot that is in S3, by new machines",
    )


def _check_driver(machine: MachineState) -> Problem | None:
    if machine.record.driver == HARVESTER:
        return None
    return _refuse(
        f"Machine {machine.name} was made by driver {machine.record.driver}, which cannot give it other user data",
        "restore a snapshot that is in S3, by new machines",
    )


def _refuse(message: str, hint: str) -> Problem:
    return Problem(message, f"{hint}; nothing was touched, raise {FIELD}.generation to try again", FIELD)


# -- the phases ----------------------------------------------------------------------------------------------------


def plan_shutdown(state: ClusterState, partial: PartialPlan) -> None:
    """Stop every server, then tell the member what it does at its next start."""
    member = _require_member(state, partial)
    if member is None:
        return
    if _stop_running(_servers_of_before(state), f"Machine {member.name} resets etcd", state, partial):
        return
    partial.actions.append(RequestClusterReset(f"no server runs; {name_source(state)} is next", member.name))


def plan_reset(state: ClusterState, partial: PartialPlan) -> None:
    """Start the member, and wait until its API answers. Another server that was started meanwhile is stopped again first: it
    has the data of before, which may be all that there are."""
    member = _require_member(state, partial)
    if member is None:
        return
    then = f"Machine {member.name} resets etcd"
    if _stop_running(_list_replaced(state), then, state, partial):
        return
    if member.vm is not None and member.vm.state in STOPPED_STATES:
        partial.actions.append(PowerVM("its service resets etcd before it starts", member.name, "on"))
    elif state.guest.is_reachable and not state.guest.interruption and not _is_stopped(member):
        why = f"the API answers with {name_source(state)}"
        partial.actions.append(AdvanceRestore(why, "PostRestorePodCleanup"))
        return
    partial.wait(
        f"Machine {member.name} to reset etcd with {name_source(state)} (windrow machine console {member.name} shows how it goes "
        "on; the disks of the other servers are as they were)",
        "the API answers and the other servers are replaced",
    )


def plan_replacement(state: ClusterState, partial: PartialPlan) -> None:
    """Delete the other servers: what they have is not the cluster's any more. None of them is deleted while it runs."""
    member = _require_member(state, partial)
    if member is None:
        return
    staying = [one for one in _list_replaced(state) if not one.is_deleting]
    if _stop_running(staying, "it is deleted", state, partial):
        return
    recorded = state.recorded.operations.restore
    left = [one for one in state.machines if one.record.uid in recorded.replaced]
    for machine in left:
        if machine.is_deleting:
            plan_machine_end(machine, state, partial)
        else:
            why = f"Machine {member.name} has begun the cluster anew with {name_source(state)}"
            partial.actions.append(DeleteMachine(why, machine.name))
    if left:
        partial.wait(
            f"Machine {left[0].name} to be deleted", "other servers join anew", until=state.now + RECHECK
        )
        return
    partial.actions.append(EndClusterReset("the other servers are gone", member.name))


def _require_member(state: ClusterState, partial: PartialPlan) -> MachineState | None:
    member = find_member(state)
    if member is not None and member.presence != "missing":
        return member
    gone = member.vm_ref if member is not None else "the Machine that was to reset etcd"
    why = f"{gone} is gone; the disks of the other servers are as they were; raise {FIELD}.generation for another try"
    partial.actions.append(FailRestore(why))
    return None


def _list_replaced(state: ClusterState) -> list[MachineState]:
    """The servers other than the member of which a VM may be there."""
    replaced = state.recorded.operations.restore.replaced
    return [one for one in state.machines if one.record.uid in replaced and one.record.was_requested]


def _servers_of_before(state: ClusterState) -> list[MachineState]:
    recorded = state.recorded.operations.restore
    concerned = {recorded.member, *recorded.replaced}
    return [one for one in state.machines if one.record.uid in concerned and one.record.was_requested]


def _stop_running(
    servers: Sequence[MachineState], then: str, state: ClusterState, partial: PartialPlan
) -> bool:
    """Whether one of them may run; those that do are stopped, and waited for."""
    running = [one for one in servers if not _is_stopped(one)]
    for machine in running:
        _stop(machine, state, partial)
    if running:
        more = f" and those of {len(running) - 1} more servers" if len(running) > 1 else ""
        what = f"{running[0].vm_ref}{more} to stop ({_describe(running[0])})"
        partial.wait(what, then, until=state.now + RECHECK)
    return bool(running)


def _is_stopped(machine: MachineState) -> bool:
    vm = machine.vm
    return vm is not None and (vm.presence == "missing" or vm.state in STOPPED_STATES)


def _stop(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    if machine.is_deleting:
        plan_machine_end(machine, state, partial)
    elif machine.presence == "present" and machine.vm is not None and machine.vm.state != "stopping":
        partial.actions.append(PowerVM("no server may run while one resets etcd", machine.name, "off"))


def _describe(machine: MachineState) -> str:
    vm = machine.vm
    if vm is None or vm.presence == "unknown":
        return (vm.because if vm else "") or "its state is not known"
    return vm.state or "running"


def name_source(state: ClusterState) -> str:
    """Where the data come from, for sentences."""
    recorded, member = state.recorded.operations.restore, find_member(state)
    if recorded.file:
        return f"snapshot {recorded.file}"
    return f"the data of Machine {member.name}" if member is not None else "the data of one member"
