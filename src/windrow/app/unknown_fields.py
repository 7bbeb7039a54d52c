"""Strict field validation of a manifest before it is sent: what kubectl's `--validate=strict` asks the API server for.

The schemas are those of the management API, so both find the same fields.
"""

from __future__ import annotations

import re
from copy import deepcopy
from difflib import get_close_matches
from functools import cache

from windrow.apiserver.types.builtins import BUILTINS
from windrow.apiserver.types.crds import types_from_crd
from windrow.apiserver.types.registry import Registry
from windrow.apiserver.types.schema import PRESERVE, Schema, items_schema, property_schema, prune
from windrow.apiserver.verbs.metadata import METADATA_FIELDS, unknown_metadata
from windrow.kubernetes.objects import Raw
from windrow.machines.port import Problem

_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


@cache
def _management_types() -> Registry:
    from windrow.app.embedded import management_crds

    return Registry((*BUILTINS, *(type for crd in management_crds() for type in types_from_crd(crd))))


def find_unknown_fields(raw: Raw) -> list[Problem]:
    """An error for each field, at every level, that the object's kind does not have; none for a kind that is not ours."""
    type = _management_types().find_by_gvk(str(raw.get("apiVersion")), str(raw.get("kind")))
    if type is None:
        return []
    in_metadata = [_problem(path, type.kind.kind, METADATA_FIELDS) for path in unknown_metadata(raw)]
    unknown = prune(type.schema, deepcopy(raw))
    return in_metadata + [_problem(path, type.kind.kind, _siblings(type.schema, path)) for path in unknown]


def _problem(path: str, kind: str, siblings: frozenset[str]) -> Problem:
    name = path.rpartition(".")[2]
    near = get_close_matches(name, siblings, 1)
    hint = f"did you mean {near[0]}?" if near else "correct its spelling, or remove it"
    return Problem(f"{path} is not a field of {kind}", hint, path)


def _siblings(schema: Schema, path: str) -> frozenset[str]:
    """The fields that the object has which holds the field at `path`; none where its place is not clear from the path,
    as below a key with dots."""
    for step in _STEP.findall(path.rpartition(".")[0]):
        schema = items_schema(schema) if step.startswith("[") else property_schema(schema, step)
    return frozenset(schema.get("properties") or ()) if not schema.get(PRESERVE) else frozenset()
