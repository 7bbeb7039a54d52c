"""Controller: one level-triggered reconcile per queued key, requeued by the clock.

Reconciles never wait for simulated time: they return when to requeue. So one task serves any number of objects, in
the order in which their keys were added.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from windrow.apiserver.work_queue import WorkQueue
from windrow.core.clock import Clock
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.errors import KubeError

Reconcile = Callable[[Key], Awaitable[datetime | None]]

FIRST_RETRY = timedelta(seconds=1)
LAST_RETRY = timedelta(seconds=60)


class Controller:
    """Reconciles added keys until cancelled. A key added twice before its turn is reconciled once.

    `reconcile` returns the instant of its next run, or None to wait for a change. A KubeError (a denial by a
    webhook included) is retried with exponential back-off; any other error is a bug and ends the controller.
    """

    def __init__(self, name: str, reconcile: Reconcile, clock: Clock, log: Callable[[str], None]) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._log = log
        self._queue: WorkQueue[Key] = WorkQueue(clock)
        self._failures: dict[Key, int] = {}
        self.add = self._queue.add

    async def run(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                requeue_at = await self._reconcile(key)
            except KubeError as error:
                requeue_at = self._after_failure(key, error)
            else:
                self._failures.pop(key, None)
            if requeue_at is not None:
                self._queue.add_at(key, requeue_at)

    def _after_failure(self, key: Key, error: KubeError) -> datetime:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        self._log(f"{self.name} {'/'.join(filter(None, key))}: {error}")
        wait: timedelta = min(FIRST_RETRY * (1 << min(count - 1, 10)), LAST_RETRY)
        return self._clock.now() + wait
