"""Wait for a timeout or an event, whichever comes first."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from windrow.core.clock import Clock, sleep


async def wait_first(clock: Clock, timeout: timedelta, event: asyncio.Event) -> None:
    """Return after `timeout`, or as soon as the event is set. May be cancelled."""
    waiters = [asyncio.ensure_future(sleep(clock, timeout)), asyncio.ensure_future(event.wait())]
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
