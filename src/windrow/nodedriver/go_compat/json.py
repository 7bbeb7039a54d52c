"""JSON as Go's encoding/json takes it: what it accepts, and the words it refuses with.

Hosts and their users know those words, and the plugin's two JSON inputs (flag values, stored configurations) promise
them. Values are compared with the shape that Go would decode into, and the first mismatch in the order of the
document is told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.nodedriver.go_compat.syntax import GoJsonError, check_syntax


@dataclass(frozen=True, slots=True)
class Scalar:
    """A Go type without parts: string, int, uint or bool. A string that `takes_numbers` keeps them as text."""

    go: str
    takes_numbers: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """A Go struct: its fields in order, each under its JSON name. `short` is the name that field errors use."""

    go: str
    fields: Mapping[str, Shape]

    @property
    def short(self) -> str:
        return self.go.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Slice:
    of: Shape

    @property
    def go(self) -> str:
        return f"[]{self.of.go}"


@dataclass(frozen=True, slots=True)
class Embedded:
    """A field that stands in an embedded struct, which errors name in its path."""

    through: str
    shape: Scalar

    @property
    def go(self) -> str:
        return self.shape.go


Shape = Scalar | Struct | Slice | Embedded

TEXT, INT, UINT, BOOL = Scalar("string"), Scalar("int"), Scalar("uint"), Scalar("bool")

_RANGES = {"int": (-(2**63), 2**63 - 1), "uint": (0, 2**64 - 1)}


def decode(text: bytes, shape: Struct) -> dict[str, Any]:
    """The object in `text` as Go would decode it into `shape`: known keys only, under their own names.

    Keys match in any case, later ones win, `null` stays None. Raises GoJsonError.
    """
    return fit_value(_parse(text), shape)


def fit_value(value: Any, shape: Struct) -> dict[str, Any]:
    """The same for a value that was parsed before."""
    if value is None:
        return {}
    return _fit_struct(value, shape, _Path("", ""))


def _parse(text: bytes) -> Any:
    try:
        return json.loads(
            text.decode("utf-8", "replace"),
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
            object_pairs_hook=_Pairs,
        )
    except (ValueError, RecursionError) as error:
        check_syntax(text)  # finds the same fault, in Go's words
        raise GoJsonError("invalid JSON") from error


def _no_constant(word: str) -> Any:
    """NaN and Infinity, which Python would take."""
    raise ValueError(word)


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written, double keys and all."""


@dataclass(frozen=True, slots=True)
class _Path:
    struct: str
    path: str

    def into(self, struct: str, name: str, through: str = "") -> _Path:
        steps = (self.path, through, name)
        return _Path(struct, ".".join(step for step in steps if step))


def _fit(value: Any, shape: Shape, place: _Path) -> Any:
    if value is None:
        return None
    match shape:
        case Struct():
            return _fit_struct(value, shape, place)
        case Slice(of=of):
            if not isinstance(value, list | tuple) or isinstance(value, _Pairs):
                raise _mismatch(value, shape, place)
            return [_fit(entry, of, place) for entry in value]
        case Embedded(shape=inner):
            return _fit(value, inner, place)
        case Scalar():
            return _fit_scalar(value, shape, place)


def _fit_struct(value: Any, shape: Struct, place: _Path) -> dict[str, Any]:
    if not isinstance(value, _Pairs | Mapping):
        raise _mismatch(value, shape, place)
    folded = {name.lower(): name for name in shape.fields}
    found: dict[str, Any] = {}
    for key, entry in value.items() if isinstance(value, Mapping) else value:
        name = key if key in shape.fields else folded.get(key.lower(), "")
        if not name:
            continue
        inner = shape.fields[name]
        through = inner.through if isinstance(inner, Embedded) else ""
        fitted = _fit(entry, inner, place.into(shape.short, name, through))
        if fitted is not None or name not in found:
            found[name] = fitted
    return found


def _fit_scalar(value: Any, shape: Scalar, place: _Path) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = _Number(value)
    match shape.go, value:
        case "bool", bool():
            return value
        case "string", str() if not isinstance(value, _Number):
            return valid_unicode(value)
        case "string", _Number() if shape.takes_numbers and _whole(value, *_RANGES["int"]) is not None:
            return str(value)
        case "int" | "uint", _Number():
            number = _whole(value, *_RANGES[shape.go])
            if number is None:
                raise _mismatch(value, shape, place, f"number {value}")
            return number
        case _:
            raise _mismatch(value, shape, place)


def _whole(literal: str, low: int, high: int) -> int | None:
    if len(literal) > 20 or not literal.lstrip("-").isdigit():
        return None
    number = int(literal)
    return number if low <= number <= high and not (low == 0 and literal.startswith("-")) else None


def _mismatch(value: Any, shape: Shape, place: _Path, kind: str = "") -> GoJsonError:
    found = kind or _kind(value)
    if not place.struct:
        return GoJsonError(f"json: cannot unmarshal {found} into Go value of type {shape.go}")
    return GoJsonError(
        f"json: cannot unmarshal {found} into Go struct field {place.struct}.{place.path} of type {shape.go}"
    )


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case _Number() | int() | float():
            return "number"
        case str():
            return "string"
        case _Pairs() | Mapping():
            return "object"
        case _:
            return "array"


def valid_unicode(text: str) -> str:
    """`text` with U+FFFD for every half of a surrogate pair, which no UTF-8 can hold; so does Go."""
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if _has_lone_surrogates(text)
        else text
    )


def _has_lone_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
