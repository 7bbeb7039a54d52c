"""Controller: one level-triggered reconcile per queued key, requeued by the clock.

Reconciles never wait for simulated time: they return when to requeue. So one task serves any number of objects, in
the order in which their keys were added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

from windrow.core.clock import Clock
from windrow.core.work_queue import WorkQueue
from windrow.emulator.delays import ScaledClock
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.errors import KubeError

Reconcile = Callable[[Key], Awaitable[timedelta | None]]

LONGEST_POWER = 20


class Backoff:
    """When to try again, by key: exponentially later after each failure in a row."""

    def __init__(self, clock: ScaledClock, first_s: float, last_s: float) -> None:
        self._clock = clock
        self._first_s = first_s
        self._last_s = last_s
        self._failures: Counter[Key] = Counter()

    def next(self, key: Key) -> timedelta:
        """The monotonic instant of the next try, after one more failure."""
        wait = self._first_s * (1 << min(self._failures[key], LONGEST_POWER))
        self._failures[key] += 1
        return self._clock.after(min(wait, self._last_s))

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)


class Controller:
    """Reconciles added keys until cancelled. A key added twice before its turn is reconciled once.

    `reconcile` returns the monotonic instant of its next run, or None to wait for a change. A KubeError (a denial by a
    webhook included) is retried with exponential back-off; any other error is a bug and ends the controller.
    """

    def __init__(self, name: str, reconcile: Reconcile, clock: Clock, log: Callable[[str], None]) -> None:
        self.name = name
        self._reconcile = reconcile
        self._log = log
        self._clock = clock
        self._queue: WorkQueue[Key] = WorkQueue(clock)
        self._backoff = Backoff(ScaledClock(clock), 1, 60)
        self.add = self._queue.add

    async def run(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                requeue_at = await self._reconcile(key)
            except KubeError as error:
                self._log(f"{self.name} {'/'.join(filter(None, key))}: {error}")
                requeue_at = self._backoff.next(key)
            else:
                self._backoff.forget(key)
            self._queue.done(key)
            if requeue_at is not None:
                self._queue.add_after(key, requeue_at - self._clock.monotonic())
