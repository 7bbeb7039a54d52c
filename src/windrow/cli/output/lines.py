"""Styled lines: pieces of text with a tone each; the terminal chooses the colours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from windrow.core.text import printable
from windrow.harvester.problems import split_problems

Tone = Literal["", "good", "bad", "busy", "quiet", "strong"]


@dataclass(frozen=True, slots=True)
class Span:
    """`text` is shown without control characters: what others wrote into an object neither moves the cursor nor ends a
    line."""

    text: str
    tone: Tone = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text))


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


# A command at the start of a line, or after `Try: ` and its like, up to the end of its clause.
_COMMAND = re.compile(r"(?:^|(?<=: )|(?<=→ ))(?:kubectl|windrow|curl|chmod|export) [^;]*;?")


def wrap_line(text: str, width: int) -> list[str]:
    """`text` wrapped under its own indent. A command has a line of its own where the text is wrapped, so that it can be
    copied."""
    stripped = text.lstrip(" ")
    indent = " " * (len(text) - len(stripped))
    if len(text) <= width:
        return [text]
    command = _COMMAND.search(stripped)
    if command is None:
        return wrap(stripped, width, first=indent, rest=f"{indent}  ")
    before, after = stripped[: command.start()], stripped[command.end() :]
    lines = wrap(before, width, first=indent, rest=f"{indent}  ") if before else []
    lines.append(f"{indent}{'  ' * bool(lines)}{command[0].rstrip()}")
    return [*lines, *wrap(after, width, first=f"{indent}  ", rest=f"{indent}  ")] if after.strip() else lines


def wrap_around_command(text: str, width: int) -> list[str]:
    """`text` wrapped; a command at its end, after a colon, has an unbroken line of its own."""
    command = _COMMAND.search(text)
    if command is None or len(text) <= width or text[command.end() :].strip():
        return wrap(text, width)
    return [*wrap(text[: command.start()], width), f"  {command[0].strip()}"]


def wrap_problems(text: str, width: int) -> list[str]:
    """Problems as conditions have them, a line `message; hint` each: a line for each message and hint."""
    lines = []
    for message, hint in split_problems(text):
        lines += wrap(message, width)
        lines += wrap(hint, width, first="→ ", rest="  ") if hint else []
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
