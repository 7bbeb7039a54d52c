"""Adapter module of google-re2: patterns of other people, matched in time linear in the text. As Go's `regexp`.

Python's own `re` backtracks: `^(a+)+$` on forty characters takes minutes, and holds every thread meanwhile. So it never
stands in: a program that matches such patterns does not start without google-re2 (`require_re2`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from windrow.core.errors import UserError

try:
    import re2
except ImportError:
    re2 = None

_MEMORY = 256 * 1024  # of a compiled pattern; what needs more is refused as invalid
# Steps of the slowest way in which RE2 matches: size of its program times length of the text.
MAX_STEPS = 20_000_000


class BadPattern(ValueError):
    """The pattern is none of RE2; the message says why."""


class TextTooLong(ValueError):
    """The text is too long for this pattern to be matched in bounded time."""


class Re2Missing(UserError):
    """google-re2 is not installed."""


def require_re2() -> None:
    """For the start of a program that matches patterns of other people. Raises Re2Missing."""
    if re2 is None:
        raise Re2Missing(
            "google-re2 is not installed, and without it a pattern in a CustomResourceDefinition could block this "
            "program for hours",
            "Install it beside Windrow: pip install google-re2",
        )


@lru_cache(maxsize=512)
def _compile(pattern: str) -> Any:
    require_re2()
    options = re2.Options()
    options.max_mem, options.log_errors = _MEMORY, False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        raise BadPattern(why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)) from None


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text. Raises BadPattern, TextTooLong and Re2Missing."""
    compiled = _compile(pattern)
    if len(text) * compiled.programsize > MAX_STEPS:
        raise TextTooLong(f"{len(text)} characters are too many to be matched with this pattern")
    return compiled.search(text) is not None
