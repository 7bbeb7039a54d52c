"""Labels and annotations that were written, in the words of the log. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def describe_entries(what: str, entries: Iterable[tuple[str, str | None]]) -> str:
    """Which labels or annotations were written; None took one away. "" for none."""
    known = tuple(entries)
    written = ", ".join(f"{key}={value}" for key, value in known if value is not None)
    removed = ", ".join(key for key, value in known if value is None)
    parts = [f"{what} {keys} {verb}" for keys, verb in ((written, "set"), (removed, "removed")) if keys]
    return " and ".join(parts)
