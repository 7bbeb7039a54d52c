"""`etcdSnapshotRestore.from`: the snapshot of another Cluster with which a new one begins, and what is recorded of that.

Rancher has no such field: there a snapshot is restored to the Cluster that it is of. `status.restoredFrom` stays for as long as
the Cluster does, since what its guest has of the original stays, too: the certificate authorities, the server token, and the
PersistentVolumes. While it has no `separated`, the guest still has what could act on the original.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.clusters.api.fields import Fields
from windrow.clusters.api.operations.rotations import read_mapping
from windrow.core.formats.bounds import abbreviate
from windrow.kubernetes.objects import is_dns_subdomain, time_of

FROM = "from"
STATUS = "restoredFrom"
S3_TEXTS = ("bucket", "endpoint", "endpointCA", "folder", "region", "cloudCredentialName")
S3_FIELD = "spec.rkeConfig.etcd.s3"
MAX_NAME = 253
MAX_TEXT = 32 * 1024  # a certificate authority; the status has it, too
_S3_KEY = "etcd-s3"
# What a server takes as the name of a snapshot in S3; no path.
_FILE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,252}")


@dataclass(frozen=True, slots=True)
class RestoreSource:
    """The Cluster that the snapshot is of, which may be gone; the Secret with its authorities and its server token, in the namespace
    of the new Cluster; and where the file is in S3, without keys."""

    cluster: str
    secret: str
    s3: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """`status.restoredFrom`: `guest_uid` is that of the original's guest, which the copy has until it is separated."""

    cluster: str
    secret: str = ""
    s3: Mapping[str, Any] = field(default_factory=dict)
    guest_uid: str = ""
    is_clean: bool = False  # nothing of the original's was found when it was looked for last
    separated: datetime | None = None  # when


def read_source(restore: Fields) -> RestoreSource | None:
    """`from` of `etcdSnapshotRestore`; None where it has a fault. Each is an error: without a snapshot the Cluster would begin
    empty."""
    fields = restore.child(FROM)
    before = len(fields.problems.found)
    if not _FILE.fullmatch(name := restore.text("name")):
        hint = "write the name of the file in S3, as windrow snapshot list shows it"
        restore.refuse("name", f"is {abbreviate(name)}, which no snapshot in S3 may be called", hint)
    cluster = fields.text("clusterName")
    secret = fields.text("secretName") or (f"{cluster}-windrow-secrets" if cluster else "")
    for key, value in (("clusterName", cluster), ("secretName", secret)):
        if not is_dns_subdomain(value):
            hint = "write the name of the Cluster that the snapshot is of, or of a Secret in the namespace of this one"
            fields.refuse(key, f"is {abbreviate(value)}, which is no name", hint)
    s3 = fields.child("s3")
    given: dict[str, Any] = {key: text for key in S3_TEXTS if (text := s3.text(key))}
    for key, text in given.items():
        if len(text) > MAX_TEXT:
            s3.refuse(key, f"has {len(text)} characters", f"write {MAX_TEXT} at most")
    if not given.get("cloudCredentialName"):
        hint = "write where the file is, as in etcd.s3 of the original"
        s3.refuse("cloudCredentialName", "is not set, and the snapshot is read from S3", hint)
    if s3.flag("skipSSLVerify"):
        given["skipSSLVerify"] = True
    return None if len(fields.problems.found) > before else RestoreSource(cluster, secret, given)


def read_recorded_source(status: Mapping[str, Any]) -> RecordedSource | None:
    said = read_mapping(status, STATUS)
    cluster = str(said.get("clusterName") or "")
    if not cluster:
        return None
    return RecordedSource(
        cluster[:MAX_NAME],
        str(said.get("secretName") or "")[:MAX_NAME],
        read_mapping(said, "s3"),
        str(said.get("guestUID") or ""),
        said.get("clean") is True,
        time_of(said, "separated"),
    )


def is_same_place(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two settings of S3 may name one folder. A bucket or endpoint that one of them leaves to its credential counts as
    the other's."""
    for key in ("bucket", "endpoint"):
        here, there = (_plain(one.get(key)), _plain(other.get(key)))
        if here and there and here != there:
            return False
    return _folder(one) == _folder(other)


def _folder(place: Mapping[str, Any]) -> str:
    """As a server names it, which joins it with the file's name as a path."""
    return posixpath.normpath(f"/{str(place.get('folder') or '').strip().strip('/')}")


def _plain(value: object) -> str:
    """Without what may be written or left out: scheme, the port of HTTPS, the dot that ends a host name, upper case of a host."""
    text = str(value or "").strip().lower().removeprefix("https://").removeprefix("http://").strip("/")
    return text.removesuffix(":443").removesuffix(".")


def without_foreign_place(
    etcd: dict[str, Any], source: RecordedSource | None, problems: Fields
) -> dict[str, Any]:
    """`etcd` as the machines get it: without S3 until the copy is separated, and never with the original's folder, whose
    snapshots it would count as its own, and prune."""
    s3 = etcd.get("s3")
    if source is None or not isinstance(s3, Mapping):
        return etcd
    if is_same_place(s3, source.s3):
        fault = f"names the folder in which Cluster {source.cluster} keeps its snapshots: none is made there"
        problems.warn("etcd.s3", fault, "write another folder")
    elif source.separated:
        return etcd
    return {key: value for key, value in etcd.items() if key != "s3"}


Configs = tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]


def list_s3_keys(global_config: Mapping[str, Any], selectors: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys of `machineGlobalConfig` and `machineSelectorConfig` that say where a server's snapshots go in S3."""
    configs = (global_config, *(one.get("config") or {} for one in selectors))
    return sorted({key for config in configs for key in config if key.startswith(_S3_KEY)})


def drop_s3_keys(global_config: Mapping[str, Any], selectors: Iterable[Mapping[str, Any]]) -> Configs:
    return _drop(global_config), tuple({**one, "config": _drop(one.get("config") or {})} for one in selectors)


def _drop(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if not key.startswith(_S3_KEY)}


def without_s3_keys(configs: Configs, source: RecordedSource | None, problems: Fields) -> Configs:
    """The configuration as the machines get it: a copy has S3 by `etcd.s3` alone, which is compared with the original's folder,
    and withheld until the copy is separated."""
    found = list_s3_keys(*configs)
    if source is None or not found:
        return configs
    fault = (
        f"has {', '.join(found)}, which a Cluster that began with a snapshot of {source.cluster} is not given"
    )
    problems.warn("machineGlobalConfig", fault, f"write {S3_FIELD}, with a folder of its own")
    return drop_s3_keys(*configs)
