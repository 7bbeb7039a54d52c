"""Informers of a guest that watch only while they are wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from windrow.client.informer import Informer
from windrow.clusters.sources.servers.snapshots import EndpointTransport


class OnDemandInformers:
    """What several informers of one guest have in common. `changed` is called at each change; `run` is its owner's task."""

    def __init__(
        self, transport: EndpointTransport, informers: tuple[Informer[Any], ...], changed: Callable[[], None]
    ) -> None:
        self._transport, self._informers, self._changed = transport, informers, changed
        self._wanted, self._ended = asyncio.Event(), asyncio.Event()
        self._ended.set()

    def set_endpoints(self, urls: tuple[str, ...]) -> None:
        self._transport.set_endpoints(urls)

    def follow(self, wanted: bool) -> None:
        """Open the watches, or close them."""
        if wanted:
            self._ended.clear()
            self._wanted.set()
        else:
            self._wanted.clear()
            self._ended.set()

    @property
    def is_watching(self) -> bool:
        """Whether all of them know what there is now."""
        return self._wanted.is_set() and all(one.is_watching for one in self._informers)

    async def run(self) -> None:
        """Watch while that is wanted, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for one in self._informers:
                group.create_task(self._forward(one.changes()))
            while True:
                await self._wanted.wait()
                await self._watch()

    async def _watch(self) -> None:
        watches = [asyncio.ensure_future(one.run()) for one in self._informers]
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({*watches, ended}, return_when=asyncio.FIRST_COMPLETED)
            for watch in watches:
                if watch.done():
                    watch.result()  # it only ends by a defect, which is raised here
        finally:
            for task in (*watches, ended):
                task.cancel()
            await asyncio.gather(*watches, ended, return_exceptions=True)

    async def _forward(self, changes: AsyncIterator[Any]) -> None:
        async for _ in changes:
            self._changed()
