"""Informer: all objects of one kind as a mapping, kept current by list and watch; with indexes and event handlers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key, key_of
from windrow.kubernetes.errors import Expired, error_from_status
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.requests import WatchEvent
from windrow.kubernetes.resources import ApiResource

WATCH_TIMEOUT_S = 3600

EventHandler = Callable[[Raw], None]  # gets the new object, or the last state of a deleted one


class Informer(Mapping[Key, Raw]):
    """The objects of `kind` by (namespace, name). Objects in it must not be changed.

    With `timeout_s` the watch is renewed after that time; without it the server draws the time from the seeded Rng.
    """

    def __init__(self, client: AdminClient, kind: ApiResource, timeout_s: int = 0) -> None:
        self.kind = kind
        self._timeout_s = timeout_s
        self._client = client
        self._objects: dict[Key, Raw] = {}
        self._indexes: list[tuple[Callable[[Raw], list[Key]], dict[Key, set[Key]]]] = []
        self._handlers: list[EventHandler] = []
        self.has_synced = asyncio.Event()

    def __getitem__(self, key: Key) -> Raw:
        return self._objects[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def add_index(self, keys: Callable[[Raw], list[Key]]) -> Mapping[Key, Set[Key]]:
        """A live index: index value to object keys. Call it before `run`."""
        places: dict[Key, set[Key]] = defaultdict(set)
        self._indexes.append((keys, places))
        return places

    def add_event_handler(self, change: EventHandler) -> None:
        """Call `change` for each added, updated or deleted object. Call it before `run`."""
        self._handlers.append(change)

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            version = await self._relist()
            self.has_synced.set()
            await self._watch(version)

    async def _relist(self) -> str:
        found, version = await self._client.list_page(self.kind)
        now = {key_of(raw): raw for raw in found}
        for key in [key for key in self._objects if key not in now]:
            self._drop(key)
        for key, raw in now.items():
            self._keep(key, raw)
        return version

    async def _watch(self, version: str) -> None:
        while True:
            try:
                async with self._client.watch(self.kind, version, self._timeout_s) as events:
                    async for event in events:
                        version = self._on_event(event) or version
            except Expired:
                return

    def _on_event(self, event: WatchEvent) -> str:
        match event.type:
            case "ERROR":
                raise error_from_status(event.object)
            case "DELETED":
                self._drop(key_of(event.object), event.object)
            case "ADDED" | "MODIFIED":
                self._keep(key_of(event.object), event.object)
        return str(event.object["metadata"]["resourceVersion"])

    def _keep(self, key: Key, raw: Raw) -> None:
        old = self._objects.get(key)
        self._objects[key] = raw
        self._reindex(key, old, raw)
        self._notify(raw)

    def _drop(self, key: Key, last: Raw | None = None) -> None:
        old = self._objects.pop(key, None)
        self._reindex(key, old, None)
        gone = last or old
        if gone is not None:
            self._notify(gone)

    def _reindex(self, key: Key, old: Raw | None, new: Raw | None) -> None:
        for keys, places in self._indexes:
            for place in keys(old) if old is not None else ():
                places[place].discard(key)
                if not places[place]:
                    del places[place]
            for place in keys(new) if new is not None else ():
                places[place].add(key)

    def _notify(self, raw: Raw) -> None:
        for listener in self._handlers:
            listener(raw)


class LazyInformer(Informer):
    """One of a kind of which there are seldom any: while there is none, it watches only once `begin` was called.

    So clusters without such objects run as they do where the kind does not exist, to the order of all events.
    """

    def __init__(self, client: AdminClient, kind: ApiResource, timeout_s: int = 0) -> None:
        super().__init__(client, kind, timeout_s)
        self._is_needed = asyncio.Event()

    def begin(self) -> None:
        """There is an object, or there will be one in a moment. May be repeated."""
        self._is_needed.set()

    async def run(self) -> None:
        """List, and watch as soon as there is an object, until cancelled."""
        await self._relist()
        self.has_synced.set()
        if not self:
            await self._is_needed.wait()
        await super().run()


async def start_informers(group: asyncio.TaskGroup, informers: Iterable[Informer]) -> None:
    """Run the informers in `group`; return once all have synced."""
    started = list(informers)
    for informer in started:
        group.create_task(informer.run())
    for informer in started:
        await informer.has_synced.wait()
