"""A cache kept by list and watch: the only way services learn what exists.

The life of a `WatchedCache`, which its owner runs as a task:

    list, page by page ── complete ──> watch from the list's version
         ^                                │  the server ends it: watch on from the last version seen
         │                                │  it breaks: back off, watch on from the last version seen
         └── 410, version too old ────────┘

* What vanished while nobody watched is found by the next list and told as a deletion.
* `is_synced` is false from the moment a watch breaks until the next one stands. What is not in an unsynced cache
  may exist all the same.
* Readings that did not change are not told: a heartbeat that a reading leaves out wakes nobody.
* Only readings are kept, never raw objects.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Hashable, ValuesView
from datetime import datetime, timedelta
from itertools import count
from typing import Generic, TypeVar

from windrow.client.client import PAGE, Client
from windrow.client.transport import Transport
from windrow.kube import requests
from windrow.kube.errors import Expired, KubeError, ServerFailed, error_from_status
from windrow.kube.objects import Raw
from windrow.kube.refs import Kind, Ref, ref_of
from windrow.kube.requests import Event
from windrow.values.chance import Chance
from windrow.values.clock import Clock, pause

V = TypeVar("V")

log = logging.getLogger(__name__)

FIRST_S = 0.8
MOST_S = 30.0
# How long a watch is asked to live. Spread, so that watches begun together do not end together.
WATCH_S = (240, 360)
VERY_SHORT = timedelta(seconds=1)

Change = tuple[V | None, V | None]


class WatchedCache(Generic[V]):
    """Readings of all objects of one kind in one scope, keyed by Ref. Implements the port Cache.

    `read` turns a raw object into a reading, or into None to leave it out. Where it raises, the reading before stays.
    `heard` is told each new problem with the server, and None when it is over. Lists are read `page` objects at a time:
    the fewer, the less memory, because whole objects are in it meanwhile.
    """

    def __init__(
        self,
        transport: Transport,
        kind: Kind,
        namespace: str,
        read: Callable[[Raw], V | None],
        clock: Clock,
        chance: Chance,
        labels: str = "",
        fields: str = "",
        heard: Callable[[KubeError | None], None] | None = None,
        page: int = PAGE,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.problem: KubeError | None = None
        self.problem_since: datetime | None = None
        self._transport = transport
        self._client = Client(transport)
        self._read = read
        self._clock = clock
        self._chance = chance
        self._labels = labels
        self._fields = fields
        self._heard = heard
        self._page = page
        self._values: dict[Ref, V] = {}
        self._listed = asyncio.Event()
        self._watching = False
        self._version = ""
        self._failures = 0
        self._numbers = count()
        # Ordered, so that a story wakes its readers in the same order each time.
        self._readers: weakref.WeakValueDictionary[int, _Reader[V]] = weakref.WeakValueDictionary()

    # --- the port ---------------------------------------------------------------------------------------------------

    async def synced(self) -> None:
        await self._listed.wait()

    @property
    def was_listed(self) -> bool:
        """True from the first complete list on, whatever happens later: what `synced` waits for."""
        return self._listed.is_set()

    @property
    def is_synced(self) -> bool:
        return self._watching

    def get(self, key: Hashable) -> V | None:
        return self._values.get(key)  # type: ignore[call-overload,no-any-return]

    def values(self) -> ValuesView[V]:
        return self._values.values()

    def items(self) -> list[tuple[Ref, V]]:
        return list(self._values.items())

    def changes(self) -> AsyncIterator[Change[V]]:
        reader: _Reader[V] = _Reader()
        for ref, value in self._values.items():
            reader.tell(ref, None, value)
        self._readers[next(self._numbers)] = reader
        return reader

    # --- the work ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the cache current until cancelled. Errors are waited out; `problem` holds the present one."""
        try:
            while True:
                try:
                    await self._list()
                    await self._follow()
                except Expired:
                    self._watching = False
                    log.info("%s: the watch is too old to go on; listing again", self._scope)
                    await self._back_off()
                    self._failures += 1
                except KubeError as error:
                    await self._suffer(error)
        finally:
            self._watching = False

    async def _list(self) -> None:
        seen: set[Ref] = set()
        try:
            version = await self._read_pages(seen, self._page)
        except Expired:  # it outlived the server's history between two pages: take it whole
            seen.clear()
            version = await self._read_pages(seen, 0)
        for ref in [ref for ref in self._values if ref not in seen]:
            self._put(ref, None)
        self._version = version
        self._watching = True
        self._listed.set()

    async def _read_pages(self, seen: set[Ref], limit: int) -> str:
        version = ""
        pages = self._client.pages(self.kind, self.namespace, self._labels, self._fields, limit=limit)
        async for page in pages:
            version = page.version
            for raw in page.items:
                ref = ref_of(self.kind, raw)
                seen.add(ref)
                self._put(ref, self._reading(ref, raw))
        return version

    async def _follow(self) -> None:
        """Watch from the version last seen, again and again. Raises Expired when only a list helps."""
        while True:
            begun = self._clock.now()
            try:
                told = await self._watch()
                if not told and self._clock.now() - begun < VERY_SHORT:
                    raise ServerFailed(f"the server ended a watch of {self._scope} at once")
                self._failures = 0
            except Expired:
                raise
            except KubeError as error:
                if _is_too_large(error):
                    raise
                await self._suffer(error)

    async def _watch(self) -> int:
        request = requests.watch(
            self.kind,
            self.namespace,
            labels=self._labels,
            fields=self._fields,
            version=self._version,
            timeout_s=int(self._chance.between(*WATCH_S)),
        )
        told = 0
        async with self._transport.stream(request) as events:
            self._recover()
            async for event in events:
                self._take(event)
                told += 1
                self._failures = 0
        return told

    def _take(self, event: Event) -> None:
        if event.type == "ERROR":
            raise error_from_status(event.object)
        self._version = event.object["metadata"]["resourceVersion"]
        if event.type == "BOOKMARK":
            return
        ref = ref_of(self.kind, event.object)
        self._put(ref, None if event.type == "DELETED" else self._reading(ref, event.object))

    def _reading(self, ref: Ref, raw: Raw) -> V | None:
        try:
            return self._read(raw)
        except Exception:
            # One malformed object must not blind us to the others, nor look like a deletion.
            log.exception("%s cannot be read; what was known of it stays", ref)
            return self._values.get(ref)

    def _put(self, ref: Ref, after: V | None) -> None:
        before = self._values.get(ref)
        if before == after:
            return
        if after is None:
            del self._values[ref]
        else:
            self._values[ref] = after
        for reader in list(self._readers.values()):
            reader.tell(ref, before, after)

    # --- bad days ---------------------------------------------------------------------------------------------------

    @property
    def _scope(self) -> str:
        return f"{self.kind.qualified} in {self.namespace or 'all namespaces'}"

    async def _suffer(self, error: KubeError) -> None:
        self._watching = False
        if self.problem is None:
            self.problem_since = self._clock.now()
        if self.problem is None or self.problem.message != error.message:
            log.warning("%s: %s", self._scope, error)
            if self._heard is not None:
                self._heard(error)
        self.problem = error
        self._failures += 1
        await self._back_off(error.retry_after_s or 0.0)

    async def _back_off(self, asked_s: float = 0.0) -> None:
        """Nothing after one expiry; else longer with each failure in a row."""
        plain = min(FIRST_S * 2 ** min(self._failures - 1, 16), MOST_S) if self._failures else 0.0
        wait = max(plain, asked_s) * self._chance.between(1.0, 2.0)
        await pause(self._clock, timedelta(seconds=wait))

    def _recover(self) -> None:
        self._watching = True
        if self.problem is not None:
            log.info("%s: watching again", self._scope)
            if self._heard is not None:
                self._heard(None)
        self.problem = None
        self.problem_since = None


class _Reader(Generic[V]):
    """One reader's unread changes, one per key at most."""

    def __init__(self) -> None:
        self._unread: dict[Ref, Change[V]] = {}
        self._news = asyncio.Event()

    def tell(self, ref: Ref, before: V | None, after: V | None) -> None:
        known = self._unread[ref][0] if ref in self._unread else before
        if known == after:
            self._unread.pop(ref, None)  # it is again as the reader knows it
        else:
            self._unread[ref] = (known, after)
            self._news.set()

    def __aiter__(self) -> AsyncIterator[Change[V]]:
        return self

    async def __anext__(self) -> Change[V]:
        while not self._unread:
            self._news.clear()
            await self._news.wait()
        return self._unread.pop(next(iter(self._unread)))


def _is_too_large(error: KubeError) -> bool:
    causes = error.details.get("causes") or ()
    return any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes)
