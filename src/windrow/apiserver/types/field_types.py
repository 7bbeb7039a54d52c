"""The JSON types of every field of the built-in kinds: `kubernetes_fields.json`, written from k8s.io/api by reflection.

Built-in kinds are Go structs: kube-apiserver decodes a body by their fields, and answers 400 with the field where one has
another JSON type. `check_types` does the same, so that what reads a stored object may rely on the types of its fields. The
table is also that of protobuf bodies (`apiserver.protobuf`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from windrow.apiserver.apierrors import bad_request
from windrow.core.formats.json import loads
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import ApiResource

DELETE_OPTIONS = "meta.DeleteOptions"

Message = Mapping[int, tuple[str, str, bool]]


@cache
def read_table() -> tuple[dict[str, str], dict[str, Message]]:
    """The message of each `apiVersion kind`; and of each message, by number: name, kind, whether a zero is shown."""
    raw = loads(files("windrow.apiserver").joinpath("kubernetes_fields.json").read_bytes())
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
def _json_fields(message: str) -> dict[str, str]:
    """The kind of each JSON field of a message; a field without a name is inlined, as in Go."""
    if message in _EXTRA:
        return _EXTRA[message]
    found: dict[str, str] = {}
    for name, kind, _ in read_table()[1][message].values():
        found |= {name: kind} if name else _json_fields(kind)
    return found


MAX_INT64 = 2**63 - 1


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -MAX_INT64 - 1 <= value <= MAX_INT64


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_SCALARS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "string": (_is_text, "string"),
    "int": (_is_int, "int64"),
    "bool": (lambda value: isinstance(value, bool), "bool"),
    "bytes": (_is_text, "[]uint8"),
    "time": (_is_text, "string"),
    "microtime": (_is_text, "string"),
    "duration": (_is_text, "string"),
    "quantity": (
        lambda value: isinstance(value, (str, int, float)) and not isinstance(value, bool),
        "string",
    ),
    "intorstring": (lambda value: _is_text(value) or _is_int(value), "int or string"),
    "number": (lambda value: isinstance(value, (int, float)) and not isinstance(value, bool), "float64"),
    "json": (lambda value: True, ""),
}


class _Mistyped(Exception):
    """A value of another JSON type than its field's, in the words of Go's decoder."""


def find_mistyped(message: str, value: Any, skip: tuple[str, ...] = ()) -> str:
    """What Go's decoder says of the first field of `value` that has another JSON type; "" without one. `skip`: top-level fields."""
    if not isinstance(value, dict):
        return _sentence(value, "value", _go_type(message))
    try:
        _check_message(message, {name: one for name, one in value.items() if name not in skip}, "")
    except _Mistyped as found:
        return str(found)
    return ""


def _check_message(message: str, value: Mapping[str, Any], path: str) -> None:
    fields = _json_fields(message)
    owner = message.rpartition(".")[2]
    for name, inner in value.items():
        if (kind := fields.get(name)) is not None and inner is not None:
            _check(kind, inner, owner, f"{path}.{name}" if path else name)


def _check(kind: str, value: Any, owner: str, path: str) -> None:
    if kind.startswith(("[]", "{}")):
        if not isinstance(value, list if kind.startswith("[]") else dict):
            raise _Mistyped(_sentence(value, f"struct field {owner}.{path}", _go_type(kind)))
        for item in value if isinstance(value, list) else value.values():
            # An absent value of a map is dropped with all nulls; an item of a list has a place, so it must be one.
            if item is not None or isinstance(value, list):
                _check(kind[2:], item, owner, path)
    elif kind.endswith("OrBool"):
        if not isinstance(value, bool):
            _check(kind.removesuffix("OrBool"), value, owner, path)
    elif kind in _SCALARS:
        is_right, go_type = _SCALARS[kind]
        if not is_right(value):
            raise _Mistyped(_sentence(value, f"struct field {owner}.{path}", go_type))
        if kind == "quantity" and (why := _quantity_fault(str(value))):
            raise _Mistyped(why)
    elif not isinstance(value, dict):
        raise _Mistyped(_sentence(value, f"struct field {owner}.{path}", _go_type(kind)))
    else:
        _check_message(kind, value, path)


_QUANTITY = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?\s*")
_QUANTITY_PARTS = re.compile(r"\s*[+-]?[0-9]*(?:\.[0-9]*)?[eEinumkKMGTP]*[-+]?[0-9]*\s*")
_QUANTITY_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _quantity_fault(text: str) -> str:
    if _QUANTITY.fullmatch(text):
        return ""
    has_form = text.strip() and _QUANTITY_PARTS.fullmatch(text) and any(one in "0123456789" for one in text)
    return "unable to parse quantity's suffix" if has_form else _QUANTITY_FORM


def _go_type(kind: str) -> str:
    if kind.startswith("[]"):
        return f"[]{_go_type(kind[2:])}"
    if kind.startswith("{}"):
        return f"map[string]{_go_type(kind[2:])}"
    return _SCALARS[kind][1] if kind in _SCALARS else f"v1.{kind.rpartition('.')[2]}"


def _sentence(value: Any, place: str, go_type: str) -> str:
    match value:
        case bool():
            found = "bool"
        case int() | float():
            found = f"number {value}" if go_type == "int64" else "number"
        case str():
            found = "string"
        case list():
            found = "array"
        case dict():
            found = "object"
        case _:
            found = "null"
    return f"json: cannot unmarshal {found} into Go {place} of type {go_type}"


def check_types(kind: ApiResource, raw: Any, skip: tuple[str, ...] = ()) -> None:
    """Raises 400 with the first field of `raw`, an object of the kind, that has a wrong JSON type. Other kinds pass."""
    name = f"{kind.api_version} {kind.kind}"
    message = _EXTRA_KINDS.get(name) or read_table()[0].get(name)
    if message is not None and (found := find_mistyped(message, raw, skip)):
        raise cannot_be_handled(kind, found)


def cannot_be_handled(kind: ApiResource, why: str) -> KubeError:
    """The 400 for a body that is not an object of its kind."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')
