"""The Go types into which the webhooks of Harvester and KubeVirt decode objects: `go_types.json`, written by reflection.

A webhook is sent what the API server has decoded, with its keys sorted; what its own types do not take it refuses before any
of its rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from windrow.apiserver.types.go_syntax import kind_of, syntax_error
from windrow.apiserver.types.go_types import Field, Raw, find_mistyped, usual_type
from windrow.core.formats.json import NotJson, loads

Structs = Mapping[str, Mapping[str, Field]]


@cache
def _read() -> tuple[Mapping[str, str], Structs]:
    """The struct of each kind, and the fields of each struct."""
    raw = loads(files("windrow.emulator.kit").joinpath("go_types.json").read_bytes())
    return raw["kinds"], read_structs(raw["types"])


def read_structs(written: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Field]]:
    """The fields of each struct, of `kind` or `kind=Go's type` by their names; after ` @` the embedded structs."""
    return {
        struct: {name: _read_field(text) for name, text in fields.items()}
        for struct, fields in written.items()
    }


def _read_field(text: str) -> Field:
    typed, _, way = text.partition(" @")
    kind, _, go_type = typed.partition("=")
    return Field(kind, go_type or usual_type(kind), way)


def fields_of(struct: str) -> Mapping[str, Field]:
    return _read()[1][struct]


def decoding_fault(kind: str, raw: Any) -> str:
    """What Go's decoder says of the first field of an object of a kind that has another JSON type; "" without one."""
    return find_mistyped(fields_of, _read()[0][kind], raw, is_sorted=True)


def decode_text(structs: Structs, struct: str, written: str) -> tuple[Raw, str]:
    """The object in a text, as json.Unmarshal reads it into a struct, and what Go says against it."""
    try:
        found = loads(written)
    except NotJson:
        return {}, syntax_error(written)
    if found is None:
        return {}, ""
    if not isinstance(found, dict):
        return {}, f"json: cannot unmarshal {kind_of(found)} into Go value of type {struct}"
    return found, find_mistyped(structs.__getitem__, struct, found)
