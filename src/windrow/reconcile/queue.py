"""A queue of keys: each waits at most once, and is never handed out while it is being worked on."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Generic, TypeVar

from windrow.values.clock import Clock

K = TypeVar("K", bound=Hashable)


class Queue(Generic[K]):
    """Keys in the order in which they became due. One task takes them out; anyone may add.

    `added` is told each key that begins to wait, be it at once or because its time has come; a key that waits already
    is not told again.
    """

    def __init__(self, clock: Clock, added: Callable[[K], None] | None = None) -> None:
        self._clock = clock
        self._added = added
        self._ready: dict[K, None] = {}
        self._busy: set[K] = set()
        self._again: set[K] = set()
        self._due: dict[K, datetime] = {}
        self._timers: list[tuple[datetime, int, K]] = []
        self._count = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """How many keys could be handed out now or once their present work is done."""
        return len(self._ready) + len(self._again)

    def add(self, key: K) -> None:
        """Hand out `key` soon. While it is worked on, it is handed out once more afterwards."""
        is_news = key not in self._ready and key not in self._again
        self._enter(key)
        if is_news and self._added is not None:
            self._added(key)

    def _enter(self, key: K) -> None:
        if key in self._busy:
            self._again.add(key)
            return
        self._due.pop(key, None)
        self._ready[key] = None
        self._wake.set()

    def add_at(self, key: K, instant: datetime) -> None:
        """Hand out `key` at `instant`; of several wishes the soonest wins."""
        if instant <= self._clock.now():
            self.add(key)
            return
        if key in self._ready or (key in self._due and self._due[key] <= instant):
            return
        self._due[key] = instant
        self._count += 1
        heapq.heappush(self._timers, (instant, self._count, key))
        self._wake.set()

    async def get(self) -> K:
        """The next key. It counts as being worked on until `done`; wishes made for it before are fulfilled by this."""
        while True:
            self._ripen()
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                self._due.pop(key, None)
                self._busy.add(key)
                return key
            self._wake.clear()
            await self._sleep()

    def done(self, key: K) -> None:
        """The work on `key` has ended."""
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._enter(key)

    def _ripen(self) -> None:
        now = self._clock.now()
        while self._timers:
            instant, _, key = self._timers[0]
            stale = self._due.get(key) != instant
            if not stale and instant > now:
                return
            heapq.heappop(self._timers)
            if not stale:
                del self._due[key]
                self.add(key)

    async def _sleep(self) -> None:
        if not self._timers:
            await self._wake.wait()
            return
        waits = [
            asyncio.ensure_future(self._wake.wait()),
            asyncio.ensure_future(self._clock.until(self._timers[0][0])),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
