"""The schema of a CustomResourceDefinition as JSON Schema (draft 7), by which editors complete and check manifests.

A field that the kind does not have is an error, as `windrow check` has it, unless the definition keeps unknown fields there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DRAFT = "http://json-schema.org/draft-07/schema#"
Schema = dict[str, Any]

# What both languages have. `nullable` and what begins with `x-kubernetes-` are translated.
_SHARED = (
    "description", "type", "format", "enum", "default", "required", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip
# Go's formats say of how many bits a number is, which editors do not know.
_FORMATS = frozenset({"date-time", "date", "uri", "email", "ipv4", "ipv6"})
_METADATA: Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}},
}


def kind_schema(crd: Mapping[str, Any]) -> Schema:
    """The schema of a whole object of the definition's first served version."""
    spec, names = crd["spec"], crd["spec"]["names"]
    version = next(one for one in spec["versions"] if one.get("served", True))
    schema = translate(version["schema"]["openAPIV3Schema"])
    top = {
        "apiVersion": {"const": f"{spec['group']}/{version['name']}"},
        "kind": {"const": names["kind"]},
        "metadata": _METADATA,
    }
    required = ["apiVersion", "kind", "metadata", *schema.get("required", ())]
    return {
        "$schema": DRAFT,
        "title": f"{names['kind']} ({spec['group']}/{version['name']})",
        **schema,
        "properties": {**top, **schema.get("properties", {})},
        "required": list(dict.fromkeys(required)),
    }


def translate(openapi: Mapping[str, Any]) -> Schema:
    """The schema of one field and all below it."""
    made: Schema = {key: openapi[key] for key in _SHARED if key in openapi}
    if made.get("format") not in _FORMATS:
        made.pop("format", None)
    if openapi.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if openapi.get("nullable") and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    if "items" in openapi:
        made["items"] = translate(openapi["items"])
    for key in ("allOf", "anyOf", "oneOf"):
        if key in openapi:
            made[key] = [translate(one) for one in openapi[key]]
    properties = openapi.get("properties")
    if properties:
        made["properties"] = {name: translate(one) for name, one in properties.items()}
    further = openapi.get("additionalProperties")
    if isinstance(further, Mapping):
        made["additionalProperties"] = translate(further)
    elif properties and not openapi.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made


def file_name(crd: Mapping[str, Any]) -> str:
    """`cluster-provisioning-v1.json`, where kubeconform looks for the schema of a kind."""
    spec = crd["spec"]
    group, version = spec["group"].split(".")[0], spec["versions"][0]["name"]
    return f"{spec['names']['kind'].lower()}-{group}-{version}.json"
