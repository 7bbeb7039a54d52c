"""Snapshots of etcd: recorded as objects, made on demand, deleted with their object.

On demand means: the user raises `etcdSnapshotCreate.generation`, and each etcd member makes one, side by side, in up to three
tries (reference/10-day2 §2.4). The phases are Rancher's: Started, then Finished or Failed. Rancher's RestartCluster between
them, in which it lets its agents apply their plans again, has nothing to do here.

What is asked for twice is not done twice: the begin of the file names is recorded before the first request, and before each
further one the member is asked whether it has such a file. A Cluster of which etcd is lost keeps the objects of its snapshots:
only a guest that answers can say that a snapshot is gone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from windrow.bootstrap import LAYOUTS
from windrow.clusters.api.operations.recorded import NodeSnapshot
from windrow.clusters.api.operations.snapshot import (
    MAX_RECORDED,
    ETCDSnapshot,
    SnapshotFile,
    find_openable,
    is_as_rendered,
    object_name,
    render_snapshot,
    spec_digest,
)
from windrow.clusters.api.version_steps import read_version
from windrow.clusters.change.carried_spec import carried_spec
from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations.actions import (
    BeginSnapshot,
    DeleteSnapshot,
    FailSnapshot,
    FinishSnapshot,
    KeepSnapshots,
    RecordSnapshots,
    ReleaseSnapshots,
    SaveSnapshot,
    WriteS3Secret,
    WriteSnapshotMetadata,
)
from windrow.clusters.plan.updates.gates import has_turn
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.text import join_some

MAX_TRIES = 3  # as many as Rancher makes
RETRY_AFTER = (timedelta(seconds=10), timedelta(seconds=60))
DELETION_RETRY = timedelta(seconds=30)
# After a phase of a restore: servers list what is in S3 when they start, and at each snapshot.
RELISTED_WITHIN = timedelta(minutes=30)
MAX_NAMED = 3
MAX_FAILED = 50  # then nothing else is tried than what failed
# Of what a guest may refuse, by the names under which that is recorded; no ETCDSnapshot can be called so.
METADATA = "ConfigMap of the metadata of etcd snapshots"
S3_SECRET = "Secret of S3 of etcd snapshots"


def plan(state: ClusterState) -> PartialPlan:
    """Record what the guest lists, and carry out what is asked for."""
    partial = PartialPlan()
    if not state.recorded.initialized or state.secrets is None:
        return partial
    if state.guest.is_reachable:
        _record(state, partial)
        _write_metadata(state, partial)
        _write_s3_secret(state, partial)
        _delete(state, partial)
    _create(state, partial)
    return partial


def plan_deletion(state: ClusterState) -> PartialPlan:
    """Let the objects go; what stays in S3 is said, since nothing knows of it afterwards."""
    held = tuple(one for one in state.snapshots if one.has_finalizer)
    partial = PartialPlan()
    if not held:
        return partial
    kept = sorted({str((one.file.s3 or {}).get("bucket") or "") for one in held if one.file.s3 is not None})
    count = sum(one.file.s3 is not None for one in held)
    why = "the Cluster is deleted, and the snapshots on its disks with its machines"
    if count:
        why = (
            f"the Cluster is deleted; {count} snapshots stay in bucket {', '.join(kept[:MAX_NAMED])}, which nothing deletes, "
            "and only the server token of the Cluster opens them, which is deleted too"
        )
    partial.actions.append(KeepSnapshots(why, held) if count else ReleaseSnapshots(why, held))
    return partial


# -- the objects -----------------------------------------------------------------------------------------------------


def _record(state: ClusterState, partial: PartialPlan) -> None:
    """Nothing is concluded while the guest does not say what there is, or less than its Cluster needs to be known."""
    if state.snapshot_files is None:
        return
    files = select_recorded(state.snapshot_files)
    known = {one.name: one for one in state.snapshots}
    cluster = state.cluster
    wanted = {object_name(cluster, file): file for file in files}
    differing = {name: file for name, file in wanted.items() if _differs(file, name, state)}
    present = tuple(file for name, file in differing.items() if _may_try(name, state, partial))
    missing = [one for name, one in known.items() if name not in wanted]
    awaited = _list_awaited(missing, state, partial)
    gone = tuple(one for one in missing if one not in awaited)
    kept = {*wanted, *known, METADATA, S3_SECRET}
    forgotten = tuple(name for name in state.recorded.operations.failures if name not in kept)
    if present or gone or forgotten:
        why = "the guest lists its etcd snapshots"
        partial.actions.append(RecordSnapshots(why, present, gone, forgotten))


def _list_awaited(
    missing: list[ETCDSnapshot], state: ClusterState, partial: PartialPlan
) -> list[ETCDSnapshot]:
    """Those in S3 that a restored guest has yet to list again: its etcd is older than their files. An object that went meanwhile
    would come back without the spec that it carries."""
    restore = state.recorded.operations.restore
    if not restore.phase or restore.since is None or state.now >= restore.since + RELISTED_WITHIN:
        return []
    awaited = [one for one in missing if one.file.s3 is not None and not one.is_deleting]
    if awaited:
        what = f"the restored cluster to list {awaited[0]} again"
        partial.wait(what, "else the object goes", until=restore.since + RELISTED_WITHIN)
    return awaited


def _may_try(name: str, state: ClusterState, partial: PartialPlan) -> bool:
    """Whether nothing refused it, or long enough ago; else that is waited for, beside all else."""
    failures = state.recorded.operations.failures
    failure = failures.get(name)
    if failure is None:
        return len(failures) < MAX_FAILED
    if failure.retry_at is None or state.now >= failure.retry_at:
        return True
    partial.wait(
        f"another try of what is to be done about {name} ({failure.message})",
        "it is tried again",
        until=failure.retry_at,
    )
    return False


def select_recorded(files: tuple[SnapshotFile, ...]) -> tuple[SnapshotFile, ...]:
    """The newest files, as many as are recorded."""
    if len(files) <= MAX_RECORDED:
        return files
    dated = sorted(files, key=lambda one: (one.created is not None, one.created, one.name), reverse=True)
    return tuple(dated[:MAX_RECORDED])


def _differs(file: SnapshotFile, name: str, state: ClusterState) -> bool:
    assert state.secrets is not None  # plan() has asked
    found = next((one for one in state.snapshots if one.name == name), None)
    if found is None:
        return not file.is_deleting
    openable = find_openable(file, *state.secrets.server_passwords)
    return not found.is_deleting and not is_as_rendered(found, render_snapshot(state.cluster, file, openable))


def spec_of_snapshots(state: ClusterState) -> dict[str, Any]:
    """What snapshots carry of the spec: with the newest release that a server runs in place of that which is asked for. The snapshot
    before an upgrade is made when another one is asked for already."""
    carried = carried_spec(state.cluster.raw.get("spec") or {})
    servers = [one.record for one in state.machines if one.record.is_server and one.record.was_created]
    running = [state.recorded.version, *(one.version for one in servers)]
    running += [one.update.version for one in servers if one.update is not None]
    known = [version for version in map(read_version, running) if version is not None]
    return {**carried, "kubernetesVersion": str(max(known))} if known else carried


def _write_metadata(state: ClusterState, partial: PartialPlan) -> None:
    digest = spec_digest(spec_of_snapshots(state))
    differs = state.snapshot_files is not None and state.recorded.operations.spec_digest != digest
    if differs and _may_try(METADATA, state, partial):
        partial.actions.append(
            WriteSnapshotMetadata("etcd snapshots carry the spec of their Cluster", digest)
        )


def _write_s3_secret(state: ClusterState, partial: PartialPlan) -> None:
    differs = state.s3_digest not in ("", state.recorded.operations.s3_digest)
    if differs and _may_try(S3_SECRET, state, partial):
        why = "its servers read it at each snapshot, so that keys change without a restart"
        partial.actions.append(WriteS3Secret(why, state.s3_digest))


def _delete(state: ClusterState, partial: PartialPlan) -> None:
    """The files of objects that are being deleted; an object goes when the guest does not list its file any more."""
    if state.snapshot_files is None:
        return
    listed = {object_name(state.cluster, file): file for file in state.snapshot_files}
    for snapshot in state.snapshots:
        file = listed.get(snapshot.name)
        if not snapshot.is_deleting or file is None or not _may_try(snapshot.name, state, partial):
            continue
        server = _find_server(file, state)
        if server is None:
            partial.wait(
                f"Node {file.node} to be Ready (it has the file of {snapshot})",
                "the file is deleted",
                until=state.now + DELETION_RETRY,
            )
            continue
        partial.actions.append(DeleteSnapshot("its object is deleted", snapshot, server.name))


def _find_server(file: SnapshotFile, state: ClusterState) -> MachineState | None:
    """The server that can delete the file: for one in S3 any etcd member, else the one that has it."""
    members = [one for one in list_members(state) if one.is_ready]
    if file.s3 is not None:
        return members[0] if members else None
    return next((one for one in members if one.node_name == file.node), None)


# -- on demand -------------------------------------------------------------------------------------------------------


def list_members(state: ClusterState) -> list[MachineState]:
    """The machines with etcd that are asked for a snapshot; not those that are about to leave."""
    return [one for one in state.active if state.is_etcd_member(one) and one.address]


def snapshot_name(generation: int, state: ClusterState) -> str:
    """How the files of one generation begin. With the time, since a generation may be used again by a user who starts over."""
    return f"on-demand-{generation}-{int(state.now.timestamp())}"


def _create(state: ClusterState, partial: PartialPlan) -> None:
    wanted, recorded = state.cluster.operations.snapshot_create, state.recorded.operations.snapshot
    if wanted > recorded.generation:
        if recorded.phase == "Started":
            return _go_on(state, partial)  # what was begun is finished, and the later one begun then
        members = tuple(one.name for one in list_members(state))
        if not state.guest.is_reachable or not members:
            partial.wait(
                f"the guest API to answer, for the etcd snapshot of generation {wanted}",
                "each etcd member makes a snapshot",
            )
            return None
        why = f"etcdSnapshotCreate.generation is {wanted}"
        partial.actions.append(BeginSnapshot(why, wanted, snapshot_name(wanted, state), members))
        return None
    if recorded.phase == "Started":
        _go_on(state, partial)
    return None


def _go_on(state: ClusterState, partial: PartialPlan) -> None:
    recorded = state.recorded.operations.snapshot
    open_nodes = [node for node in recorded.nodes if not (node.snapshot or node.is_final)]
    for node in open_nodes:
        _save(node, state, partial)
    if open_nodes:
        return
    failed = [node for node in recorded.nodes if not node.snapshot]
    if failed or not recorded.nodes:
        partial.actions.append(FailSnapshot(describe_failed(failed), recorded.generation))
        return
    names = ", ".join(node.snapshot for node in recorded.nodes[:MAX_NAMED])
    partial.actions.append(FinishSnapshot(f"{names}", recorded.generation))


def describe_failed(failed: list[NodeSnapshot]) -> str:
    """Which machines made none, and why; the hint says how it is asked for again."""
    named = join_some([f"Machine {node.machine}: {node.message}" for node in failed], MAX_NAMED, "; ")
    return (
        f"{named}; snapshots of the other members are kept; raise etcdSnapshotCreate.generation to try again"
    )


def request_name(machine: str) -> str:
    """What the request for a snapshot on demand is called while it is under way."""
    return f"etcd snapshot of Machine {machine}"


def _save(node: NodeSnapshot, state: ClusterState, partial: PartialPlan) -> None:
    name = state.recorded.operations.snapshot.name
    if request_name(node.machine) in state.requests:
        partial.wait(f"Machine {node.machine} to make an etcd snapshot", "its name is recorded")
        return
    if (machine := state.machines_by_name.get(node.machine)) is not None and has_turn(machine):
        partial.wait(
            f"the turn of Machine {node.machine} to end (its service or its VM restarts)",
            "it makes an etcd snapshot",
        )
        return
    if node.retry_at is not None and state.now < node.retry_at:
        partial.wait(
            f"Machine {node.machine} to make an etcd snapshot (try {node.tries} of {MAX_TRIES} failed: {node.message})",
            "it is asked again",
            until=node.retry_at,
        )
        return
    why = f"etcdSnapshotCreate.generation is {state.recorded.operations.snapshot.generation}"
    partial.actions.append(SaveSnapshot(why, node.machine, node.tries + 1, name))


def find_runtime(state: ClusterState) -> str:
    """The name of the distribution that the cluster runs, "rke2" or "k3s"."""
    version = state.recorded.version or state.cluster.version
    return next((layout.name for layout in LAYOUTS if f"+{layout.name}" in version), LAYOUTS[0].name)
