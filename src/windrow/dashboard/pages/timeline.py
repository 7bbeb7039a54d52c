"""The timeline of a cluster as a Gantt picture: for each machine when it was made, got its VM, joined, and what happened to it.

From stamps of Machines and from Events, which the API keeps for a while only: of machines that are gone, what their Events tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from windrow.app.describe.conditions import condition_of
from windrow.app.describe.events import EventView
from windrow.app.describe.views import parse_or_none
from windrow.kubernetes.objects import Raw

WIDTH = 1000.0
MAX_ROWS, MAX_MARKS = 200, 100
# A shorter part could not be seen.
LEAST_WIDTH = 2.0

Stage = Literal["creating", "joining", "ready", "broken", "gone"]
STAGES: dict[Stage, str] = {
    "creating": "VM is made",
    "joining": "boots and joins",
    "ready": "ready",
    "broken": "not ready",
    "gone": "gone",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a row, in units of which the whole picture has WIDTH."""

    stage: Stage
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Mark:
    """One Event."""

    x: float
    text: str
    is_warning: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One machine, or the cluster itself. `told` is the picture in words."""

    name: str
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    told: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows, from `begin` to `end`; those that are left out are counted."""

    begin: datetime
    end: datetime
    rows: tuple[Row, ...] = ()
    left_out: int = 0


def draw_timeline(
    name: str, machines: Sequence[Raw], events: Sequence[EventView], now: datetime
) -> Timeline | None:
    """The timeline of a cluster; None where nothing has a date."""
    spans = [(str(raw["metadata"]["name"]), _spans(raw, now)) for raw in machines]
    living = {machine for machine, _ in spans}
    spans += [
        (gone, _gone(gone, events))
        for gone in sorted({one.name for one in events if one.kind == "Machine"} - living)
    ]
    spans = [(machine, found) for machine, found in spans if found]
    dates = [since for _, found in spans for _, since, _ in found]
    dates += [one.last for one in events if one.last is not None]
    if not dates:
        return None
    begin = min(dates)
    scale = _Scale(begin, max(now, begin + timedelta(seconds=1)))
    spans.sort(key=lambda span: (span[1][0][1], span[0]))
    rows = [_row(machine, found, events, "Machine", scale) for machine, found in spans[:MAX_ROWS]]
    return Timeline(
        begin, scale.end, (_row(name, [], events, "Cluster", scale), *rows), max(len(spans) - MAX_ROWS, 0)
    )


_Span = tuple[Stage, datetime, datetime]


@dataclass(frozen=True, slots=True)
class _Scale:
    begin: datetime
    end: datetime

    def at(self, instant: datetime) -> float:
        """Where an instant lies; one that is outside, by a clock of another's, at the edge."""
        share = (instant - self.begin) / (self.end - self.begin)
        return round(min(max(share, 0.0), 1.0) * WIDTH, 1)


def _spans(raw: Raw, now: datetime) -> list[_Span]:
    created = parse_or_none(raw["metadata"].get("creationTimestamp"))
    if created is None:
        return []

    def became(type: str, status: str) -> datetime | None:
        found = condition_of(raw, type)
        return (
            parse_or_none(found.last_transition_time)
            if found is not None and found.status == status
            else None
        )

    steps: list[tuple[Stage, datetime | None]] = [
        ("creating", created),
        ("joining", became("InfrastructureReady", "True")),
        ("ready", became("Joined", "True")),
        ("broken", became("Ready", "False") if became("Joined", "True") else None),
    ]
    begun = [(stage, max(since, created)) for stage, since in steps if since is not None]
    ends = [*(since for _, since in begun[1:]), max(now, created)]
    return [(stage, since, end) for (stage, since), end in zip(begun, ends, strict=True) if end >= since]


def _gone(name: str, events: Iterable[EventView]) -> list[_Span]:
    dates = [
        date
        for one in events
        if (one.kind, one.name) == ("Machine", name)
        for date in (one.first, one.last)
        if date
    ]
    return [("gone", min(dates), max(dates))] if dates else []


def _row(name: str, spans: list[_Span], events: Iterable[EventView], kind: str, scale: _Scale) -> Row:
    bars = [
        Bar(stage, scale.at(since), max(round(scale.at(end) - scale.at(since), 1), LEAST_WIDTH))
        for stage, since, end in spans
    ]
    mine = [one for one in events if (one.kind, one.name) == (kind, name) and one.last is not None]
    marks = [
        Mark(scale.at(one.last), f"{one.last:%H:%M:%S} {one.reason}: {one.message}", one.type == "Warning")
        for one in mine[-MAX_MARKS:]
        if one.last is not None
    ]
    told = "; ".join(f"{since:%H:%M:%S} {STAGES[stage]}" for stage, since, _ in spans)
    return Row(name, tuple(bars), tuple(marks), told)
