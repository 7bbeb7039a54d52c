"""JSON as Go's encoding/json takes it: what it accepts, and the words it refuses with.

Hosts and their users know those words, and the plugin's two JSON inputs (flag values, stored configurations) promise
them. Values are compared with the shape that Go would decode into, and the first mismatch in the order of the
document is told. What is no JSON at all is stepped through byte by byte, as Go's scanner does, to say where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Go goes 10000 deep; nothing that is ours is deeper than six.
DEEPEST = 200


class GoJsonError(ValueError):
    """The message is Go's, word for word."""


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
    return fit(_parse(text), shape)


def fit(value: Any, shape: Struct) -> dict[str, Any]:
    """The same for a value that was parsed before."""
    if value is None:
        return {}
    return _fit_struct(value, shape, _Place("", ""))


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
class _Place:
    struct: str
    path: str

    def into(self, struct: str, name: str, through: str = "") -> _Place:
        steps = (self.path, through, name)
        return _Place(struct, ".".join(step for step in steps if step))


def _fit(value: Any, shape: Shape, place: _Place) -> Any:
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


def _fit_struct(value: Any, shape: Struct, place: _Place) -> dict[str, Any]:
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


def _fit_scalar(value: Any, shape: Scalar, place: _Place) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = _Number(value)
    match shape.go, value:
        case "bool", bool():
            return value
        case "string", str() if not isinstance(value, _Number):
            return legal_text(value)
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


def _mismatch(value: Any, shape: Shape, place: _Place, kind: str = "") -> GoJsonError:
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


def legal_text(text: str) -> str:
    """`text` with U+FFFD for every half of a surrogate pair, which no UTF-8 can hold; so does Go."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _has_halves(text) else text


def _has_halves(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


# --- syntax --------------------------------------------------------------------------------------------------------

_SPACE = frozenset(b" \t\r\n")
_DIGITS = frozenset(b"0123456789")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


def check_syntax(text: bytes) -> None:
    """Return where `text` is one JSON value. Raises GoJsonError."""
    scanner = _Scanner()
    for byte in text:
        scanner.step(byte)
    scanner.finish()


class _Scanner:
    """Go's scanner: one byte, one step. `_next` is the state; `_open` are the brackets that are still open."""

    def __init__(self) -> None:
        self._next: Callable[[int], None] = self._value
        self._open: list[int] = []
        self._done = False

    def step(self, byte: int) -> None:
        self._next(byte)

    def finish(self) -> None:
        """The end: Go steps over one more blank, which ends a number, and nothing else that is unfinished."""
        if self._done:
            return
        self._next(ord(" "))
        if not self._done:
            raise GoJsonError("unexpected end of JSON input")

    def _fail(self, byte: int, where: str) -> None:
        raise GoJsonError(f"invalid character {_quoted(byte)} {where}")

    # Values.

    def _value(self, byte: int) -> None:
        if byte in _SPACE:
            return
        match byte:
            case 0x7B:  # {
                self._enter(byte, self._first_key)
            case 0x5B:  # [
                self._enter(byte, self._first_entry)
            case 0x22:
                self._next = self._string(self._after_value)
            case 0x2D:
                self._next = self._minus
            case 0x30:
                self._next = self._after_zero
            case _ if byte in _DIGITS:
                self._next = self._integer
            case _ if byte in _LITERALS:
                self._next = self._literal(_LITERALS[byte], 1)
            case _:
                self._fail(byte, "looking for beginning of value")

    def _enter(self, byte: int, then: Callable[[int], None]) -> None:
        self._open.append(byte)
        if len(self._open) > DEEPEST:
            raise GoJsonError("exceeded max depth")
        self._next = then

    def _first_entry(self, byte: int) -> None:
        if byte in _SPACE:
            return None
        if byte == 0x5D:
            return self._leave()
        self._next = self._value
        self._value(byte)
        return None

    def _first_key(self, byte: int) -> None:
        if byte in _SPACE:
            return None
        if byte == 0x7D:
            return self._leave()
        self._key(byte)
        return None

    def _key(self, byte: int) -> None:
        if byte in _SPACE:
            return
        if byte != 0x22:
            self._fail(byte, "looking for beginning of object key string")
        self._next = self._string(self._after_key)

    def _after_key(self, byte: int) -> None:
        if byte in _SPACE:
            return
        if byte != 0x3A:
            self._fail(byte, "after object key")
        self._next = self._value

    def _leave(self) -> None:
        self._open.pop()
        self._next = self._after_value
        self._done = not self._open

    def _after_value(self, byte: int) -> None:
        if not self._open:
            self._done = True
            self._next = self._after_value
            if byte not in _SPACE:
                self._fail(byte, "after top-level value")
            return None
        if byte in _SPACE:
            self._next = self._after_value
            return None
        in_object = self._open[-1] == 0x7B
        if byte == (0x7D if in_object else 0x5D):
            return self._leave()
        if byte != 0x2C:
            self._fail(byte, "after object key:value pair" if in_object else "after array element")
        self._next = self._key if in_object else self._value
        return None

    # Strings and words.

    def _string(self, then: Callable[[int], None]) -> Callable[[int], None]:
        def inside(byte: int) -> None:
            if byte == 0x22:
                self._next = then
                self._done = then == self._after_value and not self._open
            elif byte == 0x5C:
                self._next = escaped
            elif byte < 0x20:
                self._fail(byte, "in string literal")

        def escaped(byte: int) -> None:
            if byte == 0x75:
                self._next = hexadecimal(4)
            elif byte in b'bfnrt\\/"':
                self._next = inside
            else:
                self._fail(byte, "in string escape code")

        def hexadecimal(left: int) -> Callable[[int], None]:
            def digit(byte: int) -> None:
                if byte not in _HEX:
                    self._fail(byte, "in \\u hexadecimal character escape")
                self._next = hexadecimal(left - 1) if left > 1 else inside

            return digit

        return inside

    def _literal(self, word: bytes, place: int) -> Callable[[int], None]:
        def letter(byte: int) -> None:
            if byte != word[place]:
                self._fail(byte, f"in literal {word.decode()} (expecting {_quoted(word[place])})")
            if place + 1 < len(word):
                self._next = self._literal(word, place + 1)
            else:
                self._next = self._after_value
                self._done = not self._open

        return letter

    # Numbers.

    def _minus(self, byte: int) -> None:
        if byte == 0x30:
            self._next = self._after_zero
        elif byte in _DIGITS:
            self._next = self._integer
        else:
            self._fail(byte, "in numeric literal")

    def _integer(self, byte: int) -> None:
        if byte not in _DIGITS:
            self._after_zero(byte)

    def _after_zero(self, byte: int) -> None:
        if byte == 0x2E:
            self._next = self._point
        elif byte in b"eE":
            self._next = self._exponent
        else:
            self._after_value(byte)

    def _point(self, byte: int) -> None:
        if byte not in _DIGITS:
            self._fail(byte, "after decimal point in numeric literal")
        self._next = self._fraction

    def _fraction(self, byte: int) -> None:
        if byte in _DIGITS:
            return
        if byte in b"eE":
            self._next = self._exponent
        else:
            self._after_value(byte)

    def _exponent(self, byte: int) -> None:
        if byte in b"+-":
            self._next = self._exponent_digit
        else:
            self._exponent_digit(byte)

    def _exponent_digit(self, byte: int) -> None:
        if byte not in _DIGITS:
            self._fail(byte, "in exponent of numeric literal")
        self._next = self._exponent_digits

    def _exponent_digits(self, byte: int) -> None:
        if byte not in _DIGITS:
            self._after_value(byte)


_ESCAPES = {7: "a", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t", 11: "v", 0x5C: "\\", 0x27: "'"}


def _quoted(byte: int) -> str:
    """One byte as Go prints it, taken for the character of that number."""
    if byte in _ESCAPES:
        return f"'\\{_ESCAPES[byte]}'"
    if chr(byte).isprintable():
        return f"'{chr(byte)}'"
    return f"'\\x{byte:02x}'" if byte < 0x80 else f"'\\u{byte:04x}'"
