"""The Go types of the objects that the webhooks of Harvester and KubeVirt read and write: `go_types.json`, by reflection.

The file is printed by the reference program of the newest release, `admission-v1.8.2 --types` (tests/conformance/admission).

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
def table() -> Raw:
    """The file: `kinds`, `types`, and of KubeVirt's VirtualMachine `required`, `enums` and the `schema` of a spec."""
    found: Raw = loads(files("windrow.emulator.kit").joinpath("go_types.json").read_bytes())
    return found


@cache
def _structs() -> Structs:
    return read_structs(table()["types"])


def read_structs(written: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Field]]:
    """The fields of each struct by their names: `kind`, or `kind=Go's type`, `*` before it where it is a pointer, after it
    ` omitempty`, and after ` @` the embedded structs."""
    return {
        struct: {name: _read_field(text) for name, text in fields.items()}
        for struct, fields in written.items()
    }


def _read_field(text: str) -> Field:
    written, _, way = text.partition(" @")
    typed = written.removesuffix(" omitempty")
    kind, _, go_type = typed.removeprefix("*").partition("=")
    return Field(kind, go_type or usual_type(kind), way, typed.startswith("*"), typed != written)


def fields_of(struct: str) -> Mapping[str, Field]:
    return _structs()[struct]


def is_struct(kind: str) -> bool:
    return kind in _structs()


def decoding_fault(kind: str, raw: Any) -> str:
    """What Go's decoder says of the first field of an object of a kind that has another JSON type; "" without one."""
    return find_mistyped(fields_of, table()["kinds"][kind], raw, is_sorted=True)


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
    found = _named(structs, struct, found)
    return found, find_mistyped(structs.__getitem__, struct, found)


def _named(structs: Structs, struct: str, found: Raw) -> Raw:
    """encoding/json takes a name in other capitals for a field's; Kubernetes' own decoder of objects does not."""
    fields = structs[struct]
    folded = {name.casefold(): name for name in fields}
    made = {}
    for written, value in found.items():
        name = written if written in fields else folded.get(written.casefold(), written)
        kind = fields[name].kind if name in fields else ""
        if kind in structs and isinstance(value, dict):
            value = _named(structs, kind, value)
        elif kind[2:] in structs and isinstance(value, list):
            value = [_named(structs, kind[2:], one) if isinstance(one, dict) else one for one in value]
        made[name] = value
    return made
