"""What the demo found: a timeline of what happened, and checks that held or did not."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.values.clock import Clock, stamp

WIDTH = 80


def folded(text: str, hang: int) -> list[str]:
    """`text` as lines of at most 80 columns; all but the first are indented by `hang`. Long words stay whole."""
    folder = textwrap.TextWrapper(
        WIDTH, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )
    return folder.wrap(text) or [""]


@dataclass(frozen=True, slots=True)
class Check:
    """One fact that the demo looked at. `name` is stable and listed in docs/reference/demo.md."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened, `at` seconds after the start. A detail is left out of the closing timeline."""

    at: float
    instant: datetime
    what: str
    detail: bool = False


@dataclass(slots=True)
class Report:
    """Collects moments and checks as they come, and tells `listener` about each."""

    clock: Clock
    listener: Callable[[Moment | Check], None]
    moments: list[Moment] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    started: datetime = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock.now()

    def note(self, what: str, *, detail: bool = False) -> None:
        now = self.clock.now()
        moment = Moment(round((now - self.started).total_seconds(), 2), now, what, detail)
        self.moments.append(moment)
        self.listener(moment)

    def check(self, name: str, ok: bool, detail: str) -> None:
        check = Check(name, ok, detail)
        self.checks.append(check)
        self.listener(check)

    @property
    def held(self) -> bool:
        """Whether there were checks and every one of them held."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        return {
            "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in self.checks],
            "timeline": [
                {"at": moment.at, "time": stamp(moment.instant), "what": moment.what}
                for moment in self.moments
            ],
            "calls": dict(sorted(self.calls.items())),
        }
