"""Renders gob values as the Go reference program does (gobrpc/values.go), and draws random ones of the kinds it has."""

from __future__ import annotations

import json
from base64 import b64encode
from random import Random
from typing import Any

from windrow.protocols.dockermachine import FLAGS, Flag, read_flags, read_options, write_flags, write_options
from windrow.protocols.gob import BYTES, INT, INTERFACE, STRING, Slice, Type

TYPES: dict[str, Type] = {
    "flags": FLAGS,
    "options": INTERFACE,
    "option": INTERFACE,
    "bytes": BYTES,
    "text": STRING,
    "int": INT,
    "strings": Slice(STRING),
}

NAMES = {str: "string", bool: "bool", int: "int", list: "[]string"}
EDGES = (0, 1, -1, 63, 64, -64, -65, 127, 128, 255, 256, -129, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63))


def render_value(kind: str, value: Any) -> str:
    """The line for a value as the decoder gave it, or as it was given to the encoder."""
    return json.dumps(_json_of_kind(kind, value), separators=(",", ":"), sort_keys=True)


def _json_of_kind(kind: str, value: Any) -> Any:
    if kind == "flags":
        return [_json_of_flag(flag) for flag in read_flags(value)]
    if kind in ("options", "option"):
        return {
            _json_of(name): [NAMES[each.__class__], _json_of(each)]
            for name, each in read_options(value).items()
        }
    return _json_of(value)


def _json_of_flag(flag: Flag) -> list[Any]:
    default = list(flag.default) if isinstance(flag.default, tuple) else flag.default
    return [flag.kind, _json_of(flag.name), _json_of(flag.usage), _json_of(flag.env), _json_of(default)]


def _json_of(value: Any) -> Any:
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, list):
        return [_json_of(each) for each in value]
    return value if isinstance(value, bool) else str(value)


# --- random values --------------------------------------------------------------------------------------------------


def random_value(random: Random, kind: str) -> Any:
    return _MAKERS[kind](random)


def _bytes(random: Random) -> bytes:
    return random.randbytes(random.choice((0, 3, 12, 130, 300)))


def _text(random: Random) -> str:
    return random.choice(("", "plain", "grün 世界\n", _bytes(random).decode("utf-8", "surrogateescape")))


def _int(random: Random) -> int:
    return random.choice(
        (random.choice(EDGES), random.randrange(-(1 << 63), 1 << 63), random.randrange(1000))
    )


def _strings(random: Random) -> list[str]:
    return [_text(random) for _ in range(random.randrange(4))]


def _flag(random: Random) -> Flag:
    kind, default = random.choice(
        (("string", _text(random)), ("int", _int(random)), ("bool", False), ("strings", _strings(random)))
    )
    return Flag(kind, _text(random), _text(random), _text(random), default)  # type: ignore[arg-type]


def _flags(random: Random) -> Any:
    return write_flags(_flag(random) for _ in range(random.randrange(12)))


def _option(random: Random) -> Any:
    return random.choice((_text, _int, lambda random: random.random() < 0.5, _strings))(random)


def _options(random: Random) -> Any:
    return write_options({_text(random): _option(random) for _ in range(random.randrange(13))})


def _one_option(random: Random) -> Any:
    return write_options({_text(random): _option(random) for _ in range(random.randrange(2))})


_MAKERS = {
    "flags": _flags,
    "options": _options,
    "option": _one_option,
    "bytes": _bytes,
    "text": _text,
    "int": _int,
    "strings": _strings,
}
