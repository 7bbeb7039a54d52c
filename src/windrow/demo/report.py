"""The demo's report: a timeline, and checks that passed or failed."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.core.clock import Clock, format_time

WIDTH = 80


def wrap_text(text: str, indent: int) -> list[str]:
    """`text` as lines of at most 80 columns; all but the first are indented by `hang`. Long words stay whole."""
    wrapper = textwrap.TextWrapper(
        WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.wrap(text) or [""]


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """The result of one check. `name` is stable and listed in docs/reference/demo.md."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that happened, `at` seconds after the start. A detail is left out of the closing timeline."""

    at: float
    instant: datetime
    text: str
    detail: bool = False


@dataclass(slots=True)
class Report:
    """Collects timeline entries and checks, and calls `listener` with each."""

    clock: Clock
    listener: Callable[[TimelineEntry | CheckRecord], None]
    entries: list[TimelineEntry] = field(default_factory=list)
    checks: list[CheckRecord] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    started: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock.now()

    def add(self, text: str, *, detail: bool = False) -> None:
        now = self.clock.now()
        entry = TimelineEntry(round((now - self.started).total_seconds(), 2), now, text, detail)
        self.entries.append(entry)
        self.listener(entry)

    def check(self, name: str, ok: bool, detail: str) -> None:
        check = CheckRecord(name, ok, detail)
        self.checks.append(check)
        self.listener(check)

    @property
    def passed(self) -> bool:
        """Whether there were checks and every one passed."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        return {
            "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in self.checks],
            "timeline": [
                {"at": moment.at, "time": format_time(moment.instant), "what": moment.text}
                for moment in self.entries
            ],
            "calls": dict(sorted(self.calls.items())),
        }
