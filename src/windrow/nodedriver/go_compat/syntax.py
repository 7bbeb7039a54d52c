"""What Go's encoding/json takes for JSON at all: its scanner, byte by byte, and its words for the first byte that does not fit."""

from __future__ import annotations

from collections.abc import Callable

# Go goes 10000 deep; nothing that is ours is deeper than six.
DEEPEST = 200


class GoJsonError(ValueError):
    """The message is Go's, word for word."""


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
