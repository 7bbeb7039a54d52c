"""What is wrong with a span of time, in Go's words, and how to write it."""

from __future__ import annotations

import re

from windrow.core.duration import NotDuration, parse_duration

_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([^.0-9]*)")
_UNITS = ("h", "m", "s", "ms", "us", "\u00b5s", "\u03bcs", "ns")


def explain_duration(text: str) -> str:
    """Why `text`, which `parse_duration` refuses, is none."""
    rest = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    while part := _PART.match(rest):
        unit = part[2]
        if not unit:
            hint = f"write {text}s" if _is_duration(f"{text}s") else "write numbers with h, m, s or ms"
            return f'time: missing unit in duration "{text}": {hint}'
        if unit not in _UNITS:
            return f'time: unknown unit "{unit}" in duration "{text}": write numbers with h, m, s or ms'
        rest = rest[part.end() :]
    return f'time: invalid duration "{text}": write it like 90s, 5m or 1h30m'


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except NotDuration:
        return False
    return True
