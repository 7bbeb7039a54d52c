"""The steps of what a user asks for once, as values: snapshots of etcd, and restores. What `plan.actions` says of actions holds for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from windrow.clusters.api.operations.recorded import RestorePhase, RestoreRequest
from windrow.clusters.api.operations.snapshot import ETCDSnapshot, SnapshotFile
from windrow.clusters.plan.actions import OperationAction


@dataclass(frozen=True)
class RecordSnapshots(OperationAction, reason="RecordSnapshots"):
    """Create, change and delete ETCDSnapshots, so that they are what the guest lists."""

    present: tuple[SnapshotFile, ...] = field(repr=False)  # that are not recorded, or recorded otherwise
    gone: tuple[ETCDSnapshot, ...] = field(repr=False)
    forgotten: tuple[str, ...] = ()  # names of failures that are over


@dataclass(frozen=True)
class ReleaseSnapshots(OperationAction, reason="ReleaseSnapshots"):
    """Let ETCDSnapshots of a Cluster that is deleted go with it: their files go with the disks of its machines."""

    snapshots: tuple[ETCDSnapshot, ...] = field(repr=False)


@dataclass(frozen=True)
class KeepSnapshots(
    ReleaseSnapshots,
    reason="KeepSnapshots",
    done="Kept etcd snapshots of {cluster} in S3",
    event="Warning",
    final=True,
):
    """As ReleaseSnapshots, where files are in S3, which are not deleted."""


@dataclass(frozen=True)
class WriteSnapshotMetadata(OperationAction, reason="WriteSnapshotMetadata"):
    """Give the guest the spec of the Cluster, which each snapshot carries from then on."""

    digest: str


@dataclass(frozen=True)
class WriteS3Secret(OperationAction, reason="WriteS3Secret"):
    """Give the guest the Secret from which its servers read where snapshots go in S3, with the keys."""

    digest: str


@dataclass(frozen=True)
class BeginSnapshot(
    OperationAction, reason="BeginSnapshot", done="Began an etcd snapshot of {cluster} on each etcd node"
):
    """Record that a snapshot is going to be made on each of these machines, and how the names of the files begin."""

    generation: int
    name: str
    machines: tuple[str, ...]


@dataclass(frozen=True)
class SaveSnapshot(OperationAction, reason="SaveSnapshot"):
    """Have one etcd member make its snapshot. The try is recorded first; where there was one before, its file is looked for."""

    machine: str
    tries: int
    name: str

    @property
    def subject(self) -> str:
        return self.machine


@dataclass(frozen=True)
class FinishSnapshot(
    OperationAction, reason="SnapshotCreated", done="Created an etcd snapshot of {cluster} on each etcd node"
):
    """Record that the snapshots of this generation are made."""

    generation: int


@dataclass(frozen=True)
class FailSnapshot(
    OperationAction,
    reason="SnapshotFailed",
    done="Failed to create etcd snapshots of {cluster}",
    event="Warning",
):
    """Record that a snapshot of this generation could not be made. It stays so until the generation is raised."""

    generation: int


@dataclass(frozen=True)
class DeleteSnapshot(OperationAction, reason="DeleteSnapshot", done="Deleted {action.snapshot} of {cluster}"):
    """Have a server delete the file of an ETCDSnapshot that is being deleted."""

    snapshot: ETCDSnapshot
    machine: str  # of the server that is asked


@dataclass(frozen=True)
class BeginRestore(OperationAction, reason="BeginRestore"):
    """Read the snapshot, and record that it is going to be restored and which machines are replaced; or why it cannot be."""

    request: RestoreRequest
    replaced: tuple[str, ...]  # uids of Machines


@dataclass(frozen=True)
class RestoreSpec(OperationAction, reason="RestoreSpec"):
    """Write what the snapshot carries of the Cluster's spec, as far as that was asked for."""


@dataclass(frozen=True)
class StartRestore(
    OperationAction,
    reason="RestoreSnapshot",
    done="Restoring {cluster} from its snapshot",
    event="Warning",
    final=True,
):
    """Record that the cluster has not started, so that a first server is made, which restores etcd."""


@dataclass(frozen=True)
class AdvanceRestore(OperationAction, reason="AdvanceRestore"):
    """Record the next phase."""

    phase: RestorePhase


@dataclass(frozen=True)
class SeparateCopy(OperationAction, reason="SeparateCopy"):
    """Take from a guest that began with the snapshot of another Cluster what could act on that one, or record that nothing is left, or
    what that waits for."""

    member: str  # the Node of the first server


@dataclass(frozen=True)
class ReleaseCopy(
    OperationAction, reason="ReleaseCopy", done="Let pods of {cluster} run beside those of the original"
):
    """Look once more, and take off the taint that keeps pods of the copy from its first server."""

    member: str


@dataclass(frozen=True)
class RequestClusterReset(
    OperationAction, reason="ResetCluster", done="Resetting etcd of {cluster} to one member", event="Warning"
):
    """Give a stopped server the user data by which it resets etcd at its next start, and record that it may be started."""

    machine: str


@dataclass(frozen=True)
class EndClusterReset(OperationAction, reason="EndClusterReset"):
    """Give the server user data without the reset again, and record that the other machines may join."""

    machine: str


@dataclass(frozen=True)
class FailRestore(
    OperationAction, reason="RestoreFailed", done="Failed to restore {cluster}", event="Warning"
):
    """Record why the restore cannot go on. It stays so until the generation is raised."""


@dataclass(frozen=True)
class DeleteStaleNodes(
    OperationAction, reason="DeleteStaleNodes", done="Deleted Nodes of {cluster} without a Machine"
):
    """Delete Nodes that a restored snapshot holds and no Machine is, with their passwords."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class FinishRestore(OperationAction, reason="SnapshotRestored", done="Restored {cluster}", final=True):
    """Record that the restore is over."""

    generation: int


@dataclass(frozen=True)
class SaveUpgradeSnapshot(
    OperationAction,
    reason="SaveUpgradeSnapshot",
    done="Asked Machine {action.member} for an etcd snapshot before the upgrade",
    final=True,
):
    """Have one etcd member make a snapshot before the first machine changes to `version`, and record its name; or why there is
    none, and when it is asked for again."""

    member: str
    version: str
    name: str  # with which that of the file begins
    generation: int


@dataclass(frozen=True)
class BeginKeyRotation(
    OperationAction,
    reason="RotateEncryptionKeys",
    done="Began to rotate the encryption keys of {cluster}",
):
    """Record that encryption keys are going to be rotated, and which server is asked; or why they cannot be."""

    generation: int
    leader: str


@dataclass(frozen=True)
class SaveRotationSnapshot(OperationAction, reason="SaveRotationSnapshot"):
    """Have an etcd member make a snapshot before keys are rotated, and record its name."""

    member: str
    name: str  # with which that of the file begins


@dataclass(frozen=True)
class RotateKeys(OperationAction, reason="RotateKeys"):
    """Have the leader rotate its keys, unless it has done so."""

    leader: str


@dataclass(frozen=True)
class FinishKeyRotation(
    OperationAction, reason="EncryptionKeysRotated", done="Rotated the encryption keys of {cluster}"
):
    """Record that the servers use the new key."""


@dataclass(frozen=True)
class FailKeyRotation(
    OperationAction,
    reason="KeyRotationFailed",
    done="Failed to rotate the encryption keys of {cluster}",
    event="Warning",
):
    """Record why keys were not rotated. It stays so until the generation is raised."""

    generation: int


@dataclass(frozen=True)
class BeginRenewal(
    OperationAction,
    reason="RenewCertificates",
    done="Began to restart the machines of {cluster} for their certificates",
):
    """Record that every machine restarts its service, which renews its certificates. With `makes_keys` they get new keys
    before: those of `services`, or all."""

    generation: int
    makes_keys: bool
    services: tuple[str, ...] = ()
    expiry: datetime | None = None  # for which it begins by itself


@dataclass(frozen=True)
class FinishRenewal(
    OperationAction, reason="CertificatesRenewed", done="Restarted the machines of {cluster}"
):
    """Record that every machine has restarted."""

    generation: int


@dataclass(frozen=True)
class WarnOfCertificates(
    OperationAction,
    reason="CertificatesExpire",
    done="Certificates of {cluster} end soon",
    event="Warning",
):
    """Say once that a certificate ends in so many days, or has ended."""

    expiry: datetime
    days: int


@dataclass(frozen=True)
class BeginTokenRotation(
    OperationAction, reason="RotateToken", done="Began to rotate the server token of {cluster}"
):
    """Record that the server token is going to be rotated, and which server is given the new one first."""

    generation: int
    leader: str


@dataclass(frozen=True)
class RecordNextToken(OperationAction, reason="RecordNextToken"):
    """Make the password of the new server token, and write it to the Secret of the cluster, unless there is one."""


@dataclass(frozen=True)
class RotateToken(OperationAction, reason="GiveToken"):
    """Give a server the new token, and make it the present one of the Secret."""

    leader: str


@dataclass(frozen=True)
class FinishTokenRotation(
    OperationAction, reason="TokenRotated", done="Rotated the server token of {cluster}"
):
    """Record that every server has the new token."""


@dataclass(frozen=True)
class FailTokenRotation(
    OperationAction,
    reason="TokenRotationFailed",
    done="Failed to rotate the server token of {cluster}",
    event="Warning",
):
    """Record why the server token was not rotated. It stays so until the generation is raised."""

    generation: int
