"""The work queue (client-go's workqueue): each key waits at most once, and is not given out while it is processed."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from windrow.core.clock import Clock
from windrow.core.wait import wait_first

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys in the order in which they became due. One task gets them; any may add.

    `on_added` is called with each key that is added, at once or when its time has come; not with one that waits already.
    """

    def __init__(self, clock: Clock, on_added: Callable[[K], None] | None = None) -> None:
        self._clock = clock
        self._on_added = on_added
        self._ready: dict[K, None] = {}
        self._processing: set[K] = set()
        self._dirty: set[K] = set()
        self._scheduled: dict[K, timedelta] = {}
        self._timers: list[tuple[timedelta, int, K]] = []
        self._sequence = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait: to be processed now, or again."""
        return len(self._ready) + len(self._dirty)

    def add(self, key: K) -> None:
        """Queue `key`; while it is processed, for once more afterwards."""
        is_new = key not in self._ready and key not in self._dirty
        self._enqueue(key)
        if is_new and self._on_added is not None:
            self._on_added(key)

    def _enqueue(self, key: K) -> None:
        if key in self._processing:
            self._dirty.add(key)
            return
        self._scheduled.pop(key, None)
        self._ready[key] = None
        self._wake.set()

    def add_at(self, key: K, instant: datetime) -> None:
        """Queue `key` at `instant` of the wall clock as it goes now; see `add_after`."""
        self.add_after(key, instant - self._clock.now())

    def add_after(self, key: K, span: timedelta) -> None:
        """Queue `key` when `span` has passed, however the wall clock is set meanwhile; of several the earliest wins."""
        if span <= timedelta():
            self.add(key)
            return
        due = self._clock.monotonic() + span
        if key in self._ready or (key in self._scheduled and self._scheduled[key] <= due):
            return
        self._scheduled[key] = due
        self._sequence += 1
        heapq.heappush(self._timers, (due, self._sequence, key))
        self._wake.set()

    async def get(self) -> K:
        """The next key, which is processed until `done`; earlier additions of it are answered by this."""
        while True:
            self._promote_due()
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                self._scheduled.pop(key, None)
                self._processing.add(key)
                return key
            self._wake.clear()
            await self._sleep()

    def done(self, key: K) -> None:
        """The processing of `key` has ended."""
        self._processing.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self._enqueue(key)

    def _promote_due(self) -> None:
        now = self._clock.monotonic()
        while self._timers:
            due, _, key = self._timers[0]
            stale = self._scheduled.get(key) != due
            if not stale and due > now:
                return
            heapq.heappop(self._timers)
            if not stale:
                del self._scheduled[key]
                self.add(key)

    async def _sleep(self) -> None:
        if not self._timers:
            await self._wake.wait()
            return
        await wait_first(self._clock, self._timers[0][0] - self._clock.monotonic(), self._wake)
