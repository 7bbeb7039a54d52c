"""Wait for the first of two: work or its end, a timeout or an event; start work in a task group of another task; take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from windrow.core.clock import Clock, sleep

T = TypeVar("T")


class Stopped(Exception):
    """What `run_until` raises unless it is given another error."""


async def run_until(work: Awaitable[T], stop: Awaitable[Any], error: Exception | None = None) -> T:
    """The result of `work`. Raises `error` (Stopped) where `stop` is done first, and what `stop` raises. Neither runs any
    more then."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop)
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await stopping
            raise error or Stopped
        return working.result()
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def start_in(
    group: asyncio.TaskGroup | None, work: Coroutine[Any, Any, T], name: str | None = None
) -> asyncio.Task[T] | None:
    """A task of the group; None where the group is ending, which only its owner knows, and then `work` never begins."""
    if group is not None:
        with suppress(RuntimeError):  # of create_task: it is shutting down, or finished
            return group.create_task(work, name=name)
    work.close()
    return None


async def yield_turn() -> None:
    """Let the other tasks that can run do so, before the next item of many: each item is short, all of them are not."""
    await asyncio.sleep(0)


async def wait_first(clock: Clock, timeout: timedelta, event: asyncio.Event) -> None:
    """Return after `timeout`, or as soon as the event is set. May be cancelled."""
    with suppress(Stopped):
        await run_until(event.wait(), sleep(clock, timeout))
