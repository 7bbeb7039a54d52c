"""Watch: the events after a resourceVersion (reference/05 §7.9)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.context import ServerContext, to_served_version
from windrow.apiserver.request.info import ApiCall, is_truthy
from windrow.apiserver.request.options import read_int, read_version
from windrow.apiserver.request.selection import Selection, read_selection
from windrow.apiserver.storage.port import Change, Compacted, Entry, Overflow, WatchStream
from windrow.apiserver.types.registry import ResourceType
from windrow.core.clock import sleep
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.requests import WatchEvent

MAX_TIMEOUT_S = 10 * 365 * 86400  # a longer watch has no end that a clock can name
INITIAL_END = "k8s.io/initial-events-end"


class EntryEvent(WatchEvent):
    """A watch event whose object is decoded on first access; HTTP sends the encoded bytes."""

    __slots__ = ("_decoded", "entry")
    entry: Entry
    _decoded: dict[str, Any] | None

    def __init__(self, type: Any, entry: Entry) -> None:
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "entry", entry)
        object.__setattr__(self, "_decoded", None)

    @property
    def object(self) -> dict[str, Any]:
        decoded = self._decoded
        if decoded is None:
            decoded = self.entry.copy()
            object.__setattr__(self, "_decoded", decoded)
        return decoded

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, WatchEvent) and (self.type, self.object) == (other.type, other.object)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Event({self.type}, {self.entry!r})"


def event_of(type: ResourceType, selection: Selection, change: Change) -> EntryEvent | None:
    """The event of `change` for a watch with `selection`; entering it is ADDED, leaving it DELETED."""
    before = change.before is not None and (
        selection.is_all or selection.matches(to_served_version(type, change.before).raw)
    )
    after = change.after is not None and (
        selection.is_all or selection.matches(to_served_version(type, change.after).raw)
    )
    match (before, after):
        case (False, True):
            return EntryEvent("ADDED", to_served_version(type, change.last))
        case (True, True):
            return EntryEvent("MODIFIED", to_served_version(type, change.last))
        case (True, False):
            if change.after is None:
                return EntryEvent("DELETED", to_served_version(type, change.last))
            # It left the selection: DELETED carries the last selected state, with the new resourceVersion.
            assert change.before is not None
            raw = {**change.before.raw}
            raw["metadata"] = {**raw["metadata"], "resourceVersion": str(change.rev)}
            return EntryEvent("DELETED", to_served_version(type, Entry(change.key, change.rev, raw)))
        case _:
            return None


def bookmark(type: ResourceType, rev: int, *, initial_end: bool = False) -> WatchEvent:
    head: dict[str, Any] = {"resourceVersion": str(rev), "creationTimestamp": None}
    if initial_end:
        head["annotations"] = {INITIAL_END: "true"}
    return WatchEvent(
        "BOOKMARK", {"kind": type.kind.kind, "apiVersion": type.kind.api_version, "metadata": head}
    )


def error_event(error: KubeError) -> WatchEvent:
    return WatchEvent("ERROR", apierrors.status_of(error))


def _check_initial(call: ApiCall) -> bool:
    """Whether `sendInitialEvents` is requested. 422 for invalid combinations of options."""
    if call.options.get("continue"):
        raise _refused("resourceVersionMatch is forbidden when continue is provided")
    if "sendInitialEvents" not in call.options:
        if call.options.get("resourceVersionMatch"):
            raise _refused("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        return False
    if call.options.get("resourceVersionMatch") != "NotOlderThan":
        raise _refused(
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            field="resourceVersionMatch",
        )
    return is_truthy(call.options, "sendInitialEvents")


def _refused(text: str, field: str = "resourceVersionMatch") -> KubeError:
    return apierrors.invalid_options("ListOptions", apierrors.forbidden_value(field, text))


@asynccontextmanager
async def watch(
    context: ServerContext, type: ResourceType, call: ApiCall, listing: AbstractAsyncContextManager[None]
) -> AsyncIterator[AsyncIterator[WatchEvent]]:
    """The stream opens on entry: no later change is missed. Ends after `timeoutSeconds`.

    `listing` is entered before the initial events, and left when they are sent.
    """
    selection = read_selection(type, call.options)
    version = read_version(call.options)
    initial_end = _check_initial(call)
    if version is not None and version > context.store.rev:
        raise apierrors.resource_version_too_large(version, context.store.rev)
    prefix = type.prefix(call.info.namespace)
    first: list[WatchEvent] = []
    feed: WatchStream | None = None
    rev = version or context.store.rev
    if not version or initial_end:
        page = await context.store.range(prefix, key_suffix=f"/{selection.name}" if selection.name else "")
        entries = [to_served_version(type, entry) for entry in page.entries]
        first = [EntryEvent("ADDED", entry) for entry in entries if selection.matches(entry.raw)]
        rev = page.rev
        if initial_end and is_truthy(call.options, "allowWatchBookmarks"):
            first.append(bookmark(type, rev, initial_end=True))
    try:
        feed = context.store.changes(prefix, rev)
    except Compacted as error:
        first = [error_event(apierrors.expired(error.asked, error.oldest))]
    if feed is None:
        yield _replay(first)
        return
    pacer = _WatchTimer(context, call, feed)
    timer = asyncio.create_task(pacer.run())
    events = _events(type, selection, first, listing, feed, pacer, rev)
    try:
        yield events
    finally:
        await events.aclose()
        feed.close()
        timer.cancel()
        # Not `suppress(CancelledError)`: that would swallow our own cancellation too.
        await asyncio.gather(timer, return_exceptions=True)


async def _replay(events: list[WatchEvent]) -> AsyncIterator[WatchEvent]:
    for event in events:
        yield event


class _WatchTimer:
    """Wakes a watch for its bookmarks and its timeout."""

    def __init__(self, context: ServerContext, call: ApiCall, feed: WatchStream) -> None:
        asked = read_int(call.options, "timeoutSeconds") or 0
        span = min(asked, MAX_TIMEOUT_S) if asked > 0 else context.rng.uniform(1800, 3600)
        self._context, self._feed = context, feed
        self.bookmarks = is_truthy(call.options, "allowWatchBookmarks")
        self._end = context.clock.monotonic() + timedelta(seconds=span)
        self.revs: deque[int] = (
            deque()
        )  # the store's revision at each wake: all changes before it are in the stream

    @property
    def is_over(self) -> bool:
        return self._context.clock.monotonic() >= self._end

    async def run(self) -> None:
        clock = self._context.clock
        every = timedelta(seconds=self._context.bookmark_every_s)
        while not self.is_over:
            left = self._end - clock.monotonic()
            await sleep(clock, min(every, left) if self.bookmarks else left)
            self.revs.append(self._context.store.rev)
            self._feed.wake()


async def _events(
    type: ResourceType,
    selection: Selection,
    first: list[WatchEvent],
    listing: AbstractAsyncContextManager[None],
    feed: WatchStream,
    pacer: _WatchTimer,
    rev: int,
) -> AsyncGenerator[WatchEvent, None]:
    if first:
        async with listing:
            for event in first:
                yield event
    first.clear()
    while True:
        try:
            change = await feed.next()
        except (Overflow, StopAsyncIteration):
            return
        if change is None:
            rev = max(rev, pacer.revs.popleft())
            if pacer.bookmarks:
                yield bookmark(type, rev)
            if pacer.is_over:
                return
            continue
        rev = change.rev
        found = event_of(type, selection, change)
        if found is not None:
            yield found
