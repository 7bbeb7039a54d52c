"""VirtualMachines as KubeVirt writes them, by its Go types, v1.7.0.

Its mutator reads a VM into them and replaces the whole spec by what they hold. That the values fit is checked before, by
`emulator.kit.go_types`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from windrow.apiserver.types.go_types import ITSELF, Field
from windrow.emulator.kit import go_types
from windrow.emulator.kit.go_types import is_struct
from windrow.emulator.quantities import Quantity
from windrow.kubernetes.objects import Raw

SPEC, AFFINITY = "kubevirt.VirtualMachineSpec", "core.Affinity"
INTEGERS = {"int", "uint", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
# They write themselves.
OWN = {"quantity", "intorstring", "time", "json"}


@cache
def fields_of(struct: str) -> Mapping[str, Field]:
    return {name: field for name, field in go_types.fields_of(struct).items() if name != ITSELF}


def write_as_go(raw: Any, kind: str) -> Any:
    """What Go writes of a value that it has read: known fields alone, canonical quantities, nothing that is empty and may be
    left out. `raw` has no value of another type, and is not changed."""
    if is_struct(kind):
        return _write_struct(raw or {}, kind)
    if kind in OWN:
        return _write_own(raw, kind)
    if raw is None:
        return _EMPTY.get(kind, 0 if kind in INTEGERS else None)
    if kind.startswith("[]"):
        return [write_as_go(one, kind[2:]) for one in raw]
    if kind.startswith("{}"):
        return {key: write_as_go(inner, kind[2:]) for key, inner in raw.items()}
    return raw


_EMPTY: dict[str, Any] = {"string": "", "bool": False}


def _write_struct(raw: Raw, struct: str) -> Raw:
    written = {}
    for name, field in fields_of(struct).items():
        given = raw.get(name)
        value = None if given is None and field.is_pointer else write_as_go(given, field.kind)
        if field.omits_empty and _is_empty(value, field):
            continue
        written[name] = value
    return written


def _is_empty(value: Any, field: Field) -> bool:
    """As `omitempty` has it: a struct never is, nor what a pointer points to."""
    writes_always = is_struct(field.kind) or field.kind in OWN
    if value is None:
        return field.is_pointer or not writes_always
    if field.is_pointer or writes_always:
        return False
    return value in ("", 0, [], {})


def _write_own(raw: object, kind: str) -> object:
    if kind == "quantity":
        return "0" if raw is None else str(Quantity.parse(raw.strip() if isinstance(raw, str) else raw))
    if kind == "intorstring":
        return 0 if raw is None else raw
    return raw
