"""Time as a thing that is passed in.

Nothing in Windrow reads the wall clock by itself: whoever needs the time is handed a `Clock`. The edge
(`app.clock`) makes the real one; stories use one whose time jumps when nobody has work left.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The present instant, always with time zone UTC."""
        ...

    async def sleep_until(self, instant: datetime) -> None:
        """Return at `instant`, or at once when it has passed. May be cancelled."""
        ...


async def sleep(clock: Clock, span: timedelta) -> None:
    """Wait for `span`, measured by `clock`. For back-off and for simulated delays only."""
    await clock.sleep_until(clock.now() + span)


def format_time(instant: datetime) -> str:
    """`instant` as Kubernetes writes times: UTC, whole seconds, `2026-01-31T12:00:00Z`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(instant: datetime) -> str:
    """`instant` as a Kubernetes MicroTime, which leases use: `2026-01-31T12:00:00.000000Z`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """The instant that a Kubernetes Time or MicroTime names. Raises ValueError for anything else."""
    return datetime.fromisoformat(text).astimezone(UTC)
