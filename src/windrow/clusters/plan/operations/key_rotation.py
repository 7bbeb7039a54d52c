"""Rotation of the keys with which Secrets are encrypted in etcd: `rotateEncryptionKeys`.

The phases are Rancher's (reference/10-day2 §2.4), as far as releases that rotate in one step have them:

| Phase | What is done |
|---|---|
| Prepare | the leader says that Secrets are encrypted, with one key by all servers; an etcd snapshot is made |
| Rotate | the leader makes a new key, and encrypts every Secret with it |
| PostRotateRestart | the services of the servers are restarted, one turn after the other, and read the new key |
| Done, Failed | until the generation is raised |

While the leader rotates no machine has its turn: a server that ends meanwhile leaves the keys as they were. That a rotation is
not asked for twice follows from its key: once the active one is another than was recorded before, it has been made.
"""

from __future__ import annotations

from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations import restarts
from windrow.clusters.plan.operations.actions import (
    BeginKeyRotation,
    FailKeyRotation,
    FinishKeyRotation,
    RotateKeys,
    SaveRotationSnapshot,
)
from windrow.clusters.plan.operations.restarts import TIMEOUT
from windrow.clusters.state import ClusterState
from windrow.core.formats.duration import human_duration
from windrow.core.formats.version import NotVersion, Version

FIELD = "spec.rkeConfig.rotateEncryptionKeys"
OLDEST = "v1.30.1"
# While these are under way.
SNAPSHOT_REQUEST, ROTATION_REQUEST = "etcd snapshot before a rotation", "rotation of encryption keys"
# The stages between which a rotation may begin, and after which it is over.
FINISHED = "reencrypt_finished"
BETWEEN = ("start", FINISHED)


def go_on(state: ClusterState, partial: PartialPlan) -> None:
    """The next step of the rotation under way."""
    match state.recorded.operations.rotation.phase:
        case "Prepare":
            _save_snapshot(state, partial)
        case "Rotate":
            _rotate(state, partial)
        case _:
            _await_restarts(state, partial)


def begin(state: ClusterState, partial: PartialPlan) -> None:
    """Begin what `rotateEncryptionKeys` asks for, or wait."""
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
    leader, missing = restarts.find_leader(state), restarts.why_not_begin(state)
    if missing or leader is None:
        partial.wait(missing, "encryption keys are rotated")
        return
    partial.actions.append(BeginKeyRotation(why, generation, leader.name))


def _rotates(version: str) -> bool:
    try:
        return Version.parse(version) >= Version.parse(OLDEST)
    except NotVersion:
        return False


def _save_snapshot(state: ClusterState, partial: PartialPlan) -> None:
    recorded = state.recorded.operations.rotation
    if SNAPSHOT_REQUEST in state.requests:
        partial.wait("an etcd snapshot to be made", "encryption keys are rotated")
        return
    if recorded.message:
        partial.actions.append(FailKeyRotation(recorded.message, recorded.generation))
        return
    if not recorded.snapshot and recorded.retry_at is not None and state.now < recorded.retry_at:
        what = "an etcd member that answers"
        partial.wait(what, "it makes a snapshot, before encryption keys are rotated", until=recorded.retry_at)
        return
    members = [one for one in state.etcd_members if state.is_healthy_etcd_member(one) and one.address]
    if not members or not restarts.answers(state):
        partial.wait("an etcd member that answers", "it makes a snapshot, before encryption keys are rotated")
        return
    why = "Secrets cannot be read without their key"
    partial.actions.append(SaveRotationSnapshot(why, members[0].name, f"rotate-keys-{recorded.id}"))


def _rotate(state: ClusterState, partial: PartialPlan) -> None:
    recorded = state.recorded.operations.rotation
    match step := restarts.find_leader_step(recorded, state):
        case "gone" | "late":
            said = f" ({recorded.message})" if recorded.message else ""
            what = "is gone" if step == "gone" else f"did not finish within {human_duration(TIMEOUT)}"
            message = (
                f"Machine {recorded.leader}, which rotates the keys, {what}{said}; "
                f"the snapshot before is {recorded.snapshot}; see the log of its service, then raise {FIELD}.generation"
            )
            partial.actions.append(FailKeyRotation(message, recorded.generation))
        case "away":
            until = restarts.find_deadline(recorded, state)
            partial.wait(
                f"Machine {recorded.leader} to be Ready", "it rotates the encryption keys", until=until
            )
        case "asked":
            what = f"Machine {recorded.leader} to encrypt every Secret with the new key ({recorded.message})"
            partial.wait(what, "the servers restart, one after the other", until=recorded.retry_at)
        case "ask" if ROTATION_REQUEST in state.requests:
            what = f"Machine {recorded.leader} to encrypt every Secret with the new key"
            partial.wait(what, "the servers restart, one after the other")
        case "ask":
            why = f"the etcd snapshot before it is {recorded.snapshot}"
            partial.actions.append(RotateKeys(why, recorded.leader))


def _await_restarts(state: ClusterState, partial: PartialPlan) -> None:
    left = restarts.list_not_restarted(state)
    if left:
        partial.wait(
            f"{len(left)} servers to restart ({restarts.name_some(left)})", "every server uses the new key"
        )
        return
    servers = [one for one in state.active if one.record.is_control_plane and one.node is not None]
    said = {one.node.encryption_hash for one in servers if one.node is not None}
    if len(said) == 1 and "" not in said:
        partial.actions.append(FinishKeyRotation("every server reports the same keys"))
        return
    partial.wait("the Nodes of all servers to report the same encryption keys", "the rotation ends")
