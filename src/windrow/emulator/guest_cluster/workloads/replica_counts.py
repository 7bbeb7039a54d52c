"""Counts of pods that may be written as a number or as a share of the replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def resolve_count(text_or_number: Any, of: int, rounded: Callable[[float], int]) -> int:
    """The number; of a percentage its share of `of`, rounded as told."""
    text = str(text_or_number)
    if text.endswith("%") and text[:-1].isdigit():
        return rounded(int(text[:-1]) * of / 100)
    return int(text) if text.isdigit() else 0
