"""Random types, values of them, and what such a value is after a journey."""

from __future__ import annotations

from random import Random
from typing import Any

from windrow.protocols.gob import (
    BOOL,
    BYTES,
    FLOAT,
    INT,
    INTERFACE,
    STRING,
    UINT,
    Interface,
    MapOf,
    Slice,
    Struct,
    Type,
)

SCALARS = (BOOL, INT, UINT, FLOAT, BYTES, STRING)
INTEGERS = (0, 1, -1, 63, 64, -64, -65, 127, 128, 255, 256, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63))
TEXTS = ("", "a", "text", "grün 世界", "\udcff\udc80", "x" * 200, "line\nline")


def random_registry(random: Random, count: int) -> dict[str, Type]:
    """Types for interfaces. Each may hold interfaces, but not below the given depth."""
    return {f"*made.T{number}": random_type(random, 2) for number in range(count)} | {
        "string": STRING,
        "int": INT,
        "[]string": Slice(STRING),
    }


def random_type(random: Random, depth: int) -> Type:
    if depth == 0 or random.random() < 0.3:
        return random.choice((*SCALARS, INTERFACE))
    kind = random.choice("slm")
    if kind == "l":
        return Slice(random_type(random, depth - 1))
    if kind == "m":
        return MapOf(random.choice((STRING, INT, UINT, BOOL, BYTES)), random_type(random, depth - 1))
    fields = tuple((f"F{number}", random_type(random, depth - 1)) for number in range(random.randrange(5)))
    return Struct(random.choice(("", "Some", "Other")), fields)


def random_value(random: Random, type: Type, registry: dict[str, Type], depth: int = 3) -> Any:
    """A value of the type; interfaces are nil below the depth."""
    if isinstance(type, Slice):
        return [random_value(random, type.elem, registry, depth) for _ in range(random.randrange(4))]
    if isinstance(type, MapOf):
        return {
            random_value(random, type.key_type, registry, depth): random_value(
                random, type.elem, registry, depth
            )
            for _ in range(random.randrange(4))
        }
    if isinstance(type, Struct):
        return {
            name: random_value(random, field, registry, depth)
            for name, field in type.fields
            if random.random() < 0.8
        }
    if type == INTERFACE:
        return _random_boxed(random, registry, depth)
    return _random_scalar(random, type)


def _random_boxed(random: Random, registry: dict[str, Type], depth: int) -> Interface | None:
    if depth == 0 or random.random() < 0.2:
        return None
    name = random.choice(sorted(registry))
    return Interface(name, random_value(random, registry[name], registry, depth - 1))


def _random_scalar(random: Random, type: Type) -> Any:
    if type == BOOL:
        return random.random() < 0.5
    if type == INT:
        return random.choice((random.choice(INTEGERS), random.randrange(-(1 << 63), 1 << 63)))
    if type == UINT:
        return random.choice((abs(random.choice(INTEGERS)), random.randrange(1 << 64)))
    if type == FLOAT:
        return random.choice((0.0, 1.5, -17.0, random.gauss(0, 1e9)))
    if type == BYTES:
        return random.randbytes(random.choice((0, 1, 5, 200)))
    return random.choice(TEXTS)


def as_received(type: Type, value: Any, registry: dict[str, Type]) -> Any:
    """The value as it arrives: a struct without the fields that are zero, which Go leaves out."""
    if isinstance(type, Slice):
        return [as_received(type.elem, each, registry) for each in value]
    if isinstance(type, MapOf):
        return {key: as_received(type.elem, each, registry) for key, each in value.items()}
    if isinstance(type, Struct):
        return {
            name: as_received(field, value[name], registry)
            for name, field in type.fields
            if name in value and _is_sent(field, value[name])
        }
    if isinstance(value, Interface):
        return Interface(value.name, as_received(registry[value.name], value.value, registry))
    return value


def _is_sent(type: Type, value: Any) -> bool:
    return isinstance(type, MapOf | Struct) or value not in (None, False, 0, "", b"", [])
