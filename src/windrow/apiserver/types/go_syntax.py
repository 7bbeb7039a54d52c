"""What Go's encoding/json says of a text that it cannot decode: webhooks answer with these words."""

from __future__ import annotations

import re
from typing import NoReturn

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_WORDS = ("true", "false", "null")
END = "unexpected end of JSON input"
MOST_NESTED = 200  # Go: 10,000; a text this deep is refused either way


class _Wrong(Exception):
    pass


def syntax_error(text: str) -> str:
    """Of a text that is no JSON. The place where a string or a word breaks off is told as Go tells the first one."""
    try:
        end = _skip(text, _value(text, _skip(text, 0), 0))
        if end < len(text):
            _wrong(text, end, "after top-level value")
    except _Wrong as wrong:
        return str(wrong)
    return END


def kind_of(value: object) -> str:
    """The JSON kind in Go's words."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object" if isinstance(value, dict) else "null"


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _wrong(text: str, at: int, where: str) -> NoReturn:
    if at >= len(text):
        raise _Wrong(END)
    byte = chr(text[at].encode()[0])  # Go reads bytes
    sign = {"'": "'\\''", '"': "'\"'"}.get(byte, f"'{byte}'")
    raise _Wrong(f"invalid character {sign} {where}")


def _value(text: str, at: int, depth: int) -> int:
    """The end of the value at `at`."""
    if depth > MOST_NESTED:
        raise _Wrong("exceeded max depth")
    sign = text[at : at + 1]
    if sign == "{":
        return _members(text, at, depth, "}", "object key:value pair")
    if sign == "[":
        return _members(text, at, depth, "]", "array element")
    if sign == '"':
        return _string(text, at)
    for word in _WORDS:
        if sign == word[0]:
            for place, letter in enumerate(word):
                if text[at + place : at + place + 1] != letter:
                    _wrong(text, at + place, f"in literal {word} (expecting '{letter}')")
            return at + len(word)
    number = _NUMBER.match(text, at)
    if number:
        return number.end()
    if sign == "-":
        _wrong(text, at + 1, "in numeric literal")
    _wrong(text, at, "looking for beginning of value")


def _members(text: str, at: int, depth: int, close: str, member: str) -> int:
    is_object = close == "}"
    at = _skip(text, at + 1)
    if text[at : at + 1] == close:
        return at + 1
    while True:
        if is_object:
            if text[at : at + 1] != '"':
                _wrong(text, at, "looking for beginning of object key string")
            at = _skip(text, _string(text, at))
            if text[at : at + 1] != ":":
                _wrong(text, at, "after object key")
            at = _skip(text, at + 1)
        at = _skip(text, _value(text, at, depth + 1))
        if text[at : at + 1] == close:
            return at + 1
        if text[at : at + 1] != ",":
            _wrong(text, at, f"after {member}")
        at = _skip(text, at + 1)


def _string(text: str, at: int) -> int:
    found = _STRING.match(text, at)
    if found:
        return found.end()
    for place in range(at + 1, len(text)):
        if text[place] < " ":
            _wrong(text, place, "in string literal")
        if text[place] == "\\":
            follows = text[place + 1 : place + 2]
            if follows and follows not in '"\\/bfnrtu':
                _wrong(text, place + 1, "in string escape code")
    raise _Wrong(END)
