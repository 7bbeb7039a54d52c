"""Waiting for a time or an event, whichever comes first."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from windrow.values.clock import Clock, pause


async def either(clock: Clock, span: timedelta, event: asyncio.Event) -> None:
    """Return after `span`, or as soon as the event is set. May be cancelled."""
    waits = [asyncio.ensure_future(pause(clock, span)), asyncio.ensure_future(event.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
