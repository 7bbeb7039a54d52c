"""Workers of a side-car or a storage controller: keys processed several at once, a failed one again after a pause.

A key is queued when what its object means to the controller has changed, so what the controller writes about a failure
starts nothing; until then a key that failed is processed again after an exponentially growing pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable

from windrow.core.work_queue import MaxConcurrent, WorkQueue
from windrow.emulator.delays import ScaledClock
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.csi.port import CsiFailed
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.controller import Backoff
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.errors import KubeError

FIRST_RETRY_S, LAST_RETRY_S = 1.0, 300.0  # the defaults of the real side-cars


class NotYet(Exception):
    """Something has to happen first; the key is processed again."""


class Workers:
    """Runs `process` for keys, at most `limit` at once and one at a time for each key."""

    def __init__(
        self,
        name: str,
        guest: GuestOS,
        cluster: GuestCluster,
        process: Callable[[Key], Awaitable[None]],
        limit: int = 10,
    ) -> None:
        self._name, self._guest, self._cluster = name, guest, cluster
        self._process = process
        self._queue: WorkQueue[Key] = WorkQueue(guest.host.clock, max_concurrent=MaxConcurrent(limit, limit))
        self._backoff = Backoff(
            ScaledClock(guest.host.clock, guest.host.time_scale), FIRST_RETRY_S, LAST_RETRY_S
        )
        self._meanings: dict[Key, Hashable] = {}

    def on_change(self, key: Key, meaning: Hashable) -> None:
        """The object has changed. `meaning` is what the controller acts on; None for one that is gone."""
        if key in self._meanings and self._meanings[key] == meaning:
            return
        self._meanings[key] = meaning
        if meaning is None:
            del self._meanings[key]
        self._queue.add(key)

    def add(self, key: Key) -> None:
        """Process the key at once, also one that failed."""
        self._queue.add(key)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._run(await self._queue.get()))

    async def _run(self, key: Key) -> None:
        await self._cluster.wait_usable()
        try:
            await self._process(key)
        except (CsiFailed, KubeError, NotYet) as error:
            self._guest.log(self._name, f"error syncing {'/'.join(filter(None, key))}: {error}")
            pause = self._backoff.next(key) - self._guest.monotonic()
            self._queue.done(key)
            self._queue.add_after(key, pause)
        else:
            self._backoff.forget(key)
            self._queue.done(key)
