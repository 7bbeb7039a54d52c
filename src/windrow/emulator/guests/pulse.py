"""A bell that any number of tasks may wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pulse:
    """`tell` wakes everybody who waits at that moment."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self) -> None:
        await self._event.wait()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once `holds()` is true, asking again at every pulse."""
        while not holds():
            await self.wait()
