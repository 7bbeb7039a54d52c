"""Text of other programs on one line of a log or message, and text as base64."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence


def one_line(text: str, limit: int | None = None) -> str:
    """`text` without line breaks and control characters, cut to `limit` characters with a sign that it was.

    Spaces are kept: docker-machine hosts compare some of these texts.
    """
    parts = "".join("\n" if _is_line_break(letter) else letter for letter in text).split("\n")
    flat = " ".join(part.strip() for part in parts if part.strip())
    shown = printable(flat)
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"


def join_some(texts: Sequence[object], limit: int = 3, separator: str = ", ") -> str:
    """The first of the texts, and how many there are besides: `a, b, c and 2 more`, of sentences `a; b; and 2 more`."""
    more = f"{separator.rstrip(', ')} and {len(texts) - limit} more" if len(texts) > limit else ""
    return f"{separator.join(map(str, texts[:limit]))}{more}"


def printable(text: str, besides: str = "") -> str:
    """`text` with a `?` for each character that a terminal would obey instead of show; those of `besides` stay."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in besides else "?" for letter in text)


def _is_line_break(letter: str) -> bool:
    return letter.isspace() and letter != " "


def collapse_whitespace(text: object) -> str:
    """`text` with each run of line breaks and spaces as one space: a parser's message of several lines as a sentence."""
    return " ".join(str(text).split())


def encode_base64(text: str) -> str:
    return b2a_base64(text.encode(), newline=False).decode()


def decode_base64(encoded: str, errors: str = "strict") -> str:
    """The UTF-8 text; `errors` as in `bytes.decode`. Raises ValueError where `encoded`, but for spaces, is no base64."""
    return a2b_base64("".join(encoded.split()), strict_mode=True).decode(errors=errors)
