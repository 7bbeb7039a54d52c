"""ETCDSnapshot: a snapshot of a guest's etcd, as an object beside its Cluster, where it is found when the guest is lost.

The guest itself has an ETCDSnapshotFile of `k3s.cattle.io` for each (reference/10-day2 §2.3); `SnapshotFile` is its
reading. The fields of the ETCDSnapshot are Rancher's: `snapshotFile` says which file it is, and `snapshotFile.metadata`
carries what `provisioning-cluster-spec` of a ConfigMap of the guest said when it was made: the spec of the Cluster.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from gzip import GzipFile, compress
from io import BytesIO
from typing import Any, Literal

from windrow.clusters.api import names
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT
from windrow.core.clock import format_time
from windrow.core.formats.json import NotJson, dumps, loads
from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
    resource_version_of,
    time_of,
    uid_of,
)
from windrow.kubernetes.resources import ApiResource, ObjectRef

SNAPSHOT_FILE = ApiResource("k3s.cattle.io", "v1", "ETCDSnapshotFile", "etcdsnapshotfiles", namespaced=False)

# Rancher's key of the ConfigMap whose data each snapshot carries.
SPEC_KEY = "provisioning-cluster-spec"
SNAPSHOT_FINALIZER = "windrow.io/etcd-snapshot"
# Of one guest, that are held; and the newest of them, that are recorded as objects. Retention is 5 of each member, so that only a
# user's own numbers come near.
MAX_FILES, MAX_RECORDED = 2000, 500
MAX_METADATA_BYTES = 128 * 1024  # of one file, as its guest lists it
MAX_SPEC_BYTES = 4 * 2**20  # of the Cluster's spec, unpacked
MAX_TEXT = 1024
MAX_NAME = 253
# Rancher's field, by that of an ETCDSnapshotFile. Its CA may be a path on the disk of a server, so it is left out.
S3_FIELDS = {
    "bucket": "bucket",
    "endpoint": "endpoint",
    "region": "region",
    "prefix": "folder",
    "skipSSLVerify": "skipSSLVerify",
}

Openable = Literal["True", "False", "Unknown"]


DEFAULT_ENDPOINT = "s3.amazonaws.com"


def find_other_place(said: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Where the guest says that a file is in S3, where that is not the place of the Cluster's own spec; "" where it is."""
    if not own:
        return f"bucket {said.get('bucket') or '(not said)'}"
    defaults = {"bucket": str(own.get("bucket") or ""), "endpoint": DEFAULT_ENDPOINT, "folder": ""}
    for key, default in defaults.items():
        there, here = (str(one.get(key) or default).strip("/") for one in (said, own))
        if there != here:
            return f"{key} {there or '(none)'}"
    return ""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A snapshot as the guest lists it. `s3` is None for a file on the disk of `node`."""

    name: str  # of the ETCDSnapshotFile
    snapshot: str  # of the snapshot: the name of the file
    node: str
    location: str = ""
    created: datetime | None = None
    size: int = 0
    is_ready: bool = True
    error: str = ""
    token_hash: str = ""  # by which it is known whose token opens it; "" where that was not recorded
    s3: Mapping[str, Any] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)
    left_out: str = ""  # why the metadata is not kept
    is_deleting: bool = False
    resource_version: str = field(default="", compare=False)

    @property
    def metadata_size(self) -> int:
        return sum(len(key) + len(value) for key, value in self.metadata.items())

    def without_metadata(self, why: str) -> SnapshotFile:
        """The file without what it carries; `why` stands in the status of its object."""
        return replace(self, metadata={}, left_out=why)


def read_snapshot_file(raw: Mapping[str, Any]) -> SnapshotFile | None:
    """The reading of an ETCDSnapshotFile; None for what names no snapshot. Texts are cut, and what is too large left out."""
    spec, status = (value if isinstance(value := raw.get(key), dict) else {} for key in ("spec", "status"))
    snapshot = str(spec.get("snapshotName") or "")
    if not snapshot or len(snapshot) > MAX_TEXT:
        return None
    s3, metadata = spec.get("s3"), spec.get("metadata")
    given = {str(key): str(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {}
    hashes = (text for key, text in annotations_of(raw).items() if key.endswith("/snapshot-token-hash"))
    file = SnapshotFile(
        name=name_of(raw),
        snapshot=snapshot,
        node=str(spec.get("nodeName") or "")[:MAX_NAME],
        location=str(spec.get("location") or "")[:MAX_TEXT],
        created=time_of(raw, "status", "creationTime"),
        size=_read_size(status.get("size")),
        is_ready=status.get("readyToUse") is not False,
        error=str(nested(raw, "status", "error", "message", default="") or "")[:MAX_TEXT],
        token_hash=next(hashes, "")[:64],
        s3=_read_place(s3) if isinstance(s3, dict) else None,
        metadata=given,
        is_deleting=is_deleting(raw),
        resource_version=resource_version_of(raw),
    )
    if file.metadata_size > MAX_METADATA_BYTES:
        why = (
            f"metadata of {file.metadata_size} characters is more than the {MAX_METADATA_BYTES} that are kept"
        )
        return file.without_metadata(why)
    return file


def _read_place(s3: Mapping[str, Any]) -> dict[str, Any]:
    """Where a file is in S3; what is of another type than it has to be is left out."""
    types = {ours: bool if ours == "skipSSLVerify" else str for ours in S3_FIELDS.values()}
    said = {ours: s3.get(theirs) for theirs, ours in S3_FIELDS.items()}
    given = {key: value for key, value in said.items() if value and isinstance(value, types[key])}
    return {key: value[:MAX_TEXT] if isinstance(value, str) else value for key, value in given.items()}


def _read_size(value: object) -> int:
    text = str(value or "0")
    return int(text) if text.isdecimal() and len(text) < 19 else 0


@dataclass(frozen=True, slots=True)
class ETCDSnapshot:
    """The reading of an ETCDSnapshot. `digest` is of what it says, so that a change of the file is noticed."""

    namespace: str
    name: str
    uid: str
    cluster: str
    cluster_uid: str
    file: SnapshotFile
    openable: Openable = "Unknown"
    has_spec: bool = False
    metadata: str = field(default="", repr=False)  # of one in S3
    is_deleting: bool = False
    has_finalizer: bool = False
    digest: str = ""
    bare_digest: str = ""  # without what the file carries
    resource_version: str = field(default="", compare=False)

    @property
    def ref(self) -> ObjectRef:
        return ETCD_SNAPSHOT.ref(self.name, self.namespace)

    @property
    def version(self) -> str:
        """The Kubernetes release that it was made with, which a restore of it installs; "" where that is not known."""
        try:
            return str(decode_spec(self.metadata).get("kubernetesVersion") or "")
        except NoClusterSpec:
            return ""

    def __str__(self) -> str:
        return f"ETCDSnapshot {self.namespace}/{self.name}"


def read_snapshot(raw: Raw) -> ETCDSnapshot:
    said, file = nested(raw, "status", default={}), nested(raw, "snapshotFile", default={})
    s3 = file.get("s3")
    openable = said.get("openable")
    return ETCDSnapshot(
        namespace=namespace_of(raw),
        name=name_of(raw),
        uid=uid_of(raw),
        cluster=str(nested(raw, "spec", "clusterName", default="")),
        cluster_uid=annotations_of(raw).get(CLUSTER_UID, ""),
        file=SnapshotFile(
            name=str(nested(raw, "spec", "snapshotFileName", default="")),
            snapshot=str(file.get("name") or ""),
            node=str(file.get("nodeName") or ""),
            location=str(file.get("location") or ""),
            created=time_of(raw, "snapshotFile", "createdAt"),
            size=_read_size(file.get("size")),
            is_ready=file.get("status") != "failed",
            error=str(file.get("message") or ""),
            token_hash=str(file.get("tokenHash") or ""),
            s3=dict(s3) if isinstance(s3, dict) else None,
        ),
        openable=openable if openable in ("True", "False") else "Unknown",
        has_spec=bool(file.get("metadata")),
        metadata=str(file.get("metadata") or "") if isinstance(s3, dict) else "",
        is_deleting=is_deleting(raw),
        has_finalizer=SNAPSHOT_FINALIZER in finalizers_of(raw),
        digest=_digest(raw),
        bare_digest=_digest(_without_metadata(raw)),
        resource_version=resource_version_of(raw),
    )


def object_name(cluster: Cluster, file: SnapshotFile) -> str:
    """The name of the ETCDSnapshot: the same for the same file, and of no other Cluster's. A guest chooses the names of its
    files, and "b-x" of Cluster a would else be "x" of Cluster a-b."""
    digest = hashlib.sha256(f"{cluster.uid}/{file.name}".encode()).hexdigest()[:10]
    return f"{cluster.name}-{file.name}"[: MAX_NAME - 11].rstrip("-.") + f"-{digest}"


def token_hash(password: str) -> str:
    """What the distributions write beside a snapshot: the begin of a digest of the server token's password."""
    return hashlib.sha256(password.encode()).hexdigest()[:12]


def find_openable(file: SnapshotFile, *passwords: str) -> Openable:
    """Whether a server token with one of these passwords opens the snapshot."""
    if not file.token_hash or not any(passwords):
        return "Unknown"
    return "True" if find_password(file.token_hash, passwords) else "False"


def find_password(digest: str, passwords: Iterable[str]) -> str:
    """That of the server token with this digest; "" without one."""
    return next((one for one in passwords if one and token_hash(one) == digest), "")


def render_snapshot(cluster: Cluster, file: SnapshotFile, openable: Openable) -> Raw:
    """The ETCDSnapshot of a file. Its owner is the Cluster: it goes with it, the file does not."""
    status = {"openable": openable, "storage": "s3" if file.s3 is not None else "local"}
    if file.left_out:
        status["metadataLeftOut"] = file.left_out
    said: dict[str, Any] = {
        "name": file.snapshot,
        "nodeName": file.node,
        "location": file.location,
        "createdAt": format_time(file.created) if file.created else None,
        "size": file.size,
        "status": "successful" if file.is_ready else "failed",
        "message": file.error,
        "tokenHash": file.token_hash,
        "s3": dict(file.s3) if file.s3 is not None else None,
        "metadata": b64encode(dumps(dict(file.metadata))).decode() if file.metadata else "",
    }
    return new_object(
        ETCD_SNAPSHOT,
        object_name(cluster, file),
        cluster.namespace,
        labels={names.CLUSTER_NAME: cluster.name},
        annotations={CLUSTER_UID: cluster.uid},
        owners=[owner_reference(CLUSTER, cluster.raw)],
        finalizers=[SNAPSHOT_FINALIZER],
        spec={"clusterName": cluster.name, "snapshotFileName": file.name},
        snapshotFile={key: value for key, value in said.items() if value not in (None, "")},
        status=status,
    )


def _digest(raw: Mapping[str, Any]) -> str:
    said = {key: raw.get(key) for key in ("snapshotFile", "status")}
    return hashlib.sha256(dumps(_sorted(said))).hexdigest()[:16]


def _sorted(value: Any) -> Any:
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def is_as_rendered(snapshot: ETCDSnapshot, raw: Raw) -> bool:
    """Whether the object says what `raw` says, which `render_snapshot` has made; it may carry what the guest does not list any more."""
    return snapshot.digest == _digest(raw) or (
        _has_forgotten_metadata(raw) and snapshot.bare_digest == _digest(raw)
    )


def keep_metadata(raw: Raw, found: Mapping[str, Any]) -> Raw:
    """`raw` with the spec that the object carries as it was recorded, where the guest does not say it: after a restore it lists the
    files in S3 anew, and what they carry is not read from there."""
    kept = nested(found, "snapshotFile", "metadata", default="")
    if not kept or not _has_forgotten_metadata(raw):
        return raw
    return {**raw, "snapshotFile": {**raw["snapshotFile"], "metadata": kept}}


def _has_forgotten_metadata(raw: Mapping[str, Any]) -> bool:
    """Whether it carries nothing, and not because that was too large."""
    left_out = nested(raw, "status", "metadataLeftOut", default="")
    return not left_out and not nested(raw, "snapshotFile", "metadata", default="")


def _without_metadata(raw: Mapping[str, Any]) -> dict[str, Any]:
    said = nested(raw, "snapshotFile", default={})
    return {**raw, "snapshotFile": {key: value for key, value in said.items() if key != "metadata"}}


# -- the spec of the Cluster in a snapshot -----------------------------------------------------------------------


def metadata_name(runtime: str) -> str:
    """The ConfigMap in kube-system whose data each snapshot carries."""
    return f"{runtime}-etcd-snapshot-extra-metadata"


# One-shot operations are no part of what a restore brings back.
ONE_SHOT = (
    "etcdSnapshotCreate",
    "etcdSnapshotRestore",
    "rotateCertificates",
    "rotateEncryptionKeys",
    "rotateToken",
)


def without_operations(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a Cluster without the operations that are carried out once."""
    rke = spec.get("rkeConfig")
    if not isinstance(rke, dict):
        return dict(spec)
    return {**spec, "rkeConfig": {key: value for key, value in rke.items() if key not in ONE_SHOT}}


def encode_spec(spec: Mapping[str, Any]) -> str:
    """The spec of a Cluster as Rancher keeps it: JSON, compressed, in base64. The same spec gives the same text."""
    return b64encode(compress(dumps(_sorted(spec)), mtime=0)).decode()


class NoClusterSpec(ValueError):
    """A snapshot does not carry the spec of a Cluster, or none that can be read."""


def decode_spec(metadata: str) -> dict[str, Any]:
    """The spec in `snapshotFile.metadata`. Raises NoClusterSpec."""
    if not metadata:
        raise NoClusterSpec("it carries no spec of a Cluster")
    try:
        packed = loads(b64decode(metadata, validate=True))[SPEC_KEY]
        with GzipFile(fileobj=BytesIO(b64decode(packed, validate=True))) as file:
            text = file.read(MAX_SPEC_BYTES + 1)
        spec = loads(text) if len(text) <= MAX_SPEC_BYTES else None
    except (ValueError, KeyError, TypeError, OSError, EOFError, NotJson) as error:
        raise NoClusterSpec(f"the spec of a Cluster in it cannot be read: {type(error).__name__}") from error
    if not isinstance(spec, dict):
        raise NoClusterSpec("the spec of a Cluster in it cannot be read: it is too large, or no mapping")
    return spec


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Of a spec as a snapshot carries it: by it the manager knows again what it has written. Nothing is left out of it."""
    return hashlib.sha256(dumps(_sorted(spec))).hexdigest()[:32]
