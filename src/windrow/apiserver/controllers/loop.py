"""The worker of the server's own controllers: maps changes of the store to keys, reconciles them, retries failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta

from windrow.apiserver.context import ServerContext
from windrow.apiserver.storage.port import Change, Compacted, Overflow
from windrow.apiserver.work_queue import WorkQueue
from windrow.kubernetes.errors import KubeError

RETRY_AFTER = timedelta(seconds=1)

Key = tuple[str, ...]


class Worker:
    """Reconciles the keys of `list_keys` and of each change; a KubeError is retried after a second.

    `list_keys` runs at the start, and again whenever changes were missed. `requeue` may be called from `reconcile`.
    """

    def __init__(
        self,
        context: ServerContext,
        *,
        list_keys: Callable[[], Awaitable[Iterable[Key]]],
        keys_of_change: Callable[[Change], Iterable[Key]],
        reconcile: Callable[[Key], Awaitable[None]],
    ) -> None:
        self._context = context
        self._list_keys, self._keys_of_change, self._reconcile = list_keys, keys_of_change, reconcile
        self._queue: WorkQueue[Key] = WorkQueue(context.clock)
        self.requeue = self._queue.add

    async def run(self) -> None:
        """Until cancelled or the store closes."""
        async with asyncio.TaskGroup() as tasks:
            reconciling = tasks.create_task(self._reconcile_queued())
            while await self._follow_store():
                pass
            reconciling.cancel()

    async def _follow_store(self) -> bool:
        """Queue the keys of all objects, then those of each change. True when changes were missed."""
        try:
            stream = self._context.store.changes("", self._context.store.rev)
        except Compacted:
            return True
        try:
            for key in await self._list_keys():
                self._queue.add(key)
            async for change in stream:
                for key in self._keys_of_change(change):
                    self._queue.add(key)
        except Overflow:
            return True
        finally:
            stream.close()
        return False

    async def _reconcile_queued(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._reconcile(key)
            except KubeError:
                self._queue.add_at(key, self._context.clock.now() + RETRY_AFTER)
