"""Tolerant readings of values whose type in a user's document may be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_list(value: Any) -> list[Any]:
    """`value` if it is a list, one text as a list of one, else nothing."""
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, str) and value else []


def as_mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def mappings_in(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list; other items are left out."""
    return [one for one in as_list(value) if isinstance(one, Mapping)]
