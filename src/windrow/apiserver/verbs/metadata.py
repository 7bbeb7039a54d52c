"""Object metadata: fields set by the server, and validation of the others."""

from __future__ import annotations

import re
from collections.abc import Hashable
from types import NoneType
from typing import Any

from windrow.apiserver.apierrors import (
    Cause,
    bad_request,
    conflict,
    forbidden_value,
    invalid_value,
    required,
    too_many,
)
from windrow.apiserver.types.field_types import (
    cannot_be_handled,
    check_metadata,
    check_types,
    drop_unknown,
    keep_metadata,
)
from windrow.apiserver.types.registry import ResourceType, key_errors, label_value_errors, name_errors
from windrow.apiserver.types.schema import identity_of
from windrow.apiserver.types.validation import finalizer_domain_errors, finalizer_name_errors
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import ApiResource

Raw = dict[str, Any]

MAX_OWNERS = 100  # each is looked up at each change of the object; kube-apiserver has no bound
SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "resourceVersion",
    "generation",
    "managedFields",
)
METADATA_FIELDS = frozenset(
    {
        *SERVER_OWNED,
        "name",
        "generateName",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    }
)
MAX_NAME_BASE_LENGTH = 58  # characters of generateName that leave room for the suffix


def with_type_meta(raw: Any, type: ResourceType) -> Raw:
    """`raw` with checked apiVersion and kind in front and known metadata only. 400 for another type, or a wrong type of a field.

    Of a custom resource only the metadata is typed; the rest is for its schema.
    """
    if not isinstance(raw, dict):
        raise bad_request(f"the body of the request is not a {type.kind.kind} object")
    for name in ("apiVersion", "kind"):
        if not isinstance(raw.get(name), (str, NoneType)):
            raise bad_request(f"{name} of the {type.kind.kind} must be a string")
    found = (raw.get("apiVersion") or type.kind.api_version, raw.get("kind") or type.kind.kind)
    if found != (type.kind.api_version, type.kind.kind):
        raise _type_mismatch(type, *found)
    if not type.custom:
        check_types(type.kind, raw)
    check_metadata(type.kind, raw.get("metadata"))
    metadata = dict(raw.get("metadata") or {})
    keep_metadata(metadata)
    clean = {name: value for name, value in metadata.items() if value not in (None, "", {}, [])}
    rest = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind", "metadata")}
    return {"apiVersion": type.kind.api_version, "kind": type.kind.kind, "metadata": clean, **rest}


_MAP_KEY = re.compile(r"^(data|stringData|binaryData|parameters)\..*$")
_GO_TYPES = {"boolean": "bool", "integer": "number", "null": "null"}


def decode_error(type: ResourceType, cause: Cause) -> KubeError:
    """A wrong JSON type in a built-in object is a decoding error (400), not a validation error."""
    found, _, wanted = cause.detail.partition(" in body must be of type ")
    found = found.split('"')[1]
    wanted = wanted.split(":")[0]
    # Go names the field, not the key of a map within it.
    field = f"{type.kind.kind}.{_MAP_KEY.sub(lambda found: found[1], cause.field)}"
    return bad_request(
        f'{type.kind.kind} in version "{type.kind.version}" cannot be handled as a {type.kind.kind}: json: cannot '
        f"unmarshal {_GO_TYPES.get(found, found)} into Go struct field {field} of type {wanted}"
    )


def read_object(kind: ApiResource, body: Any) -> Raw:
    """`body` as an object of a built-in kind, without nulls. Raises 400 for another kind, or the first field of a wrong type."""
    if not isinstance(body, dict):
        raise bad_request(f"the body of the request is not a {kind.kind} object")
    for name in ("apiVersion", "kind"):
        if not isinstance(body.get(name), (str, NoneType)):
            raise bad_request(f"{name} of the {kind.kind} must be a string")
    version, found = body.get("apiVersion") or kind.api_version, body.get("kind") or kind.kind
    if found != kind.kind or version.rpartition("/")[0] != kind.group:
        raise cannot_be_handled(kind, f"it is a {found} in version {version}")
    check_types(kind, body)
    drop_unknown(kind, body)
    return body


def check_place(kind: ApiResource, raw: Raw, name: str, namespace: str) -> None:
    """Raises 400 where an object of a subresource is not named as its URL is."""
    head = raw.get("metadata") or {}
    if head.get("name") != name:
        raise bad_request(f"name in URL does not match name in {kind.kind} object")
    if head.get("namespace") not in (None, "", namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def unknown_metadata(raw: Raw) -> list[str]:
    """The paths of metadata fields that no object has."""
    metadata = raw.get("metadata")
    return (
        [f"metadata.{name}" for name in metadata if name not in METADATA_FIELDS]
        if isinstance(metadata, dict)
        else []
    )


def _type_mismatch(type: ResourceType, version: str, kind: str) -> KubeError:
    """400 for an object of another version or kind."""
    if kind == type.kind.kind or type.custom:
        return bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({type.kind.api_version})"
            if version != type.kind.api_version
            else f"the kind in the data ({kind}) does not match the expected kind ({type.kind.kind})"
        )
    wanted, short = type.kind.kind, version.rpartition("/")[2]
    group = type.kind.group.partition(".")[0] or "core"
    return bad_request(
        f'{kind} in version "{short}" cannot be handled as a {wanted}: converting ({short}.{kind}) to '
        f"({group}.{wanted}): unknown conversion"
    )


def set_namespace(raw: Raw, type: ResourceType, namespace: str) -> None:
    """Set the namespace of the URL; 400 when the object has another one."""
    metadata = raw["metadata"]
    if not type.kind.namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.get("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = namespace


def copy_server_fields(new: Raw, old: Raw, type: ResourceType) -> None:
    """Copy the server-owned metadata of `old` to `new`. 409 for another uid."""
    mine, before = new["metadata"], old["metadata"]
    if mine.get("uid", before["uid"]) != before["uid"]:
        raise conflict(
            type.kind,
            before["name"],
            f"Precondition failed: UID in precondition: {mine['uid']}, UID in object meta: {before['uid']}",
        )
    for name in SERVER_OWNED:
        mine.pop(name, None)
        if name in before:
            mine[name] = before[name]
    if "generateName" in before:
        mine.setdefault("generateName", before["generateName"])


def dedupe_owner_references(raw: Raw) -> list[str]:
    """Drop repeated owner references, in place; returns the warnings to send."""
    owners = raw["metadata"].get("ownerReferences")
    if not owners:
        return []
    kept: dict[Hashable, Any] = {}
    warnings = []
    for owner in owners:
        if (identity := identity_of(owner)) in kept:
            warnings.append(
                ".metadata.ownerReferences contains duplicate entries after mutating admission happens, "
                "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; "
                f"please fix your requests; duplicate UID(s) observed: {{{owner.get('uid')}}}"
            )
        else:
            kept[identity] = owner
    raw["metadata"]["ownerReferences"] = list(kept.values())
    return warnings


def validate_name(raw: Raw, type: ResourceType) -> list[Cause]:
    """Every validation error of a new object's name, and of what it begins with."""
    metadata = raw["metadata"]
    name, beginning = metadata.get("name", ""), metadata.get("generateName", "")
    causes = [
        invalid_value("metadata.generateName", beginning, text)
        for text in (name_errors(type.name_rule, _without_dash(beginning)) if beginning else ())
    ]
    if not name:
        return [*causes, required("metadata.name", "name or generateName is required")]
    return causes + [invalid_value("metadata.name", name, text) for text in name_errors(type.name_rule, name)]


def validate_maps_and_owners(raw: Raw) -> list[Cause]:
    """Every validation error of labels, annotations and owner references."""
    metadata = raw["metadata"]
    causes = _validate_map(metadata, "labels") + _validate_map(metadata, "annotations")
    return causes + _validate_owner_references(metadata.get("ownerReferences") or [])


def validate_finalizer_names(raw: Raw) -> list[Cause]:
    return finalizer_name_errors("metadata.finalizers", raw["metadata"].get("finalizers") or [])


def validate_finalizer_domains(raw: Raw) -> list[Cause]:
    """Of a built-in object's finalizers those without a domain that are no standard ones."""
    return finalizer_domain_errors("metadata.finalizers", raw["metadata"].get("finalizers") or [])


def _without_dash(beginning: str) -> str:
    """What a generated name begins with, as a name: a dash may be its last sign."""
    return f"{beginning[:-1]}a" if len(beginning) > 1 and beginning.endswith("-") else beginning


def _validate_map(metadata: Raw, field: str) -> list[Cause]:
    causes = []
    for key, value in metadata.get(field, {}).items():
        causes += [invalid_value(f"metadata.{field}", key, text) for text in key_errors(key)]
        if not isinstance(value, str):
            causes.append(invalid_value(f"metadata.{field}", value, "must be a string"))
        elif field == "labels":
            causes += [invalid_value("metadata.labels", value, text) for text in label_value_errors(value)]
    return causes


def validate_owner_count(new: Raw, old: Raw | None) -> list[Cause]:
    """No more than MAX_OWNERS owner references; an object with more from before gets no further one."""
    count = len(new["metadata"].get("ownerReferences") or ())
    before = len(old["metadata"].get("ownerReferences") or ()) if old is not None else 0
    return (
        [too_many("metadata.ownerReferences", count, MAX_OWNERS)] if count > max(MAX_OWNERS, before) else []
    )


def _validate_owner_references(owners: list[Any]) -> list[Cause]:
    causes = []
    for owner in owners:
        for name, what in (("apiVersion", "version"), ("kind", ""), ("name", ""), ("uid", "")):
            if not owner.get(name):
                text = f"{what} must not be empty".strip()
                causes.append(invalid_value(f"metadata.ownerReferences.{name}", owner.get(name, ""), text))
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        text = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0].get('kind')}/{controllers[0].get('name')} and "
            f"{controllers[1].get('kind')}/{controllers[1].get('name')}"
        )
        causes.append(invalid_value("metadata.ownerReferences", _format_owner_references(owners), text))
    return causes


def _format_owner_references(owners: list[Any]) -> str:
    return f"[{len(owners)} references]"


def validate_new_finalizers(new: Raw, old: Raw) -> list[Cause]:
    """Finalizers must not be added to an object that is being deleted."""
    if not old["metadata"].get("deletionTimestamp"):
        return []
    before = {identity_of(one) for one in old["metadata"].get("finalizers") or []}
    added = [one for one in new["metadata"].get("finalizers") or [] if one not in before]
    if not added:
        return []
    listed = "[]string{" + ", ".join(f'"{one}"' for one in added) + "}"
    text = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
    return [forbidden_value("metadata.finalizers", text)]
