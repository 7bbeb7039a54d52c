"""VirtualMachines as KubeVirt writes them: its Go types, v1.7.0, in `virtual_machine.json`, by reflection.

Its mutator reads a VM into them and replaces the whole spec by what they hold. That the values fit is checked before, by
`emulator.kit.go_types`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from windrow.core.formats.json import loads
from windrow.emulator.quantities import Quantity
from windrow.kubernetes.objects import Raw

VM = "v1.VirtualMachine"
QUANTITY, TIME, INT_OR_STRING = "resource.Quantity", "v1.Time", "intstr.IntOrString"
INTEGERS = {"int", "uint", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


@dataclass(frozen=True, slots=True)
class Field:
    type: str
    omits_empty: bool


@cache
def table() -> Raw:
    found: Raw = loads(
        files("windrow.emulator.admission.kubevirt").joinpath("virtual_machine.json").read_bytes()
    )
    return found


@cache
def fields_of(struct: str) -> dict[str, Field] | None:
    """By their names in JSON; None where the type is no struct."""
    found = table()["types"].get(struct)
    return {name: _field(text) for name, text in found.items()} if isinstance(found, dict) else None


def _field(written: str) -> Field:
    type, _, option = written.partition(" ")
    return Field(type, bool(option))


@cache
def underlying(type: str) -> str:
    """The type that a named one stands for: "struct", "unmarshaler", or an unnamed type."""
    found = table()["types"].get(type, type)
    return "struct" if isinstance(found, dict) else found


def write_as_go(raw: Any, type: str = VM) -> Any:
    """What Go writes of a value that it has read: known fields alone, canonical quantities, nothing that is empty and may be
    left out. `raw` has no value of another type, and is not changed."""
    if type.startswith("*"):
        return None if raw is None else write_as_go(raw, type[1:])
    kind = underlying(type)
    if kind == "struct":
        return _write_struct(raw or {}, type)
    if kind == "unmarshaler":
        return _write_own(raw, type)
    if raw is None:
        return _EMPTY.get(kind, 0 if kind in INTEGERS else None)
    if kind.startswith("[]") and isinstance(raw, list):
        return [write_as_go(one, kind[2:]) for one in raw]
    if kind.startswith("map[string]"):
        return {key: write_as_go(inner, kind.removeprefix("map[string]")) for key, inner in raw.items()}
    return raw


_EMPTY: dict[str, Any] = {"string": "", "bool": False}


def _write_struct(raw: Raw, type: str) -> Raw:
    written = {}
    for name, field in (fields_of(type) or {}).items():
        value = write_as_go(raw.get(name), field.type)
        if field.omits_empty and _is_empty(value, field.type):
            continue
        written[name] = value
    return written


def _is_empty(value: Any, type: str) -> bool:
    """As `omitempty` has it: a struct never is, nor what a pointer points to."""
    if value is None:
        return underlying(type) not in ("struct", "unmarshaler")
    if type.startswith("*") or underlying(type) in ("struct", "unmarshaler"):
        return False
    return value in ("", 0, [], {})


def _write_own(raw: object, type: str) -> object:
    if type == QUANTITY:
        return "0" if raw is None else str(Quantity.parse(raw.strip() if isinstance(raw, str) else raw))
    if type == INT_OR_STRING:
        return 0 if raw is None else raw
    return raw
