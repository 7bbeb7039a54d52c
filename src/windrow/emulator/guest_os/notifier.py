"""A bell that any number of tasks may wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Notifier:
    """`tell` wakes everybody who waits at that moment."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self) -> None:
        await self._event.wait()

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Return once `holds()` is true, asking again at every pulse."""
        while not predicate():
            await self.wait()
