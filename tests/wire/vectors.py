"""The vector file: bytes that Go wrote, and what they mean (reference/01 §2.9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windrow.protocols.gob import Interface

FILE = Path(__file__).parents[3] / "shared" / "reference" / "gob-vectors.json"

needs_vectors = pytest.mark.skipif(not FILE.is_file(), reason=f"{FILE} is not here")

VECTORS: dict[str, dict[str, Any]] = json.loads(FILE.read_text()) if FILE.is_file() else {}


def names(*prefixes: str) -> list[str]:
    return [name for name in VECTORS if name.startswith(prefixes)]


def stream(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name]["hex"])


def expected(name: str) -> list[Any]:
    return [as_value(each) for each in VECTORS[name]["expect"]]


def as_value(raw: Any) -> Any:
    """The file's JSON form of a value, as the decoder gives it."""
    if isinstance(raw, list):
        return [as_value(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    if "@bytes" in raw:
        return bytes.fromhex(raw["@bytes"])
    if "@iface" in raw:
        return Interface(raw["@iface"], as_value(raw["value"]))
    return {name: as_value(each) for name, each in raw.items()}
