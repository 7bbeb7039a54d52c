"""Rotation of the keys with which Secrets are encrypted in etcd: `rotateEncryptionKeys`; and renewal of certificates.

The phases are Rancher's (reference/10-day2 §2.4), as far as releases that rotate in one step have them:

| Phase | What is done |
|---|---|
| Prepare | the leader says that Secrets are encrypted, with one key by all servers; an etcd snapshot is made |
| Rotate | the leader makes a new key, and encrypts every Secret with it |
| PostRotateRestart | the services of the servers are restarted, one turn after the other, and read the new key |
| Done, Failed | until the generation is raised |

While the leader rotates no machine has its turn: a server that ends meanwhile leaves the keys as they were. That a rotation is
not asked for twice follows from its key: once the active one is another than was recorded before, it has been made.

`rotateCertificates` restarts the service of every machine, which renews those certificates that are near their end. It and a
rotation of keys never overlap.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations import restore
from windrow.clusters.plan.operations.actions import (
    BeginKeyRotation,
    BeginRenewal,
    FailKeyRotation,
    FinishKeyRotation,
    FinishRenewal,
    RotateKeys,
    SaveRotationSnapshot,
)
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.formats.duration import human_duration
from windrow.core.formats.version import NotVersion, Version

FIELD = "spec.rkeConfig.rotateEncryptionKeys"
OLDEST = "v1.30.1"
# The stages between which a rotation may begin, and after which it is over.
FINISHED = "reencrypt_finished"
BETWEEN = ("start", FINISHED)
RETRY = timedelta(seconds=15)
TIMEOUT = timedelta(minutes=30)
RENEWED = (
    "every service was restarted, which renews certificates within 120 days of their end (90 before v1.33.1, v1.32.5, v1.31.9 and "
    "v1.30.13); others stay as they are, and no new keys were made"
)


def holds_turns(state: ClusterState) -> bool:
    """Whether no turn may begin: keys are about to be rotated, or being rotated."""
    return state.recorded.operations.rotation.phase in ("Prepare", "Rotate")


def find_restart_order(state: ClusterState) -> str:
    """The order by which servers restart now, "" while none is to."""
    recorded = state.recorded.operations
    return recorded.rotation.id if recorded.rotation.phase == "PostRotateRestart" else recorded.renewal.id


def describe_restart(state: ClusterState) -> str:
    """Why machines restart."""
    return (
        "certificates are renewed" if state.recorded.operations.renewal.id else "encryption keys were rotated"
    )


def list_not_restarted(state: ClusterState) -> list[MachineState]:
    """The machines that have yet to restart by the order: servers, and all for their certificates. Those that were made since have
    nothing old."""
    order, recorded = find_restart_order(state), state.recorded.operations
    since = recorded.renewal.since if recorded.renewal.id else recorded.rotation.since
    return [
        one
        for one in state.active
        if order
        and (one.record.is_server or recorded.renewal.id)
        and one.record.was_ready
        and one.record.restarted != order
        and (since is None or one.record.created <= since)
    ]


def plan(state: ClusterState) -> PartialPlan:
    """The next step of the rotation, if there is one."""
    partial, recorded = PartialPlan(), state.recorded.operations.rotation
    if not state.recorded.initialized or restore.is_under_way(state):
        return partial
    if state.recorded.operations.renewal.id:
        _await_renewal(state, partial)
        return partial
    match recorded.phase:
        case "Prepare":
            _save_snapshot(state, partial)
        case "Rotate":
            _rotate(state, partial)
        case "PostRotateRestart":
            _await_restarts(state, partial)
        case _ if state.cluster.operations.rotate_keys > recorded.generation:
            _begin(state, partial)
        case _ if state.cluster.operations.rotate_certificates > state.recorded.operations.renewal.generation:
            _begin_renewal(state, partial)
        case _:
            pass
    return partial


def _begin(state: ClusterState, partial: PartialPlan) -> None:
    generation = state.cluster.operations.rotate_keys
    why = f"rotateEncryptionKeys.generation is {generation}"
    old = [one for one in state.active if one.record.is_control_plane and not _rotates(one.record.version)]
    if old:
        partial.actions.append(
            FailKeyRotation(
                f"Machine {old[0].name} runs {old[0].record.version}, and releases before {OLDEST} do not rotate keys in one step; "
                f"nothing was touched; update the cluster, then raise {FIELD}.generation",
                generation,
            )
        )
        return
    leader, turns = _find_leader(state), [one.name for one in state.active if one.record.update is not None]
    if turns or not state.recorded.provisioned:
        what = f"the turn of Machine {turns[0]}" if turns else "all machines to join"
        partial.wait(f"{what} to end", "encryption keys are rotated")
    elif leader is None:
        partial.wait("a server to be Ready, and the guest API to answer", "encryption keys are rotated")
    elif state.cluster.paused:
        partial.wait("spec.paused to be unset", "encryption keys are rotated")
    else:
        partial.actions.append(BeginKeyRotation(why, generation, leader.name))


def _begin_renewal(state: ClusterState, partial: PartialPlan) -> None:
    generation = state.cluster.operations.rotate_certificates
    if state.cluster.paused or not state.recorded.provisioned:
        what = "spec.paused to be unset" if state.cluster.paused else "all machines to join"
        partial.wait(what, "every machine restarts its service")
        return
    partial.actions.append(BeginRenewal(f"rotateCertificates.generation is {generation}", generation))


def _await_renewal(state: ClusterState, partial: PartialPlan) -> None:
    left = list_not_restarted(state)
    if left:
        partial.wait(f"{len(left)} machines to restart ({_name(left)})", "what was near its end is renewed")
        return
    partial.actions.append(FinishRenewal(RENEWED, state.recorded.operations.renewal.wanted))


def _name(machines: list[MachineState]) -> str:
    more = f" and {len(machines) - 3} more" if len(machines) > 3 else ""
    return ", ".join(one.name for one in machines[:3]) + more


def _rotates(version: str) -> bool:
    try:
        return Version.parse(version) >= Version.parse(OLDEST)
    except NotVersion:
        return False


def _find_leader(state: ClusterState) -> MachineState | None:
    servers = [one for one in state.active if one.record.is_control_plane and one.is_ready and one.address]
    return (
        min(servers, key=lambda one: (one.record.created, one.name)) if _answers(state) and servers else None
    )


def _answers(state: ClusterState) -> bool:
    return state.guest.is_reachable and not state.guest.interruption


def _save_snapshot(state: ClusterState, partial: PartialPlan) -> None:
    recorded = state.recorded.operations.rotation
    members = [one for one in state.etcd_members if state.is_healthy_etcd_member(one) and one.address]
    if not members or not _answers(state):
        partial.wait("an etcd member that answers", "it makes a snapshot, before encryption keys are rotated")
        return
    why = "Secrets cannot be read without their key"
    partial.actions.append(SaveRotationSnapshot(why, members[0].name, f"rotate-keys-{recorded.id}"))


def _rotate(state: ClusterState, partial: PartialPlan) -> None:
    recorded = state.recorded.operations.rotation
    until = (recorded.since or state.now) + TIMEOUT
    leader = state.machines_by_name.get(recorded.leader)
    is_there = leader is not None and leader.is_ready and leader.address and _answers(state)
    # After an absence of the manager it is asked once more: it may have finished long ago.
    was_asked = recorded.retry_at is not None and recorded.retry_at >= until
    if leader is None or (state.now >= until and (was_asked or not is_there)):
        what = "is gone" if leader is None else f"did not finish within {human_duration(TIMEOUT)}"
        message = (
            f"Machine {recorded.leader}, which rotates the keys, {what}{f' ({recorded.message})' if recorded.message else ''}; "
            f"the snapshot before is {recorded.snapshot}; see the log of its service, then raise {FIELD}.generation"
        )
        partial.actions.append(FailKeyRotation(message, recorded.generation))
    elif not is_there:
        partial.wait(f"Machine {leader.name} to be Ready", "it rotates the encryption keys", until=until)
    elif recorded.retry_at is not None and state.now < recorded.retry_at:
        what = f"Machine {leader.name} to encrypt every Secret with the new key ({recorded.message})"
        partial.wait(what, "the servers restart, one after the other", until=recorded.retry_at)
    else:
        partial.actions.append(RotateKeys(f"the etcd snapshot before it is {recorded.snapshot}", leader.name))


def _await_restarts(state: ClusterState, partial: PartialPlan) -> None:
    left = list_not_restarted(state)
    if left:
        partial.wait(f"{len(left)} servers to restart ({_name(left)})", "every server uses the new key")
        return
    servers = [one for one in state.active if one.record.is_control_plane and one.node is not None]
    said = {one.node.encryption_hash for one in servers if one.node is not None}
    if len(said) == 1 and "" not in said:
        partial.actions.append(FinishKeyRotation("every server reports the same keys"))
        return
    partial.wait("the Nodes of all servers to report the same encryption keys", "the rotation ends")
