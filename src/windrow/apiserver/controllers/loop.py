"""The one loop that the server's own controllers share: hear every change, note keys, work them off, retry failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta

from windrow.apiserver.core import Core
from windrow.apiserver.store import Change, Compacted, Feed, Overflow, Rev
from windrow.kubernetes.errors import KubeError

RETRY_AFTER = timedelta(seconds=1)

Key = tuple[str, ...]


class Worker:
    """Runs `work` for every key that `first` lists and that `keys` sees in a change; again later when it fails."""

    def __init__(
        self,
        core: Core,
        *,
        first: Callable[[], Awaitable[Iterable[Key]]],
        keys: Callable[[Change], Iterable[Key]],
        work: Callable[[Key], Awaitable[None]],
    ) -> None:
        self._core = core
        self._first, self._keys, self._work = first, keys, work
        self._waiting: dict[Key, None] = {}
        self._failed: dict[Key, None] = {}
        self._retry: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until cancelled or the store closes."""
        try:
            while await self._once():
                pass
        finally:
            if self._retry is not None:
                self._retry.cancel()
                await asyncio.gather(self._retry, return_exceptions=True)

    def again(self, key: Key) -> None:
        """Work on `key` once more, from within `work`."""
        self._waiting[key] = None

    async def _once(self) -> bool:
        """One stretch of hearing; True when the feed was lost and the state must be read anew."""
        feed = self._listen(self._core.store.rev)
        if feed is None:
            return True
        try:
            self._waiting.update(dict.fromkeys(await self._first()))
            while True:
                await self._drain(feed)
                change = await feed.next()
                if change is None:
                    self._waiting.update(self._failed)
                    self._failed.clear()
                else:
                    self._waiting.update(dict.fromkeys(self._keys(change)))
        except Overflow:
            return True
        except StopAsyncIteration:
            return False
        finally:
            feed.close()

    def _listen(self, rev: Rev) -> Feed | None:
        try:
            return self._core.store.changes("", rev)
        except Compacted:
            return None

    async def _drain(self, feed: Feed) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            del self._waiting[key]
            try:
                await self._work(key)
            except KubeError:
                self._failed[key] = None
        if self._failed and (self._retry is None or self._retry.done()):
            self._retry = asyncio.create_task(self._later(feed))

    async def _later(self, feed: Feed) -> None:
        await self._core.clock.sleep_until(self._core.clock.now() + RETRY_AFTER)
        feed.nudge()
