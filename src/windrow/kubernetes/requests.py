"""Requests to an API server as values: what would go out, before anything is sent.

Every function here returns a `Request` and does nothing else. Bodies are JSON unless the function says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal
from urllib.parse import urlencode

from windrow.core.formats.json import dumps
from windrow.kubernetes.resources import ApiResource, ObjectRef

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

Propagation = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `headers` holds what is neither Accept nor Content-Type (impersonation, agent)."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = ""
    accept: str = JSON
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def target(self) -> str:
        """Path and query as they stand in the request line."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def query_parameter(self, name: str) -> str | None:
        """The first value of query parameter `name`."""
        return next((value for key, value in self.query if key == name), None)

    @property
    def is_read(self) -> bool:
        return self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Reply:
    """One HTTP answer, whole."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes of the body."""
        return len(self.body)


@dataclass(frozen=True, slots=True)
class FileReply(Reply):
    """An answer whose body is read from an open file, for servers over sockets, which close the file."""

    file: BinaryIO | None = None


class PartsReply(Reply):
    """An answer whose body is joined of `parts` for each reader of `body`. A server over sockets writes the parts as they are:
    those of a large list are the store's own bytes, of which no answer then holds a copy."""

    __slots__ = ("parts",)
    parts: Sequence[bytes | memoryview]

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        parts: Sequence[bytes | memoryview] = (),
    ) -> None:
        for name, value in (("status", status), ("content_type", content_type), ("headers", headers or {})):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "parts", parts or (body,))

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch. `object` is the whole object; for ERROR it is a Status."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: dict[str, Any]


def get(ref: ObjectRef) -> Request:
    return Request("GET", ref.path)


def list_(
    kind: ApiResource,
    namespace: str = "",
    *,
    labels: str = "",
    fields: str = "",
    limit: int = 0,
    continue_: str = "",
    version: str = "",
) -> Request:
    """One page of a list. `version` is the resourceVersion to read at ("0" for any)."""
    query = [("labelSelector", labels), ("fieldSelector", fields), ("continue", continue_)]
    query += [("limit", str(limit or "")), ("resourceVersion", version)]
    return Request("GET", kind.path(namespace), tuple(pair for pair in query if pair[1]))


def watch(
    kind: ApiResource,
    namespace: str = "",
    *,
    labels: str = "",
    fields: str = "",
    version: str = "",
    timeout_s: int = 0,
) -> Request:
    """A watch from `version` on, with bookmarks."""
    query = [("watch", "true"), ("allowWatchBookmarks", "true"), ("labelSelector", labels)]
    query += [
        ("fieldSelector", fields),
        ("resourceVersion", version),
        ("timeoutSeconds", str(timeout_s or "")),
    ]
    return Request("GET", kind.path(namespace), tuple(pair for pair in query if pair[1]))


def _write(method: str, ref: ObjectRef, body: Any, subresource: str = "", media: str = JSON) -> Request:
    path = ref.kind.path(ref.namespace, ref.name, subresource)
    return Request(method, path, body=dumps(body), content_type=media)


def create(kind: ApiResource, raw: Mapping[str, Any], namespace: str = "") -> Request:
    """Create `raw`; its own metadata.namespace is used when `namespace` is not given."""
    where = namespace or raw["metadata"].get("namespace", "")
    return Request("POST", kind.path(where), body=dumps(raw), content_type=JSON)


def create_subresource(ref: ObjectRef, subresource: str, raw: Mapping[str, Any]) -> Request:
    """POST to a subresource, such as `token` of a ServiceAccount or `eviction` of a Pod."""
    return _write("POST", ref, raw, subresource)


def update(ref: ObjectRef, raw: Mapping[str, Any], subresource: str = "") -> Request:
    """Replace the whole object (PUT). Only for objects that we own in every field."""
    return _write("PUT", ref, raw, subresource)


def put_subresource(ref: ObjectRef, subresource: str, options: Mapping[str, Any] | None = None) -> Request:
    """PUT to an action subresource, such as KubeVirt's `start`; the body is optional there."""
    if options is None:
        return Request("PUT", ref.kind.path(ref.namespace, ref.name, subresource))
    return _write("PUT", ref, options, subresource)


def merge_patch(ref: ObjectRef, change: Mapping[str, Any], subresource: str = "") -> Request:
    return _write("PATCH", ref, change, subresource, MERGE_PATCH)


def json_patch(ref: ObjectRef, steps: Sequence[Mapping[str, Any]], subresource: str = "") -> Request:
    return _write("PATCH", ref, list(steps), subresource, JSON_PATCH)


def strategic_patch(ref: ObjectRef, change: Mapping[str, Any], subresource: str = "") -> Request:
    return _write("PATCH", ref, change, subresource, STRATEGIC_PATCH)


def apply(
    ref: ObjectRef,
    raw: Mapping[str, Any],
    manager: str,
    *,
    force: bool = False,
    strict: bool = False,
    dry_run: bool = False,
) -> Request:
    """Server-side apply; with `strict`, unknown fields are an error (400) instead of a warning; with `dry_run`, the answer is
    the object as it would be, and nothing is written."""
    query: tuple[tuple[str, str], ...] = (("fieldManager", manager), ("force", "true" if force else "false"))
    query += (("fieldValidation", "Strict"),) if strict else ()
    query += (("dryRun", "All"),) if dry_run else ()
    return Request("PATCH", ref.path, query, dumps(raw), APPLY_PATCH)


def delete(
    ref: ObjectRef,
    *,
    propagation: Propagation | None = None,
    uid: str = "",
    resource_version: str = "",
    grace_s: int | None = None,
) -> Request:
    """Delete one object; with `uid`, only if it still is that one, with `resource_version` unchanged (409 otherwise)."""
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if propagation:
        options["propagationPolicy"] = propagation
    if preconditions := {
        key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value
    }:
        options["preconditions"] = preconditions
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return _write("DELETE", ref, options)
