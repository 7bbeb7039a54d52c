"""Events as lines: when, what about, which reason, and the message below it, which a column would cut."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from windrow.app.describe.events import EventView
from windrow.cli.output.lines import StyledLine, Tone, line, wrap
from windrow.core.formats.duration import human_duration


def render_events(events: Iterable[EventView], now: datetime, width: int = 80) -> list[StyledLine]:
    """Two lines or more for each."""
    return [part for one in events for part in _render_event(one, now, width)]


def _render_event(event: EventView, now: datetime, width: int) -> list[StyledLine]:
    age = human_duration(now - event.last) if event.last is not None else "-"
    often = f" (x{event.count} over {_span(event, now)})" if event.count > 1 else ""
    tone: Tone = "bad" if event.type == "Warning" else "strong"
    head = line((f"{age:<7}", "quiet"), (event.reason, tone), f"  {event.object}", (often, "quiet"))
    return [head, *(line("       ", part) for part in wrap(event.message, width - 7))]


def _span(event: EventView, now: datetime) -> str:
    return human_duration(now - event.first) if event.first is not None else "-"
