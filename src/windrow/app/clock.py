"""The system clock, for programs that run in real time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime


class SystemClock:
    """The wall clock of this computer."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep_until(self, instant: datetime) -> None:
        # The wall clock may be set during the sleep, so the rest is computed again after each.
        while (left := (instant - self.now()).total_seconds()) > 0:  # noqa: ASYNC110 - no event tells the time
            await asyncio.sleep(min(left, 3600))
