"""SnapshotFile: one snapshot on a disk or in a bucket, as servers list it and as its ETCDSnapshotFile says it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from windrow.core.clock import format_time
from windrow.core.formats.json import dumps
from windrow.core.text import encode_base64
from windrow.emulator.definitions import TEXTS, TRUTH, definition, fields, open_record
from windrow.emulator.guest_cluster.datastore.snapshot_content import COMPRESSED
from windrow.emulator.guest_cluster.distribution.distribution import Distribution
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import ApiResource

ETCD_SNAPSHOT_FILE = ApiResource(
    "k3s.cattle.io", "v1", "ETCDSnapshotFile", "etcdsnapshotfiles", namespaced=False
)
FINALIZER = "wrangler.cattle.io/managed-etcd-snapshots-controller"
S3_NODE = "s3"  # the storage node of what is in a bucket
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253 - 13  # with a prefix and a digest it is still a name
_KEY_CHARACTERS = re.compile(r"[^-._a-zA-Z0-9]")
_LAST_INSTANT = 253_402_300_799  # the end of the year 9999

_INSTANT: Raw = {"type": "string", "format": "date-time", "nullable": True}
SNAPSHOT_CRD = definition(
    ETCD_SNAPSHOT_FILE,
    columns=(
        ("SnapshotName", ".spec.snapshotName"),
        ("Node", ".spec.nodeName"),
        ("Location", ".spec.location"),
        ("Size", ".status.size"),
        ("CreationTime", ".status.creationTime", "date"),
    ),
    spec=open_record(
        "location nodeName snapshotName", **fields("location nodeName snapshotName"), metadata=TEXTS
    ),
    status=open_record(
        readyToUse=TRUTH,
        creationTime=_INSTANT,
        size={"x-kubernetes-int-or-string": True, "pattern": "^[0-9]{1,18}$"},
        error=open_record(time=_INSTANT, message={"type": "string"}),
    ),
)


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A snapshot. `source` is the node that made it, which for those in a bucket is not known to every lister."""

    name: str
    created: datetime
    size: int = 0
    node: str = ""
    location: str = ""
    message: str = ""  # why it failed, "" for a good one
    token_hash: str = ""
    s3: Mapping[str, Any] | None = None
    source: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_failed(self) -> bool:
        return bool(self.message)

    @property
    def place(self) -> str:
        return "s3" if self.s3 is not None else "local"

    @property
    def key(self) -> str:
        """Its key in the ConfigMap of earlier releases, and its name in a server's list."""
        return f"{self.place}-{_KEY_CHARACTERS.sub('_', self.name)}"

    @property
    def object_name(self) -> str:
        """The name of its ETCDSnapshotFile."""
        node = self.source or self.node
        digest = hashlib.sha256(f"{node}{self.location}".encode()).hexdigest()[:6]
        name = self.name.lower()
        if len(name) > _LONGEST_NAME or _SUBDOMAIN.fullmatch(name) is None:
            packed = COMPRESSED if name.endswith(COMPRESSED) else ""
            name = f"etcd-snapshot-{node.split('.')[0]}-{int(self.created.timestamp())}{packed}"
        return f"{self.place}-{name}-{digest}"

    def with_name(self, name: str) -> SnapshotFile:
        return replace(self, name=name)

    def render(self, distribution: Distribution, name: str) -> Raw:
        """The ETCDSnapshotFile of this name."""
        raw = new_object(ETCD_SNAPSHOT_FILE, name)
        storage = S3_NODE if self.s3 is not None else self.node
        raw["metadata"]["labels"] = {distribution.etcd_annotation("snapshot-storage-node"): storage}
        if self.token_hash:
            annotation = distribution.etcd_annotation("snapshot-token-hash")
            raw["metadata"]["annotations"] = {annotation: self.token_hash}
        spec: Raw = {
            "snapshotName": self.name,
            "nodeName": self.source or self.node,
            "location": self.location,
        }
        if self.metadata:
            spec["metadata"] = dict(self.metadata)
        if self.s3 is not None:
            spec["s3"] = dict(self.s3)
        created = format_time(self.created)
        status: Raw = {
            "readyToUse": not self.is_failed,
            "creationTime": created,
            "size": str(self.size),
        }
        if self.is_failed:
            status["error"] = {"time": created, "message": self.message}
        return {**raw, "spec": spec, "status": status}

    def render_entry(self) -> str:
        """Its value in the ConfigMap of earlier releases."""
        entry: Raw = {"name": self.name, "nodeName": self.node, "createdAt": format_time(self.created)}
        optional = {
            "location": self.location,
            "metadata": encode_base64(dumps(dict(self.metadata)).decode()) if self.metadata else "",
            "message": encode_base64(self.message),
            "size": self.size,
        }
        entry |= {key: value for key, value in optional.items() if value}
        entry["status"] = "failed" if self.is_failed else "successful"
        if self.s3 is not None:
            entry["s3Config"] = {
                ("folder" if key == "prefix" else key): value for key, value in self.s3.items()
            }
        return dumps({**entry, "compressed": self.name.endswith(COMPRESSED)}).decode()


def read_created(name: str, otherwise: datetime) -> datetime:
    """The instant in a snapshot's name, else `otherwise`."""
    text = name.removesuffix(COMPRESSED).rpartition("-")[2]
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or int(text) > _LAST_INSTANT:
        return otherwise
    return datetime.fromtimestamp(int(text), UTC)
