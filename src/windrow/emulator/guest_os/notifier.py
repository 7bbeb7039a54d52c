"""A condition variable for asyncio tasks without a lock: wait for the next notification, or until a predicate holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


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
