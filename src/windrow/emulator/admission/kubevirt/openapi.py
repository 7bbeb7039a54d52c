"""KubeVirt's check of a VM by its own OpenAPI, in its mutator: what Go's types let pass (v1.7.0).

Its messages name neither a list's index nor a field apart from the text. Go walks its maps in no order; here they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windrow.emulator.admission.kubevirt.causes import Cause
from windrow.emulator.admission.kubevirt.typed import INTEGERS, SPEC, fields_of
from windrow.emulator.kit.go_types import is_struct, table
from windrow.kubernetes.objects import Raw


def find_schema_causes(vm: Raw) -> list[Cause]:
    """Without a field or a reason."""
    if vm.get("spec") is None:
        found = ["spec in body is required", 'spec in body must be of type object: "null"']
    else:
        found = list(_faults(vm["spec"], SPEC, "spec"))
    return [Cause(message, "", "") for message in found]


def _faults(value: Any, kind: str, at: str) -> Iterator[str]:
    if is_struct(kind):
        yield from _struct_faults(value, kind, at)
    elif kind.startswith("[]"):
        if value is None:
            yield f'{at} in body must be of type array: "null"'
        for one in value or ():
            yield from _faults(one, kind[2:], at)
    elif kind.startswith("{}"):
        if value is None:
            yield f'{at} in body must be of type object: "null"'
        for key, inner in sorted((value or {}).items()):
            yield from _faults(inner, kind[2:], f"{at}.{key}")
    elif value is None and kind != "time":
        yield f'{at} in body must be of type {_SHOWN.get(kind, "integer" if kind in INTEGERS else kind)}: "null"'
    elif kind in INTEGERS and abs(value) >= 1 << 53:  # no integer to JavaScript, whose numbers are doubles
        yield f'{at} in body must be of type {_FORMATS.get(kind, "int32")}: "float64"'


_FORMATS = dict.fromkeys(("int64", "uint32", "uint64"), "int64")
_SHOWN = {"bool": "boolean", **dict.fromkeys(("quantity", "intorstring", "json", "bytes"), "string")}


def _struct_faults(value: Any, struct: str, at: str) -> Iterator[str]:
    if value is None:
        yield f'{at} in body must be of type object: "null"'
        return
    fields, enums = fields_of(struct), table()["enums"].get(struct, {})
    for name in sorted(value):
        if name not in fields:
            yield f"{at}.{name} in body is a forbidden property"
    for name in sorted(value):
        if name in fields:
            yield from _faults(value[name], fields[name].kind, f"{at}.{name}")
        if value[name] is not None and name in enums and value[name] not in enums[name]:
            yield f"{at}.{name} in body should be one of [{' '.join(enums[name])}]"
    for name in table()["required"].get(struct, ()):
        if name not in value:
            yield f"{at}.{name} in body is required"
