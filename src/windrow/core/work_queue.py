"""The work queue (client-go's workqueue): each key waits at most once, and is not given out while it is processed.

Keys may belong to flows, as requests do in API Priority and Fairness: a flow is what one tenant asks for. Flows take turns,
and one whose keys are being processed as often as it may lets the others pass.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from windrow.core.clock import Clock
from windrow.core.wait import wait_first

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class MaxConcurrent:
    """How many keys are processed at once, in all and of one flow.

    A key that has been processed for `slow_after` waits for a server that does not answer and costs nothing else, so it
    does not count any more. What hangs is then bounded by the number of keys, since each is processed once at a time.
    """

    total: int
    per_flow: int
    slow_after: timedelta | None = None


class WorkQueue(Generic[K]):
    """Keys in the order in which they became due, the flows in turn. One task gets them; any may add.

    `on_added` is called with each key that is added, at once or when its time has come; not with one that waits already.
    """

    def __init__(
        self,
        clock: Clock,
        on_added: Callable[[K], None] | None = None,
        *,
        max_concurrent: MaxConcurrent | None = None,
        flow_of: Callable[[K], Hashable] | None = None,
    ) -> None:
        self._clock = clock
        self._on_added = on_added
        self._max_concurrent = max_concurrent
        self._flow_of: Callable[[K], Hashable] = flow_of or (lambda key: None)
        self._ready: dict[Hashable, dict[K, None]] = {}  # by flow, the one whose turn it is first
        self._processing: dict[K, timedelta] = {}  # since when, the latest last
        self._dirty: set[K] = set()
        self._scheduled: dict[K, timedelta] = {}
        self._timers: list[tuple[timedelta, int, K]] = []
        self._sequence = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait: to be processed now, or again."""
        return sum(map(len, self._ready.values())) + len(self._dirty)

    def add(self, key: K) -> None:
        """Queue `key`; while it is processed, for once more afterwards."""
        is_new = not self._is_ready(key) and key not in self._dirty
        self._enqueue(key)
        if is_new and self._on_added is not None:
            self._on_added(key)

    def _enqueue(self, key: K) -> None:
        if key in self._processing:
            self._dirty.add(key)
            return
        self._scheduled.pop(key, None)
        self._ready.setdefault(self._flow_of(key), {})[key] = None
        self._wake.set()

    def _is_ready(self, key: K) -> bool:
        return key in self._ready.get(self._flow_of(key), ())

    def add_after(self, key: K, span: timedelta) -> None:
        """Queue `key` when `span` has passed, however the wall clock is set meanwhile; of several the earliest wins."""
        if span <= timedelta():
            self.add(key)
            return
        due = self._clock.monotonic() + span
        if self._is_ready(key) or (key in self._scheduled and self._scheduled[key] <= due):
            return
        self._scheduled[key] = due
        self._sequence += 1
        heapq.heappush(self._timers, (due, self._sequence, key))
        self._wake.set()

    async def get(self) -> K:
        """The next key, which is processed until `done`; earlier additions of it are answered by this."""
        while True:
            self._promote_due()
            flow = self._next_flow()
            if flow is not None:
                keys = self._ready.pop(flow[0])
                key = next(iter(keys))
                del keys[key]
                if keys:
                    self._ready[flow[0]] = keys  # after the other flows
                self._scheduled.pop(key, None)
                self._processing[key] = self._clock.monotonic()
                return key
            self._wake.clear()
            await self._sleep()

    def done(self, key: K) -> None:
        """The processing of `key` has ended."""
        self._processing.pop(key, None)
        if key in self._dirty:
            self._dirty.discard(key)
            self._enqueue(key)
        if self._ready:
            self._wake.set()  # what was held back may go on

    def _next_flow(self) -> tuple[Hashable] | None:
        """The first flow with a key that may be processed now."""
        if self._max_concurrent is None:
            return next(((flow,) for flow in self._ready), None)
        counts = Counter(self._flow_of(key) for key in self._counted())
        if counts.total() >= self._max_concurrent.total:
            return None
        allowed = (flow for flow in self._ready if counts[flow] < self._max_concurrent.per_flow)
        return next(((flow,) for flow in allowed), None)

    def _counted(self) -> Iterator[K]:
        """The keys that are processed and not slow, the latest first."""
        slow_after = self._max_concurrent.slow_after if self._max_concurrent else None
        now = self._clock.monotonic()
        for key, since in reversed(self._processing.items()):
            if slow_after is not None and now - since >= slow_after:
                return
            yield key

    def _next_due(self) -> timedelta | None:
        """When something changes by itself: a scheduled key becomes due, or one that is processed slow."""
        instants = [self._timers[0][0]] if self._timers else []
        if self._ready and self._max_concurrent is not None and self._max_concurrent.slow_after is not None:
            counted = list(self._counted())
            instants += [self._processing[key] + self._max_concurrent.slow_after for key in counted[-1:]]
        return min(instants, default=None)

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
        due = self._next_due()
        if due is None:
            await self._wake.wait()
            return
        await wait_first(self._clock, due - self._clock.monotonic(), self._wake)
