"""Controller: one level-triggered reconcile per queued key, requeued by the clock.

Reconciles never wait for simulated time: they return when to requeue. So one task serves any number of objects, in
the order in which their keys were added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from windrow.core.clock import Clock
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.errors import KubeError

Reconcile = Callable[[Key], Awaitable[datetime | None]]

FIRST_RETRY = timedelta(seconds=1)
LAST_RETRY = timedelta(seconds=60)


class Controller:
    """Reconciles added keys until cancelled. A key added twice before its turn is reconciled once.

    `reconcile` returns the instant of its next run, or None to wait for a change. A KubeError (a refusal by
    our own webhooks included) is tried again with growing back-off; any other error is a bug and ends the loop.
    """

    def __init__(self, name: str, reconcile: Reconcile, clock: Clock, log: Callable[[str], None]) -> None:
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._log = log
        self._queue: dict[Key, None] = {}
        self._added = asyncio.Event()
        self._requeues: dict[Key, tuple[datetime, asyncio.Task[None]]] = {}
        self._failures: dict[Key, int] = {}

    def add(self, key: Key) -> None:
        self._queue[key] = None
        self._added.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._added.wait()
                self._added.clear()
                while self._queue:
                    key = next(iter(self._queue))
                    del self._queue[key]
                    await self._reconcile_key(key, tasks)

    async def _reconcile_key(self, key: Key, tasks: asyncio.TaskGroup) -> None:
        try:
            requeue_at = await self._reconcile(key)
        except KubeError as error:
            requeue_at = self._after_failure(key, error)
        else:
            self._failures.pop(key, None)
        if requeue_at is not None:
            self._requeue_at(key, requeue_at, tasks)

    def _after_failure(self, key: Key, error: KubeError) -> datetime:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        self._log(f"{self.name} {'/'.join(filter(None, key))}: {error}")
        wait: timedelta = min(FIRST_RETRY * (1 << min(count - 1, 10)), LAST_RETRY)
        return self._clock.now() + wait

    def _requeue_at(self, key: Key, instant: datetime, tasks: asyncio.TaskGroup) -> None:
        planned = self._requeues.get(key)
        if planned is not None:
            if planned[0] <= instant:
                return
            planned[1].cancel()
        self._requeues[key] = (instant, tasks.create_task(self._add_at(key, instant)))

    async def _add_at(self, key: Key, instant: datetime) -> None:
        await self._clock.sleep_until(instant)
        self._requeues.pop(key, None)
        self.add(key)
