"""The worker of the server's own controllers: maps changes of the store to keys, reconciles them, retries failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta

from windrow.apiserver.context import ServerContext
from windrow.apiserver.storage.port import Change, Compacted, Overflow, Rev, WatchStream
from windrow.kubernetes.errors import KubeError

RETRY_AFTER = timedelta(seconds=1)

Key = tuple[str, ...]


class Worker:
    """Runs `work` for every key that `first` lists and that `keys` sees in a change; again later when it fails."""

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
        self._waiting: dict[Key, None] = {}
        self._failed: dict[Key, None] = {}
        self._retry_task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until cancelled or the store closes."""
        try:
            while await self._run_stream():
                pass
        finally:
            if self._retry_task is not None:
                self._retry_task.cancel()
                await asyncio.gather(self._retry_task, return_exceptions=True)

    def requeue(self, key: Key) -> None:
        """Work on `key` once more, from within `work`."""
        self._waiting[key] = None

    async def _run_stream(self) -> bool:
        """One stretch of hearing; True when the feed was lost and the state must be read anew."""
        feed = self._open_stream(self._context.store.rev)
        if feed is None:
            return True
        try:
            self._waiting.update(dict.fromkeys(await self._list_keys()))
            while True:
                await self._drain(feed)
                change = await feed.next()
                if change is None:
                    self._waiting.update(self._failed)
                    self._failed.clear()
                else:
                    self._waiting.update(dict.fromkeys(self._keys_of_change(change)))
        except Overflow:
            return True
        except StopAsyncIteration:
            return False
        finally:
            feed.close()

    def _open_stream(self, rev: Rev) -> WatchStream | None:
        try:
            return self._context.store.changes("", rev)
        except Compacted:
            return None

    async def _drain(self, feed: WatchStream) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            del self._waiting[key]
            try:
                await self._reconcile(key)
            except KubeError:
                self._failed[key] = None
        if self._failed and (self._retry_task is None or self._retry_task.done()):
            self._retry_task = asyncio.create_task(self._wake_later(feed))

    async def _wake_later(self, feed: WatchStream) -> None:
        await self._context.clock.sleep_until(self._context.clock.now() + RETRY_AFTER)
        feed.wake()
