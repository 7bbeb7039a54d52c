"""`POST /db/snapshot`: the requests of `etcd-snapshot save|list|prune|delete`, and their answers (reference/10-day2 §2.2).

Bounds are ours: a server that reads whatever it is sent is no use in tests.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windrow.apiserver.apierrors import error_reply, status_error
from windrow.core.formats.json import NotJson, check_bounds, dumps, loads
from windrow.emulator.guest_cluster.cluster import ServerInstance
from windrow.emulator.guest_cluster.datastore.s3_settings import BadS3Settings, read_request
from windrow.emulator.guest_cluster.datastore.snapshots import (
    EtcdSnapshots,
    NoS3,
    SnapshotFailed,
    SnapshotResult,
    SnapshotSettings,
)
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.requests import Reply, Request

MAX_BODY = 256 << 10
_MAX_VALUES = 10_000
_MAX_NAMES = 1_000
_MAX_NAME = 200
_NAME = re.compile(r"[^/\x00-\x1f\x7f]+")
_TYPES: Mapping[str, tuple[type, str]] = {
    "operation": (str, "string"),
    "name": (list, "[]string"),
    "dir": (str, "string"),
    "compress": (bool, "bool"),
    "retention": (int, "int"),
    "s3": (dict, "config.EtcdS3"),
}


class BadRequest(Exception):
    """The request cannot be read; the message is for the server's log."""


class NoSuchName(Exception):
    """A name leads out of the snapshot directory; the message is for the one who asks."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What is asked for."""

    operation: str
    names: tuple[str, ...]
    settings: SnapshotSettings


def error_with_id(component: str, why: str, server: ServerInstance, status: int = 500) -> Reply:
    """An answer that does not say why: the cause is on the console of the server, under the same number."""
    number = int.from_bytes(hashlib.sha256(why.encode()).digest()[:4]) % 99_999
    text = f"{component} error ID {number:05d}"
    server.log(f"level=error: {text}: {why}")
    message = f"Internal error occurred: {text}" if status == 500 else text
    return error_reply(status_error(status, message))


def read_body(request: Request) -> dict[str, Any]:
    """The JSON object in the body. Raises BadRequest."""
    body = request.body or b""
    if len(body) > MAX_BODY:
        raise BadRequest(f"the body has {len(body)} bytes, of at most {MAX_BODY}")
    if not body:
        raise BadRequest("unexpected end of JSON input")
    try:
        raw = loads(body)
        check_bounds(raw, _MAX_VALUES)
    except NotJson as error:
        raise BadRequest(f"json: {error}") from error
    if not isinstance(raw, dict):
        raise BadRequest("json: cannot unmarshal into a Go struct")
    return raw


def parse_snapshot_request(raw: Mapping[str, Any], own: SnapshotSettings) -> SnapshotRequest:
    """The request; what it does not say is as the server's own, but for S3. Raises BadRequest, NoSuchName."""
    for key, (kind, name) in _TYPES.items():
        value = raw.get(key)
        if value is not None and type(value) is not kind:
            raise BadRequest(
                f"json: cannot unmarshal into Go struct field SnapshotRequest.{key} of type {name}"
            )
    names = tuple(raw.get("name") or ())
    if len(names) > _MAX_NAMES:
        raise BadRequest(f"{len(names)} names, of at most {_MAX_NAMES}")
    for one in names:
        if not isinstance(one, str):
            raise BadRequest(
                "json: cannot unmarshal into Go struct field SnapshotRequest.name of type string"
            )
        if posixpath.basename(one) != one or one in ("", ".", "..") or _NAME.fullmatch(one) is None:
            raise NoSuchName("invalid snapshot name: path traversal not allowed")
        if len(one) > _MAX_NAME:
            raise NoSuchName(f"invalid snapshot name: it has {len(one)} characters")
    try:
        s3 = read_request(raw["s3"]) if raw.get("s3") is not None else None
    except BadS3Settings as error:
        raise BadRequest(str(error)) from error
    settings = replace(own, s3=s3)
    if names:
        settings = replace(settings, name=names[0])
    if raw.get("dir") is not None:
        settings = replace(settings, directory=raw["dir"])
    if raw.get("compress") is not None:
        settings = replace(settings, compress=raw["compress"])
    if raw.get("retention") is not None:
        settings = replace(settings, retention=raw["retention"])
    return SnapshotRequest(raw.get("operation") or "", names, settings)


async def answer_snapshot_request(
    request: Request, server: ServerInstance, snapshots: EtcdSnapshots
) -> Reply:
    """The answer to a request whose sender may ask."""
    if request.method != "POST":
        return error_with_id("etcd-snapshot", f"{request.method} is not supported on snapshots", server)
    try:
        asked = parse_snapshot_request(read_body(request), snapshots.settings)
        return await _answer(asked, server, snapshots)
    except (BadRequest, SnapshotFailed, KubeError) as error:
        return error_with_id("etcd-snapshot", str(error), server)
    except (NoSuchName, NoS3) as error:
        return error_reply(status_error(400, str(error)))


async def _answer(asked: SnapshotRequest, server: ServerInstance, snapshots: EtcdSnapshots) -> Reply:
    settings = asked.settings
    if asked.operation in ("list", "save", "prune", "delete") and settings.s3 is not None:
        await snapshots.open_s3(settings.s3)
    match asked.operation:
        case "list":
            return await _list(settings, server, snapshots)
        case "save":
            return _render_result(await snapshots.save(settings))
        case "prune":
            return _render_result(await snapshots.prune(settings))
        case "delete":
            return _render_result(await snapshots.delete(settings, asked.names))
    return error_with_id("etcd-snapshot", "invalid snapshot operation", server, 400)


async def _list(settings: SnapshotSettings, server: ServerInstance, snapshots: EtcdSnapshots) -> Reply:
    distribution = server.settings.distribution
    items = [file.render(distribution, file.key) for file in await snapshots.list_all(settings)]
    # Go's null: a list without items.
    found: dict[str, Any] = {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items or None}
    return Reply(200, dumps(found))


def _render_result(result: SnapshotResult) -> Reply:
    said = {"created": result.created, "deleted": result.deleted}
    return Reply(200, dumps({key: names for key, names in said.items() if names}))
