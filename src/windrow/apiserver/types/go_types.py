"""Go's decoding of JSON into structs: what it says of a value of another type, and what remains of one that it takes.

The structs are tables written by reflection (`field_types`, `emulator.kit.go_types`). The promises of `encoding/json`: a
value that decodes itself, such as a quantity, ends the decoding, else the first field in the order of the text is told; a
null leaves the zero value; what no field takes is dropped; quantities are written back in their canonical form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from windrow.apiserver.types.schema import drop_nulls
from windrow.core.formats.quantity import WRONG_FORM, NotQuantity, Quantity

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """How a field is decoded: a scalar of `_SCALARS`, `[]kind`, `{}kind`, or the name of a struct."""

    kind: str
    go_type: str
    by_way_of: str = ""  # the embedded structs that hold it, as newer Go tells them: "DiskDevice."
    # How it is written, where the table says so: nil where a pointer has no value, not at all where it omits what is empty.
    is_pointer: bool = False
    omits_empty: bool = False

    def element(self) -> Field:
        """The items of a list, or the values of a map."""
        return _element(self)


@cache  # as many as the tables have; each object is read by the same ones
def _element(field: Field) -> Field:
    inner = field.kind[2:]
    if field.kind.startswith("[]") and field.go_type.startswith("[]"):
        return Field(inner, field.go_type[2:].removeprefix("*"))
    if field.kind.startswith("{}") and field.go_type.startswith("map["):
        return Field(inner, field.go_type.partition("]")[2].removeprefix("*"))
    return Field(inner, usual_type(inner))


# A struct of this field decodes itself by way of another type: faults in it are told of the struct around it.
ITSELF = "*"

Structs = Callable[[str], Mapping[str, Field]]

_INTEGERS = {
    "int": (-(2**63), 2**63 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint": (0, 2**64 - 1),
    "uint32": (0, 2**32 - 1),
    "uint8": (0, 2**8 - 1),
}
_NUMBERS = ("number", "float64")
_ZERO: dict[str, Any] = {"string": "", "bool": False, **dict.fromkeys(_INTEGERS, 0), "quantity": "0"}
_USUAL = {
    "int": "int64",
    "bytes": "[]uint8",
    "time": "string",
    "microtime": "string",
    "duration": "string",
    "intorstring": "int32",
    "number": "float64",
}


def usual_type(kind: str) -> str:
    """What Go calls a type where the table says nothing else."""
    if kind.startswith("[]"):
        return f"[]{usual_type(kind[2:])}"
    if kind.startswith("{}"):
        return f"map[string]{usual_type(kind[2:])}"
    return f"v1.{kind.rpartition('.')[2]}" if "." in kind else _USUAL.get(kind, kind)


# --- faults ----------------------------------------------------------------------------------------------------------


class _Ended(Exception):
    """A value that decodes itself could not: the decoding ends with its words."""


@dataclass(slots=True)  # one for each value of a request: a frozen one takes three times as long to make
class _Place:
    """Of a value: the struct that is named, the path, and whether keys come sorted, as webhooks are sent them."""

    structs: Structs
    owner: str
    path: str
    is_sorted: bool
    faults: list[str]  # that the decoding has gone on after
    is_fixed: bool = False  # below a struct that decodes itself

    def at(self, struct: str, name: str) -> _Place:
        owner = self.owner if self.is_fixed else struct.rpartition(".")[2]
        path = f"{self.path}.{name}" if self.path else name
        return _Place(self.structs, owner, path, self.is_sorted, self.faults, self.is_fixed)

    def items(self, value: Raw) -> Iterable[tuple[str, Any]]:
        return sorted(value.items()) if self.is_sorted else value.items()

    def sentence(self, value: Any, go_type: str) -> str:
        where = f"struct field {self.owner}.{self.path}" if self.path else "value"
        return f"json: cannot unmarshal {_found(value, go_type)} into Go {where} of type {go_type}"

    def refuse(self, value: Any, go_type: str) -> None:
        if not self.faults:  # the first one is told; a hostile body has a million
            self.faults.append(self.sentence(value, go_type))


def find_mistyped(
    structs: Structs, struct: str, value: Any, *, is_sorted: bool = False, root: str = ""
) -> str:
    """What Go says of the first value that its field does not take; "" without one. `root`: the field that `value` is in."""
    place = _Place(structs, "", "", is_sorted, [])
    if root:
        place = place.at(struct, root)
    try:
        _check(Field(struct, usual_type(struct)), value, place)
    except _Ended as end:
        return str(end)
    return place.faults[0] if place.faults else ""


def _check_struct(struct: str, value: Raw, place: _Place) -> None:
    fields = place.structs(struct)
    for name, inner in place.items(value):
        field = fields.get(name)
        if field is None or inner is None or name == ITSELF:
            continue
        if type(inner) is not _ALWAYS_TAKEN.get(field.kind):
            _check(field, inner, place.at(struct, f"{field.by_way_of}{name}"))


def _check(field: Field, value: Any, place: _Place) -> None:
    kind = field.kind
    if kind.startswith(("[]", "{}")):
        if not isinstance(value, list if kind.startswith("[]") else dict):
            place.refuse(value, field.go_type)
            return
        element = field.element()
        inner = value if isinstance(value, list) else [one for _, one in place.items(value)]
        for one in inner:
            if one is not None:
                _check(element, one, place)
    elif kind.endswith("OrBool"):
        if not isinstance(value, bool):
            struct = kind.removesuffix("OrBool")
            _check(Field(struct, usual_type(struct)), value, place)
    elif kind in _FAULTS:
        _FAULTS[kind](field, value, place)
    else:
        _check_inner(field, value, place)


def _check_inner(field: Field, value: Any, place: _Place) -> None:
    itself = place.structs(field.kind).get(ITSELF)
    if itself is None:
        if isinstance(value, dict):
            _check_struct(field.kind, value, place)
        else:
            place.refuse(value, field.go_type)
        return
    if not isinstance(value, dict):
        raise _Ended(place.sentence(value, itself.go_type))
    inner = replace(place, is_fixed=bool(place.path), faults=[])
    _check_struct(field.kind, value, inner)
    if inner.faults:
        raise _Ended(inner.faults[0])


def _check_text(field: Field, value: Any, place: _Place) -> None:
    if not isinstance(value, str):
        place.refuse(value, field.go_type)


def _check_own_text(field: Field, value: Any, place: _Place) -> None:
    if not isinstance(value, str):
        raise _Ended(place.sentence(value, field.go_type))


# time.RFC3339; of Go's words about a text of another form the usual: that it does not begin with a year.
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")


def _check_time(field: Field, value: Any, place: _Place) -> None:
    _check_own_text(field, value, place)
    if not _RFC3339.fullmatch(value):
        raise _Ended(
            f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"'
        )


def _check_bool(field: Field, value: Any, place: _Place) -> None:
    if not isinstance(value, bool):
        place.refuse(value, field.go_type)


def _is_integer(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _check_integer(field: Field, value: Any, place: _Place) -> None:
    if not _is_integer(value, *(_INTEGERS.get(field.go_type) or _INTEGERS[field.kind])):
        place.refuse(value, field.go_type)


def _check_number(field: Field, value: Any, place: _Place) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        place.refuse(value, field.go_type)


def _check_int_or_string(field: Field, value: Any, place: _Place) -> None:
    if not (isinstance(value, str) or _is_integer(value, *_INTEGERS["int32"])):
        raise _Ended(place.sentence(value, field.go_type))


def _check_quantity(field: Field, value: Any, place: _Place) -> None:
    # A quantity reads the text of any value.
    has_text = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if why := _quantity_fault(str(value)) if has_text else WRONG_FORM:
        raise _Ended(why)


# What needs no look, and no place: most values of an object.
_ALWAYS_TAKEN: dict[str, type] = {
    "string": str,
    "bytes": str,
    "bool": bool,
    "duration": str,
    "microtime": str,
}

_FAULTS: dict[str, Callable[[Field, Any, _Place], None]] = {
    **dict.fromkeys(("string", "bytes"), _check_text),
    **dict.fromkeys(("microtime", "duration"), _check_own_text),
    "time": _check_time,
    "bool": _check_bool,
    **dict.fromkeys(_INTEGERS, _check_integer),
    **dict.fromkeys(_NUMBERS, _check_number),
    "intorstring": _check_int_or_string,
    "quantity": _check_quantity,
    "json": lambda field, value, place: None,
}

# Without digits it is nothing, of its suffix.
_QUANTITY = re.compile(r"\s*(?=\S)[+-]?[0-9]*\.?[0-9]*(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?\s*")
_QUANTITY_PARTS = re.compile(r"\s*[+-]?[0-9]*(?:\.[0-9]*)?[eEinumkKMGTP]*[-+]?[0-9]*\s*")


def _quantity_fault(text: str) -> str:
    if _QUANTITY.fullmatch(text):
        return ""
    has_form = text.strip() and _QUANTITY_PARTS.fullmatch(text)
    return "unable to parse quantity's suffix" if has_form else WRONG_FORM


def _found(value: Any, go_type: str) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return f"number {value}" if go_type in _INTEGERS else "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "null"


# --- what remains ----------------------------------------------------------------------------------------------------


def keep_known(structs: Structs, struct: str, value: Raw, *, keeps_unknown: bool = False) -> list[str]:
    """Makes `value`, in which nothing is mistyped, what Go writes after it has read it; returns the paths of unknown fields.

    In place, and may be repeated. What Go adds, such as fields without omitempty, is not added. `keeps_unknown`: for a table
    that does not have all fields.
    """
    reader = _Reader(structs, keeps_unknown, [])
    reader.keep_struct(struct, value, "")
    return reader.unknown


@dataclass(frozen=True, slots=True)
class _Reader:
    structs: Structs
    keeps_unknown: bool
    unknown: list[str]

    def keep_struct(self, struct: str, value: Raw, path: str) -> None:
        fields = self.structs(struct)
        for name in list(value):
            here = f"{path}.{name}" if path else name
            field = fields.get(name)
            if (field is None or name == ITSELF) and not self.keeps_unknown:
                del value[name]
                self.unknown.append(here)
            elif value[name] is None:
                del value[name]
            elif field is not None:
                value[name] = self._keep(field, value[name], here)
            else:
                drop_nulls(value[name])

    def _keep(self, field: Field, value: Any, path: str) -> Any:
        kind = field.kind.removesuffix("OrBool")
        if value is None:
            return _ZERO.get(kind) if kind in _FAULTS or kind.startswith(("[]", "{}")) else {}
        if kind.startswith("[]"):
            return [self._keep(field.element(), one, f"{path}[{place}]") for place, one in enumerate(value)]
        if kind.startswith("{}"):
            return {key: self._keep(field.element(), one, f"{path}.{key}") for key, one in value.items()}
        if kind not in _FAULTS and isinstance(value, dict):
            self.keep_struct(kind, value, path)
        return value


def write_quantities(structs: Structs, struct: str, value: Raw) -> None:
    """Gives each quantity of `value`, in place, the form in which Go writes it: after validation, which tells what was sent."""
    for name, field in _fields_with_quantities(structs, struct).items():
        if value.get(name) is not None:
            value[name] = _written(field, value[name], structs)


def _written(field: Field, value: Any, structs: Structs) -> Any:
    kind = field.kind
    if kind.startswith("[]"):
        return [_written(field.element(), one, structs) for one in value]
    if kind.startswith("{}"):
        return {key: _written(field.element(), one, structs) for key, one in value.items()}
    if kind == "quantity":
        return _canonical(value)
    write_quantities(structs, kind, value)
    return value


@cache
def _fields_with_quantities(structs: Structs, struct: str) -> Mapping[str, Field]:
    fields = structs(struct).items()
    return {
        name: field for name, field in fields if name != ITSELF and _has_quantities(structs, field, {struct})
    }


def _has_quantities(structs: Structs, field: Field, above: set[str]) -> bool:
    if field.kind.startswith(("[]", "{}")):
        return _has_quantities(structs, field.element(), above)
    if field.kind in _FAULTS or field.kind in above:
        return field.kind == "quantity"
    inner = structs(field.kind).values()
    return any(_has_quantities(structs, one, above | {field.kind}) for one in inner)


def _canonical(value: Any) -> Any:
    try:
        return str(Quantity.parse(str(value).strip()))
    except NotQuantity:
        return value  # beyond what Go keeps exactly
