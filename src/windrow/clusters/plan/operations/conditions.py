"""Conditions about what a user has asked for once: how far it is, and why it failed."""

from __future__ import annotations

from windrow.clusters.api.operations.snapshot import MAX_FILES, MAX_RECORDED
from windrow.clusters.plan.operations.certificates import certificates_condition, describe_end
from windrow.clusters.plan.operations.in_place import name_source
from windrow.clusters.state import ClusterState
from windrow.kubernetes.conditions import Condition, find_condition

SNAPSHOT_CREATED, SNAPSHOT_RESTORED = "SnapshotCreated", "SnapshotRestored"
KEYS_ROTATED, CERTIFICATES_RENEWED = "EncryptionKeysRotated", "CertificatesRenewed"
TOKEN_ROTATED = "ServerTokenRotated"
SNAPSHOTS_RECORDED = "SnapshotsRecorded"


def operation_conditions(state: ClusterState) -> list[Condition]:
    """One for each operation that was ever begun."""
    recorded, found = state.recorded.operations, []
    if recorded.snapshot.phase:
        name = f"etcdSnapshotCreate of generation {recorded.snapshot.generation}"
        found.append(_condition(SNAPSHOT_CREATED, recorded.snapshot.phase, name, recorded.snapshot.message))
    if recorded.restore.phase:
        name = f"etcdSnapshotRestore of generation {recorded.restore.generation}"
        about = recorded.restore.message or name_source(state)
        if recorded.restore.refused:
            refused = f"generation {recorded.restore.generation} was refused ({recorded.restore.refused})"
            name, about = "etcdSnapshotRestore begun before", f"{about}; {refused}"
        found.append(_condition(SNAPSHOT_RESTORED, recorded.restore.phase, name, about))
    if recorded.rotation.phase:
        name = f"rotateEncryptionKeys of generation {recorded.rotation.generation}"
        found.append(_condition(KEYS_ROTATED, recorded.rotation.phase, name, recorded.rotation.message))
    if recorded.renewal.id:
        name = f"rotateCertificates of generation {recorded.renewal.wanted}"
        found.append(_condition(CERTIFICATES_RENEWED, "Restart", name, ""))
    elif recorded.renewal.generation:
        name = f"rotateCertificates of generation {recorded.renewal.generation}"
        found.append(
            _condition(CERTIFICATES_RENEWED, "Finished", name, f"{name}: {describe_end(recorded.renewal)}")
        )
    if valid := certificates_condition(state):
        found.append(valid)
    if recorded.token.phase:
        name = f"rotateToken of generation {recorded.token.generation}"
        found.append(_condition(TOKEN_ROTATED, recorded.token.phase, name, recorded.token.message))
    found += _list_too_many(state)
    return found


def _list_too_many(state: ClusterState) -> list[Condition]:
    """That not all etcd snapshots of the guest are recorded. As it was said last, while the guest does not answer."""
    files = state.snapshot_files
    if files is None:
        before = find_condition(state.recorded.raw.get("conditions"), SNAPSHOTS_RECORDED)
        return [Condition(SNAPSHOTS_RECORDED, before.status, before.reason, before.message)] if before else []
    if len(files) <= MAX_RECORDED:
        return []
    count = (
        f"{MAX_FILES} etcd snapshots or more" if len(files) >= MAX_FILES else f"{len(files)} etcd snapshots"
    )
    message = (
        f"the guest lists {count}, and the newest {MAX_RECORDED} are recorded as ETCDSnapshots; delete some of its ETCDSnapshotFiles "
        "or their files, or lower etcd.snapshotRetention"
    )
    return [Condition(SNAPSHOTS_RECORDED, "False", "TooMany", message)]


def _condition(type: str, phase: str, name: str, message: str) -> Condition:
    if phase in ("Finished", "Done"):
        return Condition(type, "True", phase, message or f"{name} is done")
    if phase == "Failed":
        return Condition(type, "False", "Failed", f"{name} failed: {message}")
    return Condition(type, "Unknown", phase, f"{name} is at phase {phase}; {message}".removesuffix("; "))
