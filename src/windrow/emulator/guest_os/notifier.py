"""A condition variable for asyncio tasks without a lock: wait for the next notification, or until a predicate holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Notifier:
    """`notify` wakes all tasks that wait at that moment."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self) -> None:
        await self._event.wait()

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Return once `predicate()` is true; it is evaluated again at every notification."""
        while not predicate():
            await self.wait()


async def result_unless(
    work: Awaitable[T], stop: Awaitable[Any], on_end: Callable[[], None] = lambda: None
) -> T | None:
    """The result of `work`, or None when `stop` is done first. At the end `on_end` is called, then both are cancelled."""
    tasks = working, _ = asyncio.ensure_future(work), asyncio.ensure_future(stop)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        on_end()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
