"""OpenAPI documents: what kubectl needs for validation, apply and explain (reference/05 §7.3).

The v3 documents have the fields. The v2 document is without definitions: kubectl reads it only for a kind that v3 does not
have, and finds there that the kind is unknown, instead of a 404 that makes it advise to switch validation off.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from windrow.apiserver.types.registry import Registry, ResourceType
from windrow.core.formats.fastjson import dumps

Raw = dict[str, Any]


V2_MEDIA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_ACCEPTED = (
    "com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "com.github.proto-openapi.spec.v2@v1.0+protobuf",
)
_TITLE = "Kubernetes"


def document_v2(version: str) -> Raw:
    """`/openapi/v2` as JSON."""
    return {"swagger": "2.0", "info": {"title": _TITLE, "version": version}, "paths": {}, "definitions": {}}


def protobuf_document_v2(version: str) -> bytes:
    """`/openapi/v2` as gnostic's protobuf message openapi.v2.Document: swagger = 1, info (title = 1, version = 2) = 2,
    paths = 8."""
    info = _bytes_field(1, _TITLE.encode()) + _bytes_field(2, version.encode())
    return _bytes_field(1, b"2.0") + _bytes_field(2, info) + _bytes_field(8, b"")


def _bytes_field(number: int, value: bytes) -> bytes:
    assert len(value) < 128, "one byte of length"
    return bytes([number << 3 | 2, len(value)]) + value


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _type_paths(type: ResourceType) -> Raw:
    marks = {"group": type.kind.group, "version": type.kind.version, "kind": type.kind.kind}
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    patch = {
        "operationId": f"patch{type.kind.kind}",
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": marks,
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
    }
    where = "/namespaces/{namespace}" if type.kind.namespaced else ""
    return {f"{type.kind.root}{where}/{type.kind.plural}/{{name}}": {"patch": patch}}


def _schema_name(type: ResourceType) -> str:
    turned = ".".join(reversed(type.kind.group.split(".")))
    return f"{turned}.{type.kind.version}.{type.kind.kind}"


def _published(type: ResourceType) -> Raw:
    """A custom resource's own schema, for `kubectl explain`."""
    marks = {"group": type.kind.group, "version": type.kind.version, "kind": type.kind.kind}
    strings = {name: {"type": "string"} for name in ("apiVersion", "kind")}
    fields = {**strings, "metadata": {"type": "object"}, **(type.schema.get("properties") or {})}
    return {**type.schema, "properties": fields, "x-kubernetes-group-version-kind": [marks]}


def group_document(registry: Registry, group: str, version: str) -> Raw | None:
    """The document of one group version; None when it is not served."""
    types = [one for one in registry if (one.kind.group, one.kind.version) == (group, version)]
    if not types:
        return None
    paths: Raw = {}
    schemas: Raw = {}
    for one in types:
        paths.update(_type_paths(one))
        if one.custom:
            schemas[_schema_name(one)] = _published(one)
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def index(registry: Registry) -> Raw:
    """`/openapi/v3`: the URL of each document, with its hash for caching clients."""
    paths: Raw = {}
    for group, version in sorted({(one.kind.group, one.kind.version) for one in registry}):
        digest = sha256(dumps(group_document(registry, group, version))).hexdigest()[:32].upper()
        root = _root(group, version)
        paths[root] = {"serverRelativeURL": f"/openapi/v3/{root}?hash={digest}"}
    return {"paths": paths}
