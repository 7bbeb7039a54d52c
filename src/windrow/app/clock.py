"""The system clock, for programs that run in real time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from windrow.core.formats.duration import render_duration

_log = logging.getLogger(__name__)

# NTP corrects less than this by slewing. More is a clock that was set.
JUMP = timedelta(seconds=5)


def read_monotonic() -> timedelta:
    """CLOCK_BOOTTIME, which goes on while the computer is suspended, so that a lease ends meanwhile; elsewhere monotonic."""
    source = getattr(time, "CLOCK_BOOTTIME", None)
    seconds = time.monotonic() if source is None else time.clock_gettime(source)
    return timedelta(seconds=seconds)


def read_wall() -> datetime:
    return datetime.now(UTC)


class SystemClock:
    """The clocks of this computer. A jump of the wall clock is logged once, at the next reading."""

    def __init__(
        self, wall: Callable[[], datetime] = read_wall, monotonic: Callable[[], timedelta] = read_monotonic
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._last = wall(), monotonic()

    def now(self) -> datetime:
        now, elapsed = self._wall(), self._monotonic()
        expected = self._last[0] + (elapsed - self._last[1])
        self._last = now, elapsed
        if abs(now - expected) >= JUMP:
            direction = "forward" if now > expected else "back"
            _log.warning(
                "the system clock was set %s by %s, to %s; timers, leases and timeouts are not affected",
                direction,
                render_duration(timedelta(seconds=round(abs(now - expected).total_seconds()))),
                now.isoformat(timespec="seconds"),
            )
        return now

    def monotonic(self) -> timedelta:
        return self._monotonic()

    async def sleep_until(self, instant: datetime) -> None:
        end = self._monotonic() + (instant - self.now())
        # The event loop's clock stops while the computer is suspended, so the rest is computed again.
        while (left := (end - self._monotonic()).total_seconds()) > 0:  # noqa: ASYNC110 - no event tells the time
            await asyncio.sleep(min(left, 60))
