"""Texts of strangers, made fit to stand in a line of ours."""

from __future__ import annotations


def one_line(text: str, most: int | None = None) -> str:
    """`text` without line breaks and control characters, cut to `most` characters with a sign that it was.

    Spaces stay as they are: there are texts that hosts compare.
    """
    parts = "".join("\n" if _breaks(letter) else letter for letter in text).split("\n")
    flat = " ".join(part.strip() for part in parts if part.strip())
    shown = "".join(letter if letter.isprintable() else "?" for letter in flat)
    return shown if most is None or len(shown) <= most else f"{shown[: most - 1]}…"


def _breaks(letter: str) -> bool:
    return letter.isspace() and letter != " "
