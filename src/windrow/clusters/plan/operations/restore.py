"""Restore of a cluster from a snapshot of its etcd in S3, by a new first server; from one on a disk see `in_place`.

The phases are Rancher's (reference/10-day2 §2.4), and what each does here:

| Phase | What is done |
|---|---|
| Started | the snapshot was found fit; the spec that it carries is written, where that was asked for |
| Shutdown | every server is deleted with its VM, without drain and without etcd; so are workers that could not find the new ones |
| Restore | the cluster counts as not started: a first server is elected, whose cloud-init restores etcd before its service starts |
| PostRestorePodCleanup | the API answers; pods of Nodes that are gone go with these |
| InitialRestartCluster | the first server becomes Ready |
| PostRestoreNodeCleanup | Nodes of the snapshot that no Machine is are deleted |
| RestartCluster | the other machines join, as in any cluster |
| Finished, Failed | until the generation is raised |

Nothing is touched before the snapshot was read and found fit. From then on each step is recorded before it is done, and is
found done or undone after a crash: which machines are replaced stands in the status, that they are gone is seen, and the first
server records on its disk what it has restored. Nodes without a Machine are deleted where they were ours: one that joined by
hand has no label of a Machine, and is its owner's. Machines that replace others are made with the authorities and the server token of
before, which the snapshot needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from windrow.clusters.api.operations.recorded import RestoreRequest
from windrow.clusters.api.operations.snapshot import (
    ONE_SHOT,
    ETCDSnapshot,
    NoClusterSpec,
    decode_spec,
    find_password,
    read_snapshot,
    spec_digest,
    token_hash,
)
from windrow.clusters.change.carried_spec import with_credentials
from windrow.clusters.plan.actions import DeleteMachine, PartialPlan
from windrow.clusters.plan.deletion import plan_machine_end
from windrow.clusters.plan.endpoint import find_stable_join_url
from windrow.clusters.plan.operations import in_place, new_cluster
from windrow.clusters.plan.operations.actions import (
    AdvanceRestore,
    BeginRestore,
    DeleteStaleNodes,
    FinishRestore,
    RestoreSpec,
    StartRestore,
)
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.formats.version import NotVersion, Version
from windrow.core.text import join_some
from windrow.kubernetes.objects import nested
from windrow.machines.port import Problem

FIELD = "spec.rkeConfig.etcdSnapshotRestore"
# For machines that were away while etcd was restored; then remediation looks after them again.
REJOIN = timedelta(minutes=10)
MAX_NAMED = 3
NOT_WRITTEN = "the manager has no record that it wrote the spec that it carries, so that the guest may have"
NOT_WRITTEN_HINT = (
    "set restoreRKEConfig to none or kubernetesVersion, and apply your own manifest of the Cluster"
)


def is_under_way(state: ClusterState) -> bool:
    return state.recorded.operations.restore.phase not in ("", "Finished", "Failed")


def is_exclusive(state: ClusterState) -> bool:
    """Whether nothing else is done for the cluster: from the beginning until its servers are gone."""
    recorded = state.recorded.operations.restore
    alone = ("Started", "Shutdown", *(("Restore", "PostRestorePodCleanup") if recorded.member else ()))
    return _must_begin(state) or recorded.phase in alone or new_cluster.is_exclusive(state)


def holds_remediation(state: ClusterState) -> bool:
    """Whether no machine is replaced because it is not Ready: its kubelet has yet to find the restored cluster."""
    return is_under_way(state) and state.recorded.initialized


def _must_begin(state: ClusterState) -> bool:
    """A higher generation than the one carried out; also while that is under way, since it may never end."""
    request, recorded = state.cluster.operations.restore, state.recorded.operations.restore
    begins = state.recorded.has_started or new_cluster.is_requested(state)
    return request is not None and request.generation > recorded.generation and begins


def plan(state: ClusterState) -> PartialPlan:
    """The next step of the restore, if there is one."""
    partial, request = PartialPlan(), state.cluster.operations.restore
    if _must_begin(state) and request is not None and in_place.awaits_guest(request, state):
        what = f"the guest API, or its silence ({in_place.describe_unknown(state)})"
        partial.wait(what, f"Machine {request.member} resets etcd, unless the API answers")
        return partial
    if _must_begin(state) and in_place.awaits_first_answer(state):
        what = f"the guest API to be asked ({in_place.describe_unknown(state)})"
        partial.wait(what, "the restore begins, unless the cluster was restored so before")
        return partial
    if _must_begin(state) and request is not None:
        why = f"etcdSnapshotRestore.generation is {request.generation}"
        partial.actions.append(BeginRestore(why, request, list_replaced(state)))
        return partial
    is_in_place = bool(state.recorded.operations.restore.member)
    match state.recorded.operations.restore.phase:
        case "Failed" if new_cluster.is_exclusive(state):
            new_cluster.plan_hold(state, partial)
        case "PostRestorePodCleanup" if new_cluster.is_exclusive(state):
            new_cluster.plan_separation(state, partial)
        case "Shutdown" if is_in_place:
            in_place.plan_shutdown(state, partial)
        case "Restore" if is_in_place:
            in_place.plan_reset(state, partial)
        case "PostRestorePodCleanup" if is_in_place:
            in_place.plan_replacement(state, partial)
        case "Started":
            partial.actions.append(RestoreSpec("what the snapshot carries of it was asked for"))
        case "Shutdown":
            _shut_down(state, partial)
        case "Restore":
            _await_api(state, partial)
        case "PostRestorePodCleanup":
            why = "pods of Nodes that are gone are deleted with these"
            partial.actions.append(AdvanceRestore(why, "InitialRestartCluster"))
        case "InitialRestartCluster":
            _await_first_server(state, partial)
        case "PostRestoreNodeCleanup":
            _clean_nodes(state, partial)
        case "RestartCluster":
            _await_machines(state, partial)
        case _:
            pass
    return partial


def list_replaced(state: ClusterState) -> tuple[str, ...]:
    """The uids of the machines that are replaced: all with etcd or the control plane, and those that would not find the new ones."""
    keeps_workers = bool(find_stable_join_url(state))
    gone = (one for one in state.machines if one.record.is_server or not keeps_workers)
    return tuple(sorted(one.record.uid for one in gone))


def _shut_down(state: ClusterState, partial: PartialPlan) -> None:
    recorded = state.recorded.operations.restore
    left = [one for one in state.machines if one.record.uid in recorded.replaced]
    why = f"etcd is restored from snapshot {recorded.file}"
    for machine in left:
        if machine.is_deleting:
            plan_machine_end(machine, state, partial)
        else:
            partial.actions.append(DeleteMachine(why, machine.name))
    if left:
        partial.wait(
            f"{_name(left)} to be deleted before etcd is restored from snapshot {recorded.file}",
            "a new first server restores it",
        )
        return
    source = state.recorded.operations.source
    of = (
        f"it is new, and begins with that of Cluster {source.cluster}"
        if source and not source.separated
        else ""
    )
    why = of or "the machines of before are gone"
    partial.actions.append(StartRestore(f"{why}; snapshot {recorded.file} is next"))


def _await_api(state: ClusterState, partial: PartialPlan) -> None:
    recorded = state.recorded.operations.restore
    if state.recorded.initialized:
        why = f"the API answers with what snapshot {recorded.file} holds"
        partial.actions.append(AdvanceRestore(why, "PostRestorePodCleanup"))
        return
    first = state.init_server
    if first is not None and first.record.was_created:
        partial.wait(
            f"Machine {first.name} to restore etcd from snapshot {recorded.file} (windrow machine console {first.name} shows "
            "how it goes on)",
            "the API answers and the other machines join",
        )


def _await_first_server(state: ClusterState, partial: PartialPlan) -> None:
    first = in_place.find_member(state) or state.init_server
    if first is not None and first.is_ready and state.guest.is_reachable:
        partial.actions.append(AdvanceRestore("the first server is Ready", "PostRestoreNodeCleanup"))
        return
    partial.wait(
        "the first server of the restored cluster to become Ready", "Nodes without a Machine are deleted"
    )


def _clean_nodes(state: ClusterState, partial: PartialPlan) -> None:
    if not state.guest.is_reachable or state.guest.interruption:
        partial.wait("the guest API to answer", "Nodes without a Machine are deleted")
        return
    known = {machine.name for machine in state.machines}
    ours = (node.name for node in state.guest.nodes if node.machine_uid)
    stale = tuple(sorted(name for name in ours if name not in known))
    if stale:
        why = f"no Machine is Node {join_some(stale)}, which the snapshot holds"
        partial.actions.append(DeleteStaleNodes(why, stale))
        return
    partial.actions.append(AdvanceRestore("every Node has a Machine", "RestartCluster"))


def _await_machines(state: ClusterState, partial: PartialPlan) -> None:
    recorded = state.recorded.operations.restore
    missing = [
        pool.name
        for pool in state.cluster.pools
        if sum(state.is_initialized(one) for one in state.of_pool(pool)) < pool.quantity
    ]
    end = recorded.since + REJOIN if recorded.since else state.now
    if not missing:
        partial.actions.append(FinishRestore(in_place.name_source(state), recorded.generation))
    elif state.now >= end:
        late = ", ".join(missing[:MAX_NAMED])
        why = f"{in_place.name_source(state)}; machines of pool {late} are not Ready yet, and are looked after as ever"
        partial.actions.append(FinishRestore(why, recorded.generation))
    else:
        partial.wait(
            f"the machines of pool {missing[0]} to join the restored cluster", "the restore ends", until=end
        )


def _name(machines: list[MachineState]) -> str:
    return join_some([f"Machine {one.name}" for one in machines])


# -- what a snapshot has to be ---------------------------------------------------------------------------------------


def check_snapshot(
    raw: Mapping[str, Any] | None, request: RestoreRequest, state: ClusterState
) -> Problem | None:
    """What keeps the snapshot from being restored; then nothing is touched."""
    where = f"ETCDSnapshot {state.cluster.namespace}/{request.name}"
    if raw is None:
        return _refuse(f"{where} does not exist", "name one that windrow snapshot list shows")
    snapshot = read_snapshot(dict(raw))
    if snapshot.cluster_uid != state.cluster.uid:
        other = snapshot.cluster or "another Cluster"
        return _refuse(f"{where} is of {other}, not of this Cluster", "name a snapshot of this Cluster")
    return (
        new_cluster.check_separated(snapshot.file, where, state)
        or check_file(snapshot, where)
        or _check_place(snapshot, where, state)
        or _check_token(snapshot, where, state)
        or _check_spec(dict(raw), request, where, state)
        or (in_place.check_local(snapshot.file, where, state) if snapshot.file.s3 is None else None)
    )


def check_file(snapshot: ETCDSnapshot, where: str) -> Problem | None:
    file = snapshot.file
    if snapshot.is_deleting:
        return _refuse(f"{where} is being deleted", "name another snapshot")
    if not file.is_ready or file.error:
        return _refuse(
            f"{where} failed when it was made ({file.error or 'no reason given'})", "name another snapshot"
        )
    if not file.size:
        return _refuse(f"{where} is empty", "name another snapshot")
    if in_place.is_cut_off(file):
        return _refuse(
            f"{where} has {file.size} bytes, and its end is missing: it was cut off when it was written",
            "name another snapshot",
        )
    return None


def _check_token(snapshot: ETCDSnapshot, where: str, state: ClusterState) -> Problem | None:
    """A token of before opens it, too: the cluster goes back to that one then."""
    own = token_hash(state.secrets.server_password) if state.secrets else ""
    known = state.secrets.server_passwords if state.secrets else ()
    if not snapshot.file.token_hash or find_password(snapshot.file.token_hash, known):
        return None
    return _refuse(
        f"{where} was made with another server token (digest {snapshot.file.token_hash}, that of the Cluster is {own}), and what "
        "it holds is encrypted with it",
        "put the server token of then into the Secret of the Cluster as server-password, or name another snapshot",
    )


def _check_spec(
    raw: dict[str, Any], request: RestoreRequest, where: str, state: ClusterState
) -> Problem | None:
    """A newer release reads what an older one has written, and no other way round."""
    try:
        spec = decode_spec(str(nested(raw, "snapshotFile", "metadata", default="")))
    except NoClusterSpec as error:
        if request.config == "none":
            return None
        return _refuse(f"{where}: {error}", "set restoreRKEConfig to none, and the spec yourself")
    if request.config == "all" and spec_digest(spec) not in state.recorded.operations.specs:
        return _refuse(f"{where}: {NOT_WRITTEN}", NOT_WRITTEN_HINT)
    then, running = str(spec.get("kubernetesVersion")), state.recorded.version or state.cluster.version
    wanted = then if request.config != "none" else running
    try:
        was, will = Version.parse(then), Version.parse(wanted)
    except NotVersion:
        if request.config == "none":
            return None
        return _refuse(f"{where} names no version that can be installed", "set restoreRKEConfig to none")
    if was.distribution != will.distribution or (was.major, was.minor) > (will.major, will.minor):
        return _refuse(
            f"{where} was made by {then}, and the cluster would be {wanted}, which cannot read it",
            "set restoreRKEConfig to kubernetesVersion, so that the release of then is installed",
        )
    if read_snapshot(raw).file.s3 is None and wanted != running:
        return _refuse(
            f"{where} is on a disk, its server runs {running} and keeps that, and the cluster would be {wanted}",
            "name a snapshot of then that is in S3: new machines restore that with the release of then",
        )
    return None


def _refuse(message: str, hint: str) -> Problem:
    return Problem(message, f"{hint}; nothing was touched, raise {FIELD}.generation to try again", FIELD)


def _check_place(snapshot: ETCDSnapshot, where: str, state: ClusterState) -> Problem | None:
    """It is read where the Cluster says, never where its guest says: with the Cluster's keys, it becomes the cluster."""
    if snapshot.file.s3 is None:
        return None
    own, said = state.cluster.etcd.get("s3") or {}, snapshot.file.s3
    for key in ("bucket", "folder"):
        there, here = (str(one.get(key) or "").strip("/") for one in (said, own))
        if here and there and there != here:
            return _refuse(
                f"{where} is in {key} {there}, and spec.rkeConfig.etcd.s3 names {here}, where it is read",
                f"write {key} {there} there, if that is right",
            )
    return None


def restored_spec(
    raw: Mapping[str, Any], config: str, spec: Mapping[str, Any], known: Sequence[str]
) -> dict[str, Any]:
    """The spec of the Cluster with what the snapshot carries, as far as that was asked for; what snapshots do not carry stays
    as it is. Raises NoClusterSpec, also for a whole spec whose digest is not `known`: a guest can write another."""
    if config == "none":
        return dict(spec)
    then = decode_spec(str(nested(raw, "snapshotFile", "metadata", default="")))
    if config == "all" and spec_digest(then) not in known:
        raise NoClusterSpec(NOT_WRITTEN)
    version = then.get("kubernetesVersion") or spec.get("kubernetesVersion")
    restored = {**spec, "kubernetesVersion": version}
    if config == "all" and isinstance(then.get("rkeConfig"), dict):
        now = spec.get("rkeConfig") or {}
        whole = with_credentials(then["rkeConfig"], now)
        restored["rkeConfig"] = {**whole, **{key: now[key] for key in ONE_SHOT if key in now}}
    return restored
