"""Styled lines: pieces of text with a tone each; the terminal chooses the colours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Tone = Literal["", "good", "bad", "busy", "quiet", "strong"]


@dataclass(frozen=True, slots=True)
class Span:
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class StyledLine:
    spans: tuple[Span, ...] = ()

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans).rstrip()

    def __add__(self, other: StyledLine) -> StyledLine:
        return StyledLine(self.spans + other.spans)


def line(*parts: str | tuple[str, Tone]) -> StyledLine:
    """A line of plain texts and (text, tone) pairs."""
    return StyledLine(tuple(Span(part) if isinstance(part, str) else Span(*part) for part in parts))


def to_text(lines: Iterable[StyledLine]) -> list[str]:
    """The lines as text alone."""
    return [one.text for one in lines]


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """`text` broken between words so that no line is wider; a longer word has a line of its own."""
    lines, current = [], first
    empty = True
    for word in text.split():
        if not empty and len(current) + 1 + len(word) > width:
            lines.append(current)
            current, empty = rest, True
        current += word if empty else f" {word}"
        empty = False
    return [*lines, current] if not empty or first else lines


def wrap_problems(text: str, width: int) -> list[str]:
    """Problems joined as conditions join them, `message; hint; message; hint`: a line for each message and hint.

    A text that does not come in pairs is left whole.
    """
    parts = text.split("; ")
    if len(parts) % 2:
        return wrap(text, width)
    lines = []
    for message, hint in zip(parts[::2], parts[1::2], strict=True):
        lines += [*wrap(message, width), *wrap(hint, width, first="→ ", rest="  ")]
    return lines


def truncate(text: str, width: int) -> str:
    """`text`, truncated at the end where it is too wide: for sentences."""
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def elide_middle(text: str, width: int) -> str:
    """`text`, shortened in the middle where it is too wide: for names, whose ends differ."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
