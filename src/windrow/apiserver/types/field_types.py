"""The JSON types of every field of the built-in kinds: `kubernetes_fields.json`, written from k8s.io/api by reflection.

Built-in kinds are Go structs: kube-apiserver decodes a body by their fields, and answers 400 with the field where one has
another JSON type. `check_types` does the same, so that what reads a stored object may rely on the types of its fields. The
table is also that of protobuf bodies (`apiserver.protobuf`). `drop_unknown` leaves of an object what its structs have.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from windrow.apiserver.apierrors import bad_request
from windrow.apiserver.types import go_types
from windrow.apiserver.types.go_types import Field, usual_type
from windrow.apiserver.types.schema import drop_nulls
from windrow.core.formats.json import loads
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import ApiResource

DELETE_OPTIONS = "meta.DeleteOptions"

Raw = dict[str, Any]
Message = Mapping[int, tuple[str, str, bool]]


@cache
def _read() -> Mapping[str, Any]:
    found: Mapping[str, Any] = loads(
        files("windrow.apiserver").joinpath("kubernetes_fields.json").read_bytes()
    )
    return found


@cache
def read_table() -> tuple[dict[str, str], dict[str, Message]]:
    """The message of each `apiVersion kind`; and of each message, by number: name, kind, whether a zero is shown."""
    raw = _read()
    messages: dict[str, Message] = {
        name: {int(number): _read_field(text) for number, text in fields.items()}
        for name, fields in raw["messages"].items()
    }
    return raw["kinds"], messages


def _read_field(text: str) -> tuple[str, str, bool]:
    name, _, kind = text.partition(" ")
    return name, kind.rstrip("!"), kind.endswith("!")


# Kinds that no client sends as protobuf here, from apiextensions/v1 and autoscaling/v1.
_all = dict.fromkeys
_SCHEMA = "apiextensions.JSONSchemaProps"
_EXTRA: dict[str, dict[str, str]] = {
    "apiextensions.CustomResourceDefinition": {
        "metadata": "meta.ObjectMeta",
        "spec": "apiextensions.CustomResourceDefinitionSpec",
    },
    "apiextensions.CustomResourceDefinitionSpec": {
        "group": "string",
        "scope": "string",
        "names": "apiextensions.CustomResourceDefinitionNames",
        "versions": "[]apiextensions.CustomResourceDefinitionVersion",
        "conversion": "apiextensions.CustomResourceConversion",
        "preserveUnknownFields": "bool",
    },
    "apiextensions.CustomResourceConversion": {"strategy": "string"},
    "apiextensions.CustomResourceDefinitionNames": {
        **_all(("plural", "singular", "kind", "listKind"), "string"),
        **_all(("shortNames", "categories"), "[]string"),
    },
    "apiextensions.CustomResourceDefinitionVersion": {
        **_all(("name", "deprecationWarning"), "string"),
        **_all(("served", "storage", "deprecated"), "bool"),
        "schema": "apiextensions.CustomResourceValidation",
        "subresources": "apiextensions.CustomResourceSubresources",
        "additionalPrinterColumns": "[]apiextensions.CustomResourceColumnDefinition",
        "selectableFields": "[]apiextensions.SelectableField",
    },
    "apiextensions.CustomResourceValidation": {"openAPIV3Schema": _SCHEMA},
    "apiextensions.CustomResourceSubresources": {
        "status": "apiextensions.CustomResourceSubresourceStatus",
        "scale": "apiextensions.CustomResourceSubresourceScale",
    },
    "apiextensions.CustomResourceSubresourceStatus": {},
    "apiextensions.CustomResourceSubresourceScale": _all(
        ("specReplicasPath", "statusReplicasPath", "labelSelectorPath"), "string"
    ),
    "apiextensions.CustomResourceColumnDefinition": {
        **_all(("name", "type", "format", "description", "jsonPath"), "string"),
        "priority": "int",
    },
    "apiextensions.SelectableField": {"jsonPath": "string"},
    _SCHEMA: {
        **_all(
            (
                "id",
                "$schema",
                "$ref",
                "description",
                "type",
                "format",
                "title",
                "pattern",
                "x-kubernetes-list-type",
            ),
            "string",
        ),
        "x-kubernetes-map-type": "string",
        **_all(("maximum", "minimum", "multipleOf"), "number"),
        **_all(("exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable"), "bool"),
        **_all(("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), "int"),
        **_all(
            (
                "x-kubernetes-preserve-unknown-fields",
                "x-kubernetes-embedded-resource",
                "x-kubernetes-int-or-string",
            ),
            "bool",
        ),
        **_all(("required", "x-kubernetes-list-map-keys"), "[]string"),
        **_all(("allOf", "oneOf", "anyOf"), f"[]{_SCHEMA}"),
        **_all(("properties", "patternProperties", "definitions"), "{}" + _SCHEMA),
        **_all(("not", "items"), _SCHEMA),
        "additionalProperties": f"{_SCHEMA}OrBool",
        "enum": "[]json",
        "x-kubernetes-validations": "[]apiextensions.ValidationRule",
    },
    "apiextensions.ValidationRule": _all(("rule", "message", "messageExpression"), "string"),
}
_EXTRA_KINDS = {
    "apiextensions.k8s.io/v1 CustomResourceDefinition": "apiextensions.CustomResourceDefinition",
}


@cache
def fields_of(message: str) -> Mapping[str, Field]:
    """The JSON fields of a message; a field without a name is inlined, as in Go."""
    kinds, messages = read_table()
    if message in _EXTRA:
        return {name: Field(kind, usual_type(kind)) for name, kind in _EXTRA[message].items()}
    is_root = message in kinds.values() or message == DELETE_OPTIONS
    found = {name: Field("string", "string") for name in ("apiVersion", "kind")} if is_root else {}
    named = _read()["go"].get(message, {})
    for name, kind, _ in messages[message].values():
        found |= {name: Field(kind, named.get(name, usual_type(kind)))} if name else fields_of(kind)
    # Fields that no protobuf body here has are known by their name alone.
    return found | {name: Field("json", "") for name in named if name not in found}


def find_mistyped(message: str, value: Any) -> str:
    """What Go's decoder says of the first field of `value` that has another JSON type; "" without one."""
    return go_types.find_mistyped(fields_of, message, value)


METADATA = "meta.ObjectMeta"


def _message_of(kind: ApiResource) -> str | None:
    name = f"{kind.api_version} {kind.kind}"
    return _EXTRA_KINDS.get(name) or read_table()[0].get(name)


def check_metadata(kind: ApiResource, metadata: Any) -> None:
    """Raises 400 with the first field of the metadata of a custom resource that has a wrong JSON type."""
    if metadata is not None and (found := find_mistyped(METADATA, metadata)):
        raise cannot_be_handled(kind, found)


def check_types(kind: ApiResource, raw: Any) -> None:
    """Raises 400 with the first field of `raw`, an object of the kind, that has a wrong JSON type. Other kinds pass."""
    message = _message_of(kind)
    if message is not None and (found := find_mistyped(message, raw)):
        raise cannot_be_handled(kind, found)


def drop_unknown(kind: ApiResource, raw: Raw) -> list[str]:
    """Makes `raw`, which `check_types` has passed, what Go keeps of it; returns the paths of unknown fields."""
    message = _message_of(kind)
    if message is None:
        drop_nulls(raw)
        return []
    return go_types.keep_known(fields_of, message, raw, keeps_unknown=message in _EXTRA)


def write_quantities(kind: ApiResource, raw: Raw) -> None:
    """Gives the quantities of a valid object of a built-in kind, in place, their canonical form."""
    message = _message_of(kind)
    if message is not None and message not in _EXTRA:
        go_types.write_quantities(fields_of, message, raw)


def keep_metadata(metadata: Raw) -> None:
    """Makes metadata that has been checked what Go keeps of it."""
    go_types.keep_known(fields_of, METADATA, metadata)


def cannot_be_handled(kind: ApiResource, why: str) -> KubeError:
    """The 400 for a body that is not an object of its kind."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')
