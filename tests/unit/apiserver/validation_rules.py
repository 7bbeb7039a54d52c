"""Objects of a kind whose fields may not change, and what a kube-apiserver says to changes of them."""

from __future__ import annotations

from typing import Any

from windrow.client.client import Client
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import CRD, ApiResource

STONE = ApiResource("example.io", "v1", "Stone", "stones")
NEVER = [{"rule": "self == oldSelf", "message": "it is carved"}]
FIELDS: Raw = {
    "shape": {
        "type": "object",
        "properties": {
            "sides": {"type": "integer"},
            "words": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
            "worn": {"type": "boolean", "default": False},
        },
        "x-kubernetes-validations": NEVER,
    },
    "colour": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
    "weight": {"type": "integer"},
}
SPEC: Raw = {"shape": {"sides": 4, "words": ["a", "b"]}, "colour": "grey", "weight": 1}
# What replaces a field of SPEC (None removes it).
CHANGES: dict[str, Raw] = {
    "same": {},
    "another field": {"weight": 2},
    "a field inside": {"shape": {"sides": 5, "words": ["a", "b"]}},
    "an item": {"shape": {"sides": 4, "words": ["a", "c"]}},
    "the order of a list": {"shape": {"sides": 4, "words": ["b", "a"]}},
    "a default": {"shape": {"sides": 4, "words": ["a", "b"], "worn": False}},
    "no default": {"shape": {"sides": 4, "words": ["a", "b"], "worn": True}},
    "a text": {"colour": "red"},
    "beside another": {"colour": "red", "weight": 2},
    "removed": {"colour": None, "shape": None},
}


def stones(fields: Raw = FIELDS) -> Raw:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Stone", "plural": "stones"}
    spec = {"group": STONE.group, "names": names, "scope": "Namespaced", "versions": [version]}
    return new_object(CRD, f"stones.{STONE.group}", spec=spec)


async def answers_to_changes(api: Client) -> dict[str, Any]:
    """What comes of each change: the stored spec, or the refusal."""
    found: dict[str, Any] = {}
    for number, (name, change) in enumerate(CHANGES.items()):
        made = await api.create(STONE, new_object(STONE, f"s{number}", "default", spec=SPEC))
        made["spec"] = {key: value for key, value in {**SPEC, **change}.items() if value is not None}
        try:
            found[name] = (await api.update(STONE, made))["spec"]
        except KubeError as error:
            found[name] = f"{error.status} {error.message}"
    return found
