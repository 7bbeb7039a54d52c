"""Informers: the objects of one kind and scope, kept current by list and watch (client-go's Reflector and Store).

The life of an `Informer`, which its owner runs as a task:

    list, page by page ── complete ──> watch from the list's version
         ^                                │  the server ends it, or is silent for 100 s: watch on from the last version
         │                                │  it breaks: back off (`shared_backoff`), watch on from the last version seen
         └── 410, version too old ────────┘

* An object that was deleted while no watch was open is found by the next list, and is a change like any other.
* `is_watching` is false from the moment a watch breaks until the next one is open. An object that is not in the store
  may exist all the same then.
* A change that `read` leaves out, such as a heartbeat, is no change.
* Only what `read` returns is kept, never the raw objects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from windrow.client.client import PAGE_SIZE, Client, read_in_pages, require_few_objects
from windrow.client.shared_backoff import SharedBackoff, backoff_s
from windrow.client.store import Store
from windrow.client.transport import Transport
from windrow.core.clock import Clock, sleep
from windrow.core.crash import handle_crash
from windrow.core.logs import with_values
from windrow.core.rng import Rng
from windrow.core.wait import yield_turn
from windrow.kubernetes import requests
from windrow.kubernetes.errors import (
    Expired,
    KubeError,
    OutcomeUnknown,
    ServerError,
    error_from_status,
    require_metadata,
)
from windrow.kubernetes.objects import Raw, nested
from windrow.kubernetes.requests import WatchEvent
from windrow.kubernetes.resources import ApiResource, ObjectRef, ref_of

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

_log = logging.getLogger(__name__)

MAX_BACKOFF_S = 30.0
# The timeoutSeconds of a watch. Random, so that watches that began together do not end together.
WATCH_TIMEOUT_S = (240, 360)
# Characters of why an object cannot be read.
MAX_REASON = 200
MIN_WATCH = timedelta(seconds=1)
# A server sends a bookmark each minute (kube-apiserver: up to 75 s apart). Where nothing comes for longer, the connection
# may be dead without a word (a firewall or a proxy that has forgotten it), so another one is opened.
SILENCE_S = 100


class Cache(Protocol[V_co]):
    """The port of everything that keeps objects current: an Informer, or a store that a poller fills.

    Keys are ObjectRefs or uids, as the implementation says.
    """

    async def wait_for_sync(self) -> None:
        """Return once the first complete list has been read."""
        ...

    @property
    def is_watching(self) -> bool:
        """False before the first list, and while the server cannot be reached: then an absent object may exist."""
        ...

    def get(self, key: Hashable) -> V_co | None: ...

    def values(self) -> Iterable[V_co]: ...

    def changes(self) -> AsyncIterator[tuple[V_co | None, V_co | None]]:
        """(before, after) for each change, starting with (None, value) for what is there now. Bounded by keys,
        not by time: a slow reader gets the latest state of each key."""
        ...


class Informer(Store[V]):
    """All objects of one kind in one namespace ("" for all), by ObjectRef, as `read` reads them. Implements Cache.

    `read` returns None to leave an object out; where it raises, the value before stays, and the object is in `unreadable`.
    `on_error` is called with each new error of the server, and with None when it is over, `on_state` after each change of
    `is_watching`, of the text of `error` or of `unreadable`. Lists are read `page_size` objects at a time: a page of whole objects is in memory meanwhile. With
    `raise_refusals`, `run` raises a refusal (400, 401, 403, 404, 405) instead of trying again: for those who wait for
    one thing and then end. `index` says by what `index_keys` finds a value.
    """

    def __init__(
        self,
        transport: Transport,
        kind: ApiResource,
        namespace: str,
        read: Callable[[Raw], V | None],
        clock: Clock,
        rng: Rng,
        labels: str = "",
        fields: str = "",
        on_error: Callable[[KubeError | None], None] | None = None,
        page_size: int = PAGE_SIZE,
        *,
        raise_refusals: bool = False,
        max_backoff_s: float = MAX_BACKOFF_S,
        on_state: Callable[[], None] = lambda: None,
        index: Callable[[V], Hashable] | None = None,
    ) -> None:
        super().__init__(index)
        self.kind = kind
        self.namespace = namespace
        self._log = with_values(_log, resource=kind.group_resource, namespace=namespace or "*")
        self.error: KubeError | None = None
        self.error_since: timedelta | None = None  # by the monotonic clock
        self._transport = transport
        self._client = Client(transport)
        self._backoff = SharedBackoff.of(transport)
        self.read = read
        self._clock = clock
        self._rng = rng
        self._labels = labels
        self._fields = fields
        self._on_error, self._on_state = on_error, on_state
        self._page_size = page_size
        self._raise_refusals = raise_refusals
        self._max_backoff_s = max_backoff_s
        self._listed = asyncio.Event()
        self.is_watching = False
        # The resource version up to which this informer has read; "" before the first list.
        self.resource_version = ""
        self._failures = 0
        # The objects of which `read` can make nothing, and why: what they are now is not known.
        self.unreadable: dict[ObjectRef, str] = {}

    # --- the port ---------------------------------------------------------------------------------------------------

    async def wait_for_sync(self) -> None:
        await self._listed.wait()

    @property
    def has_synced(self) -> bool:
        """True from the first complete list on, whatever happens later: what `wait_for_sync` waits for."""
        return self._listed.is_set()

    # --- the work ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the objects current until cancelled. Errors are retried; `error` holds the present one."""
        try:
            while True:
                try:
                    await self._list()
                    await self._watch_from_version()
                except Expired:
                    self._set_state(False, self.error)
                    self._log.info("watch expired (410 Gone); listing again")
                    # Nothing after one expiry; else longer with each failure in a row.
                    await sleep(
                        self._clock,
                        timedelta(seconds=backoff_s(self._failures, self._max_backoff_s, self._rng)),
                    )
                    self._failures += 1
                except KubeError as error:
                    await self._handle_error(error)
        finally:
            self._set_state(False, self.error)

    async def _list(self) -> None:
        listed, version = await read_in_pages(self._read_pages, self._page_size)
        for number, ref in enumerate([ref for ref in self._values if ref not in listed], 1):
            self.put(ref, None)
            if number % self._page_size == 0:
                await yield_turn()
        for ref in self.unreadable.keys() - listed:
            self._set_unreadable(ref, None)
        self.resource_version = version
        self._set_state(True, self.error)
        self._listed.set()

    async def _read_pages(self, limit: int) -> tuple[set[ObjectRef], str]:
        """What is there, and at which resource version."""
        listed: set[ObjectRef] = set()
        version = ""
        pages = self._client.pages(self.kind, self.namespace, self._labels, self._fields, limit=limit)
        async for page in pages:
            self._backoff.on_answer()
            version = page.resource_version
            for raw in page.items:
                ref = ref_of(self.kind, raw)
                listed.add(ref)
                self.put(ref, self._read_object(ref, raw))
        return listed, version

    async def _watch_from_version(self) -> None:
        """Watch from the last resource version on, again and again. Raises Expired when only a list helps."""
        while True:
            started = self._clock.monotonic()
            try:
                count = await self._watch()
                if not count and self._clock.monotonic() - started < MIN_WATCH:
                    raise ServerError(f"the server ended a watch of {self._scope} at once")
                self._failures = 0
            except Expired:
                raise
            except KubeError as error:
                if _is_too_large(error):
                    raise
                await self._handle_error(error)

    async def _watch(self) -> int:
        request = requests.watch(
            self.kind,
            self.namespace,
            labels=self._labels,
            fields=self._fields,
            version=self.resource_version,
            timeout_s=int(self._rng.uniform(*WATCH_TIMEOUT_S)),
        )
        count, is_open, loop = 0, False, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SILENCE_S) as silence, self._transport.stream(request) as events:
                is_open = True
                self._backoff.on_answer()
                self._clear_error()
                async for event in events:
                    silence.reschedule(loop.time() + SILENCE_S)
                    self._on_event(event)
                    count += 1
                    self._failures = 0
        except TimeoutError:
            if not is_open:
                raise OutcomeUnknown(
                    f"a watch of {self._scope} was not answered within {SILENCE_S} s"
                ) from None
            self._log.debug("no event and no bookmark within %d s; opening another watch", SILENCE_S)
        return count

    def _on_event(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            raise error_from_status(event.object)
        required = ("resourceVersion",) if event.type == "BOOKMARK" else ("resourceVersion", "name")
        require_metadata(event.object, f"the object of an event of a watch of {self._scope}", *required)
        if event.type == "BOOKMARK":
            self.resource_version = event.object["metadata"]["resourceVersion"]
            return
        ref = ref_of(self.kind, event.object)
        if ref not in self._values:
            require_few_objects(self.kind, len(self._values) + len(self.unreadable) + 1)
        self.resource_version = event.object["metadata"]["resourceVersion"]
        if event.type == "DELETED":
            self._set_unreadable(ref, None)
            self.put(ref, None)
        else:
            self.put(ref, self._read_object(ref, event.object))

    def _read_object(self, ref: ObjectRef, raw: Raw) -> V | None:
        # One malformed object must not hide the others, nor look like a deletion.
        message = "object cannot be read; its last known state is kept"
        with handle_crash(self._log, message, object=ref) as crash:
            value = self.read(raw)
            self._set_unreadable(ref, None)
            return value
        self._set_unreadable(ref, crash.error)
        return self._values.get(ref)

    def _set_unreadable(self, ref: ObjectRef, error: Exception | None) -> None:
        if error is None and ref not in self.unreadable:
            return
        if error is None:
            del self.unreadable[ref]
        else:
            self.unreadable[ref] = f"{type(error).__name__}: {error}"[:MAX_REASON]
        self._on_state()

    # --- errors -----------------------------------------------------------------------------------------------------

    @property
    def _scope(self) -> str:
        return f"{self.kind.group_resource} in {self.namespace or 'all namespaces'}"

    async def _handle_error(self, error: KubeError) -> None:
        if self._raise_refusals and error.status in (400, 401, 403, 404, 405):
            raise error
        is_new = self.error is None or self.error.message != error.message
        self._set_state(False, error)
        if is_new:
            self._log.warning("list or watch failed: %s; trying again", error)
            if self._on_error is not None:
                self._on_error(error)
        shared, failures = self._backoff, self._failures + 1
        took_turn = await shared.wait(error, failures, self._max_backoff_s, self._clock, self._rng)
        self._failures = 0 if took_turn else failures

    def _set_state(self, watching: bool, error: KubeError | None) -> None:
        before = self.is_watching, str(self.error)
        if error is None:
            self.error_since = None
        elif self.error is None:
            self.error_since = self._clock.monotonic()
        self.is_watching, self.error = watching, error
        self._backoff.set_watching(self, watching)
        if before != (watching, str(error)):
            self._on_state()

    def _clear_error(self) -> None:
        was = self.error
        self._set_state(True, None)
        if was is not None:
            self._log.info("watching again")
            if self._on_error is not None:
                self._on_error(None)


def make_watcher(
    transport: Transport, kind: ApiResource, read: Callable[[Raw], V], clock: Clock, namespace: str = ""
) -> Informer[V]:
    """An informer for `watching`: it raises what the server refuses, and returns soon after a restart."""
    return Informer(transport, kind, namespace, read, clock, Rng(0), raise_refusals=True, max_backoff_s=2)


@asynccontextmanager
async def watching(*informers: Informer[Any]) -> AsyncIterator[asyncio.Event]:
    """Run `informers` inside this context; the event is set at every change of any of them.

    The one way to wait for a state of objects: read, `clear` the event, wait for it, read again. Raises what an
    informer made with `raise_refusals` raises.
    """
    changed = asyncio.Event()

    async def follow(informer: Informer[Any]) -> None:
        await informer.wait_for_sync()
        changed.set()
        async for _ in informer.changes():
            changed.set()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for one in informers for work in (one.run(), follow(one))]
            yield changed
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


def _is_too_large(error: KubeError) -> bool:
    causes = nested(error.details, "causes", default=())
    return isinstance(causes, list) and any(
        nested(cause, "reason") == "ResourceVersionTooLarge" for cause in causes
    )
