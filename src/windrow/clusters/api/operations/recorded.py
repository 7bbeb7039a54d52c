"""One-shot operations: what a user asks for once by raising a `generation`, and how far each has got.

The fields of spec and status are Rancher's (reference/10-day2 §2.4). A generation that was carried out is in the status; only
a higher one is carried out. Rancher acts on any other, so there an older manifest that is applied again restores again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from windrow.clusters.api.fields import Fields
from windrow.clusters.api.operations.rotations import (
    CERTIFICATE_SERVICES,
    MAX_GENERATION,
    RecordedKeyRotation,
    RecordedRenewal,
    RecordedTokenRotation,
    read_key_rotation,
    read_mapping,
    read_number,
    read_renewal,
    read_token_rotation,
)
from windrow.clusters.api.operations.source import (
    FROM,
    RecordedSource,
    RestoreSource,
    read_recorded_source,
    read_source,
)
from windrow.core.formats.bounds import abbreviate
from windrow.kubernetes.objects import is_dns_subdomain, nested, time_of

MAX_NODES = 50  # of one operation, as they are read back
MAX_SPECS = 200  # digests, of the newest specs
MAX_FAILURES = 100
MAX_NAMED = 5  # of what is wrong in one field
MEMBER = "clusterResetMember"  # Rancher has no such field

SnapshotPhase = Literal["", "Started", "Finished", "Failed"]


RestorePhase = Literal[
    "",
    "Started",
    "Shutdown",
    "Restore",
    "PostRestorePodCleanup",
    "InitialRestartCluster",
    "PostRestoreNodeCleanup",
    "RestartCluster",
    "Finished",
    "Failed",
]
RestoredConfig = Literal["none", "kubernetesVersion", "all"]


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """`etcdSnapshotRestore`: the ETCDSnapshot, and what of the spec that it carries is written to the Cluster. With a `member`
    and no name: the Machine whose own data the cluster goes on with, after etcd has lost its quorum. With a `source`, `name` is
    that of a file in S3, with which a new Cluster begins."""

    name: str
    generation: int
    config: RestoredConfig = "none"
    member: str = ""
    source: RestoreSource | None = None


@dataclass(frozen=True, slots=True)
class Operations:
    """What is asked for; a generation of 0 asks for nothing."""

    snapshot_create: int = 0
    restore: RestoreRequest | None = None
    rotate_keys: int = 0
    rotate_certificates: int = 0
    certificate_services: tuple[str, ...] = ()  # whose certificates are made anew; without one, those of all
    rotate_token: int = 0


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """How far the snapshot of one etcd node is: it was tried so often, then `snapshot` was made, or `message` says why not."""

    machine: str
    tries: int = 0
    snapshot: str = ""
    message: str = ""
    retry_at: datetime | None = None
    is_final: bool = False  # it is not tried again


@dataclass(frozen=True, slots=True)
class RecordedSnapshot:
    """`status.etcdSnapshotCreate*`: `name` begins the names of the snapshots of this generation, of no others."""

    generation: int = 0
    phase: SnapshotPhase = ""
    name: str = ""
    nodes: tuple[NodeSnapshot, ...] = ()
    message: str = ""  # why it failed


@dataclass(frozen=True, slots=True)
class RecordedRestore:
    """`status.etcdSnapshotRestore*`: `file` in `s3` is restored, after the machines with the uids in `replaced` are gone.

    In place, by the Machine with the uid in `member`, it is the file at `path` of its disk; without one etcd goes on there with
    the data that it has. Those in `replaced` are stopped before, and deleted afterwards.
    """

    generation: int = 0
    phase: RestorePhase = ""
    name: str = ""
    config: RestoredConfig = "none"
    id: str = ""
    file: str = ""
    s3: Mapping[str, Any] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    member: str = ""
    path: str = ""
    message: str = ""
    refused: str = ""  # why this generation was not begun, and the one before goes on
    since: datetime | None = None  # the phase


@dataclass(frozen=True, slots=True)
class SnapshotFailure:
    """What was refused of one object, and when it is tried again."""

    message: str = ""
    tries: int = 0
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RecordedOperations:
    """What is recorded in the status of the Cluster."""

    snapshot: RecordedSnapshot = field(default_factory=RecordedSnapshot)
    restore: RecordedRestore = field(default_factory=RecordedRestore)
    source: RecordedSource | None = None  # of a Cluster that began with the snapshot of another
    rotation: RecordedKeyRotation = field(default_factory=RecordedKeyRotation)
    renewal: RecordedRenewal = field(default_factory=RecordedRenewal)
    token: RecordedTokenRotation = field(default_factory=RecordedTokenRotation)
    s3_digest: str = ""  # of what the guest was told of S3
    spec_digest: str = ""  # of the spec that snapshots carry now
    specs: tuple[str, ...] = ()  # digests of all that the manager has given a guest to carry, the newest last
    failures: Mapping[str, SnapshotFailure] = field(default_factory=dict)  # by what could not be written

    @property
    def rotation_under_way(self) -> str:
        """The rotation for which servers restart now or soon, as a sentence; "" for none."""
        if self.token.is_under_way:
            return "the server token is rotated"
        if self.rotation.is_under_way:
            return "encryption keys are rotated"
        return "certificates are renewed" if self.renewal.id else ""


def read_operations(rke: Fields, recorded: RecordedOperations) -> Operations:
    """What `rkeConfig` asks for. A lower generation than the one carried out is a warning, and asks for nothing."""
    certificates, services = _read_certificates(rke, recorded.renewal.generation)
    return Operations(
        snapshot_create=_read_generation(rke, "etcdSnapshotCreate", recorded.snapshot.generation),
        restore=_read_restore(rke, recorded.restore.generation),
        rotate_keys=_read_generation(rke, "rotateEncryptionKeys", recorded.rotation.generation),
        rotate_certificates=certificates,
        certificate_services=services,
        rotate_token=_read_generation(rke, "rotateToken", recorded.token.generation),
    )


def _read_restore(rke: Fields, done: int) -> RestoreRequest | None:
    fields = rke.child("etcdSnapshotRestore")
    generation = _read_generation(rke, "etcdSnapshotRestore", done)
    if fields.raw.get(FROM) is not None:
        return _read_copy(fields, generation, done)
    name, config = fields.text("name"), fields.short_text("restoreRKEConfig") or "none"
    member = fields.text(MEMBER)
    if not generation or (not (name or member) and generation <= done):
        return None
    if member:
        return _read_reset(fields, RestoreRequest(name, generation, member=member))
    if not is_dns_subdomain(name):
        hint = "name an ETCDSnapshot that windrow snapshot list shows"
        fields.warn(
            "name", f"is {abbreviate(name)}, which no ETCDSnapshot may be called: nothing is done", hint
        )
        return None
    for known in get_args(RestoredConfig):
        if config == known:
            return RestoreRequest(name, generation, known)
    hint = f"write {', '.join(get_args(RestoredConfig))}"
    fields.warn("restoreRKEConfig", f"is {abbreviate(config)}: nothing is done", hint)
    return None


def _read_copy(fields: Fields, generation: int, done: int) -> RestoreRequest | None:
    """What was carried out, or refused, is not checked again."""
    if 0 < generation <= done:
        return RestoreRequest(str(fields.raw.get("name")), generation, source=RestoreSource("", ""))
    source = read_source(fields)
    if not generation:
        fields.refuse("generation", "is not set beside from", "write generation: 1")
    if fields.text(MEMBER):
        fields.refuse(MEMBER, "is there beside from", "remove it: the snapshot is restored by a new server")
    if source is None or not generation:
        return None
    return RestoreRequest(fields.text("name"), generation, source=source)


def _read_certificates(rke: Fields, done: int) -> tuple[int, tuple[str, ...]]:
    """The generation, and the services that are named. Where none of them has certificates, nothing is asked for."""
    fields = rke.child("rotateCertificates")
    generation, named = _read_generation(rke, "rotateCertificates", done), fields.texts("services")
    known = tuple(dict.fromkeys(one for one in named if one in CERTIFICATE_SERVICES))
    for one in [one for one in dict.fromkeys(named) if one not in CERTIFICATE_SERVICES][:MAX_NAMED]:
        fault = f"names {abbreviate(one)}, which has no certificates: it is left out"
        fields.warn("services", fault, f"name some of {', '.join(CERTIFICATE_SERVICES)}")
    return (generation if known or not named else min(generation, done)), known


def _read_reset(fields: Fields, request: RestoreRequest) -> RestoreRequest | None:
    if request.name:
        hint = "write one of them: a snapshot is restored, or the cluster goes on with the data of a member"
        fields.warn(MEMBER, "is there beside name: nothing is done", hint)
        return None
    if not is_dns_subdomain(request.member):
        hint = "name a Machine of the Cluster that has etcd: kubectl get machines"
        fault = f"is {abbreviate(request.member)}, which no Machine may be called: nothing is done"
        fields.warn(MEMBER, fault, hint)
        return None
    return request


def _read_generation(rke: Fields, key: str, done: int) -> int:
    generation = rke.child(key).count("generation", 0, MAX_GENERATION)
    if 0 < generation < done:
        fault = f"is {generation}, and {done} was carried out before: nothing is done"
        rke.child(key).warn("generation", fault, f"write {done + 1} to have it done once more")
        return done
    return generation


def read_recorded_operations(status: Mapping[str, Any]) -> RecordedOperations:
    """What is recorded; a status that someone else wrote reads as one that has nothing recorded."""
    run = nested(status, "etcdSnapshotCreateRun", default={}) or {}
    phase = status.get("etcdSnapshotCreatePhase")
    nodes = run.get("nodes") if isinstance(run, dict) else None
    specs = status.get("etcdSnapshotSpecs")
    return RecordedOperations(
        snapshot=RecordedSnapshot(
            generation=read_number(nested(status, "etcdSnapshotCreate", "generation")),
            phase=phase if phase in ("Started", "Finished", "Failed") else "",
            name=str(run.get("name") or "") if isinstance(run, dict) else "",
            message=str(run.get("message") or "") if isinstance(run, dict) else "",
            nodes=tuple(
                _read_node(str(name), raw)
                for name, raw in sorted((nodes if isinstance(nodes, dict) else {}).items())[:MAX_NODES]
                if isinstance(raw, dict)
            ),
        ),
        restore=_read_recorded_restore(status),
        source=read_recorded_source(status),
        rotation=read_key_rotation(status),
        renewal=read_renewal(status),
        token=read_token_rotation(status),
        s3_digest=str(nested(status, "etcdSnapshotS3", "digest", default="") or ""),
        spec_digest=str(nested(status, "etcdSnapshotMetadata", "digest", default="") or ""),
        specs=tuple(map(str, specs[-MAX_SPECS:])) if isinstance(specs, list) else (),
        failures={
            str(name): SnapshotFailure(
                str(raw.get("message") or ""), read_number(raw.get("tries")), time_of(raw, "retryAt")
            )
            for name, raw in sorted(read_mapping(status, "etcdSnapshotFailures").items())[:MAX_FAILURES]
            if isinstance(raw, dict)
        },
    )


def _read_recorded_restore(status: Mapping[str, Any]) -> RecordedRestore:
    request, run = read_mapping(status, "etcdSnapshotRestore"), read_mapping(status, "etcdSnapshotRestoreRun")
    phase, config = status.get("etcdSnapshotRestorePhase"), request.get("restoreRKEConfig")
    replaced = run.get("replaced")
    return RecordedRestore(
        generation=read_number(request.get("generation")),
        phase=next((one for one in get_args(RestorePhase) if one == phase), ""),
        name=str(request.get("name") or ""),
        config=next((one for one in get_args(RestoredConfig) if one == config), "none"),
        id=str(run.get("id") or ""),
        file=str(run.get("file") or ""),
        s3=read_mapping(run, "s3"),
        replaced=tuple(map(str, replaced)) if isinstance(replaced, list) else (),
        member=str(run.get("member") or ""),
        path=str(run.get("path") or ""),
        message=str(run.get("message") or ""),
        refused=str(run.get("refused") or ""),
        since=time_of(run, "since"),
    )


def _read_node(machine: str, raw: Mapping[str, Any]) -> NodeSnapshot:
    return NodeSnapshot(
        machine,
        tries=read_number(raw.get("tries")),
        snapshot=str(raw.get("snapshot") or ""),
        message=str(raw.get("message") or ""),
        retry_at=time_of(raw, "retryAt"),
        is_final=raw.get("final") is True,
    )
