"""Text of other programs on one line of a log or message."""

from __future__ import annotations


def one_line(text: str, limit: int | None = None) -> str:
    """`text` without line breaks and control characters, cut to `most` characters with a sign that it was.

    Spaces are kept: docker-machine hosts compare some of these texts.
    """
    parts = "".join("\n" if _is_line_break(letter) else letter for letter in text).split("\n")
    flat = " ".join(part.strip() for part in parts if part.strip())
    shown = "".join(letter if letter.isprintable() else "?" for letter in flat)
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"


def _is_line_break(letter: str) -> bool:
    return letter.isspace() and letter != " "
