"""The port `Clock`, through which all of Windrow reads the time and sleeps, and Kubernetes' formats of time.

Durations, leases and timers are measured by `monotonic()`, which no administrator and no NTP sets. `now()` is the wall
clock, for stamps on objects and for what others date: certificates and tokens. It may jump at any moment.

`app.clock` has the system's clock; `testing.clock` has one whose time jumps to the next timer when no task can run.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

# By so much the wall clock and the monotonic one differ between two instants without either having been set.
CLOCK_TOLERANCE = timedelta(seconds=1)


class Clock(Protocol):
    def now(self) -> datetime:
        """The present instant of the wall clock, always with time zone UTC."""
        ...

    def monotonic(self) -> timedelta:
        """The time since an instant that is never named, never less than before. Two of them make a duration."""
        ...

    async def sleep_until(self, instant: datetime) -> None:
        """Return after the time from now to `instant`, however the wall clock is set meanwhile. May be cancelled."""
        ...


async def sleep(clock: Clock, span: timedelta) -> None:
    """Sleep for `span` of `clock`. For back-off and for simulated delays only: changes are watched, not polled."""
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
