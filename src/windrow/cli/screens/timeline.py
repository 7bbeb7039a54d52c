"""The demo's lines: what happened, and what was looked at."""

from __future__ import annotations

from windrow.cli.screens.lines import Line, Tone, line, wrap


def _stamp(at: float) -> str:
    minutes, seconds = divmod(at, 60)
    return f"{int(minutes):2d}:{seconds:04.1f}"


def _hanging(head: str, tone: Tone, text: str, width: int) -> list[Line]:
    parts = wrap(text, max(width - len(head), 20)) or [""]
    rest = " " * len(head)
    return [line((head if place == 0 else rest, tone), part) for place, part in enumerate(parts)]


def render_moment(at: float, what: str, width: int = 80) -> list[Line]:
    """` 0:12.4  the first server's supervisor answers`, wrapped under its text."""
    return _hanging(f"{_stamp(at)}  ", "quiet", what, width)


def render_check(name: str, ok: bool, detail: str, width: int = 80) -> list[Line]:
    """`   ok    nodes-ready: 5 of 5 nodes are Ready`."""
    return _hanging("   ok    " if ok else "   FAILED ", "good" if ok else "bad", f"{name}: {detail}", width)
