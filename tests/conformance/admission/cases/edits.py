"""Objects made from others by edits that a table can hold: a path and what is put there."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from windrow.kubernetes.objects import Raw

REMOVE: Final = object()

# Beginnings of paths into a VM.
SHORT = {
    "T.": "spec.template.spec.",
    "D.": "spec.template.spec.domain.",
    "V.": "spec.template.spec.domain.devices.",
    "A/": "metadata.annotations/",
    "L/": "metadata.labels/",
}

Edits = Mapping[str, Any]


def edited(raw: Raw, edits: Edits) -> Raw:
    """A copy with each path set, or removed for REMOVE. `a.b.0.c` goes through lists, `a.b.+` appends, `a/key.with.dots` ends in a key."""
    made = copy.deepcopy(raw)
    for path, value in edits.items():
        _set(made, path, copy.deepcopy(value) if value is not REMOVE else REMOVE)
    return made


def _set(raw: Raw, path: str, value: Any) -> None:
    for short, whole in SHORT.items():
        if path.startswith(short):
            path = whole + path.removeprefix(short)
    front, slash, last = path.partition("/")
    steps = front.split(".")
    if not slash:
        last = steps.pop()
    at: Any = raw
    for step in steps:
        if isinstance(at, list):
            at = at[int(step)]
        else:
            if at.get(step) is None:
                at[step] = {}
            at = at[step]
    if isinstance(at, list):
        if last == "+":
            at.append(value)
        elif value is REMOVE:
            del at[int(last)]
        else:
            at[int(last)] = value
    elif value is REMOVE:
        at.pop(last, None)
    else:
        at[last] = value
