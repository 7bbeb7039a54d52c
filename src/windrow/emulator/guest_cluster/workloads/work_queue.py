"""The objects that wait to be looked at, first come first served, and those whose time is still to come."""

from __future__ import annotations

import asyncio
from datetime import datetime

from windrow.core.clock import Clock
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.resources import ApiResource

Item = tuple[ApiResource, Key]


class WorkQueue:
    """Each object stands in it once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Item, None] = {}
        self._due: dict[Item, datetime] = {}
        self._added = asyncio.Event()

    def add(self, kind: ApiResource, key: Key) -> None:
        self._waiting[kind, key] = None
        self._added.set()

    def add_at(self, due: datetime, kind: ApiResource, key: Key) -> None:
        """Look at it then; a later word about the same object takes the place of an earlier one."""
        self._due[kind, key] = due

    def forget(self, kind: ApiResource, key: Key) -> None:
        """It is gone: its time need not come."""
        self._due.pop((kind, key), None)

    async def get(self) -> Item:
        """The object to look at now, which leaves the line."""
        while True:
            now = self._clock.now()
            for item in [item for item, due in self._due.items() if due <= now]:
                del self._due[item]
                self._waiting[item] = None
            if self._waiting:
                first = next(iter(self._waiting))
                del self._waiting[first]
                return first
            self._added.clear()
            await self._wait_for_item()

    async def _wait_for_item(self) -> None:
        if not self._due:
            await self._added.wait()
            return
        added = asyncio.ensure_future(self._added.wait())
        timer = asyncio.ensure_future(self._clock.sleep_until(min(self._due.values())))
        try:
            await asyncio.wait({added, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            added.cancel()
            timer.cancel()
