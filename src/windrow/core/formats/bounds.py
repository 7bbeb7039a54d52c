"""Bounds of short texts: what a duration, a quantity, a percentage or a version may be long before it is looked into.

Regular expressions and `int()` take time by the square of their text, and `int()` refuses more than 4300 digits.
"""

from __future__ import annotations

MAX_LENGTH = 64  # the longest that Kubernetes itself writes, a version with its build, has about 40


def is_too_long(text: str) -> bool:
    return len(text) > MAX_LENGTH


def abbreviate(value: object) -> str:
    """`value` as Python writes it, of at most 64 characters, and how many there are; it never fails."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = value if isinstance(value, str) else repr(value)
    if not is_too_long(text):
        return repr(value)
    return f"{text[:16]!r}… ({len(text)} characters)"
