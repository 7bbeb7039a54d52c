"""The demo's lines: timeline entries and checks."""

from __future__ import annotations

from windrow.cli.output.lines import StyledLine, Tone, line, wrap


def _format_offset(offset_s: float) -> str:
    minutes, seconds = divmod(offset_s, 60)
    return f"{int(minutes):2d}:{seconds:04.1f}"


def _hanging(head: str, tone: Tone, text: str, width: int) -> list[StyledLine]:
    parts = wrap(text, max(width - len(head), 20)) or [""]
    rest = " " * len(head)
    return [line((head if place == 0 else rest, tone), part) for place, part in enumerate(parts)]


def render_entry(at: float, what: str, width: int = 80) -> list[StyledLine]:
    """` 0:12.4  the first server's supervisor answers`, wrapped under its text."""
    return _hanging(f"{_format_offset(at)}  ", "quiet", what, width)


def render_check(name: str, ok: bool, detail: str, width: int = 80) -> list[StyledLine]:
    """`   ok    nodes-ready: 5 of 5 nodes are Ready`."""
    return _hanging("   ok    " if ok else "   FAILED ", "good" if ok else "bad", f"{name}: {detail}", width)
