"""Work queue of the simulated control planes: keys to reconcile, first in first out, with due times on the clock."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Hashable
from datetime import datetime
from itertools import count
from typing import Generic, TypeVar

from windrow.core.clock import Clock
from windrow.core.wait import wait_first

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """A key that is added twice before it is taken is in the queue once. For one consumer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[K, None] = {}
        self._due: dict[K, datetime] = {}
        self._timers: list[tuple[datetime, int, K]] = []  # a heap; entries that `_due` does not have are void
        self._numbers = count()
        self._changed = asyncio.Event()

    def add(self, key: K) -> None:
        self._waiting[key] = None
        self._changed.set()

    def add_at(self, key: K, due: datetime) -> None:
        """Add the key at `due`, unless it is due earlier already."""
        known = self._due.get(key)
        if known is None or due < known:
            self._due[key] = due
            heapq.heappush(self._timers, (due, next(self._numbers), key))
            self._changed.set()

    def forget(self, key: K) -> None:
        """Drop the key's due time. May be repeated."""
        self._due.pop(key, None)

    async def get(self) -> K:
        """The next key, which leaves the queue; waits until there is one."""
        while True:
            next_due = self._add_due()
            if self._waiting:
                key = next(iter(self._waiting))
                del self._waiting[key]
                return key
            self._changed.clear()
            await self._wait(next_due)

    def _add_due(self) -> datetime | None:
        """Add the keys whose time has come; when the next one is due."""
        now = self._clock.now()
        while self._timers:
            due, _, key = self._timers[0]
            if self._due.get(key) == due:
                if due > now:
                    return due
                del self._due[key]
                self._waiting[key] = None
            heapq.heappop(self._timers)
        return None

    async def _wait(self, until: datetime | None) -> None:
        if until is None:
            await self._changed.wait()
            return
        await wait_first(self._clock, until - self._clock.now(), self._changed)
