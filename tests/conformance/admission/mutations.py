"""Valid requests, changed at random: a field removed, of another type, at its bounds, doubled, or taken from elsewhere."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from tests.conformance.admission.asking import Question

# What fields are set to; a number's neighbours come on top.
VALUES: tuple[Any, ...] = (
    None, "", " ", "a", "A", "a.b", "a/b", "-a", "ä", "x" * 64, "x" * 254, "true", "0", "-1", "1Gi", "1.5", "null",
    "default/vlan50", "running-disk-0", 0, 1, -1, 2**31, 2**53, 1.5, True, False, [], {}, [None], [{}], {"a": "b"},
)  # fmt: skip
# What an API server keeps itself, and what says which kind is meant: changed, these test the server and not admission.
FIXED = {
    "apiVersion",
    "kind",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
    "status",
}
FIXED_PATHS = {
    ("metadata",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "ownerReferences"),
}

Path = tuple[Any, ...]


def _paths(value: Any, path: Path = ()) -> list[Path]:
    if isinstance(value, dict):
        inner = [(key, one) for key, one in value.items() if path or key not in FIXED]
    elif isinstance(value, list):
        inner = list(enumerate(value))
    else:
        return []
    found = []
    for key, one in inner:
        here = (*path, key)
        if here not in FIXED_PATHS and not (path == ("metadata",) and key in FIXED):
            found.append(here)
        found += _paths(one, here)
    return found


def _parent(raw: Any, path: Path) -> Any:
    for step in path[:-1]:
        raw = raw[step]
    return raw


def _change(raw: Any, rng: random.Random) -> str:
    """Changes one thing in place; says what."""
    paths = _paths(raw)
    if not paths:
        return "nothing"
    path = rng.choice(paths)
    parent, last = _parent(raw, path), path[-1]
    where = ".".join(map(str, path))
    match rng.randrange(6):
        case 0:
            del parent[last]
            return f"{where} removed"
        case 1:
            source = rng.choice(paths)
            parent[last] = copy.deepcopy(_parent(raw, source)[source[-1]])
            return f"{where} as {'.'.join(map(str, source))}"
        case 2 if isinstance(parent, list):
            parent.insert(last, copy.deepcopy(parent[last]))
            return f"{where} twice"
        case 3 if isinstance(parent[last], int) and not isinstance(parent[last], bool):
            parent[last] += rng.choice((-1, 1))
            return f"{where} = {parent[last]}"
        case 4 if isinstance(parent[last], str) and parent[last]:
            text = parent[last]
            parent[last] = rng.choice((text.upper(), text + "x", text[1:], text * 2, text + " "))
            return f"{where} = {parent[last]!r:.60}"
        case _:
            parent[last] = copy.deepcopy(rng.choice(VALUES))
            return f"{where} = {parent[last]!r:.60}"


def mutated(valid: Sequence[Question], number: int, seed: int) -> Question:
    """The mutation of that number, the same for the same seed and the same valid requests."""
    rng = random.Random(f"{seed}/{number}")
    # By a hash of its name, so that most mutations stay what they are when cases are added.
    question = min(valid, key=lambda one: crc32(f"{seed}/{number}/{one.key}".encode()))
    raw = copy.deepcopy(question.object)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(raw, rng)
    return replace(question, name=f"mutation {number} of {question.name}", object=raw)
