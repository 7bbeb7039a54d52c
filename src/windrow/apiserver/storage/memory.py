"""A store in memory: dicts, one sorted key list per resource, and a ring of changes, bounded in number and in bytes."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext

from windrow.apiserver.apierrors import request_too_large
from windrow.apiserver.storage.port import (
    Change,
    Compacted,
    Entry,
    Overflow,
    Page,
    Raw,
    Rev,
    RevisionMismatch,
)

HISTORY = 10_000
HISTORY_BYTES = 32 * 1024 * 1024  # encoded; the parsed forms take a small multiple of it
BACKLOG = 10_000
MAX_OBJECT_BYTES = 1536 * 1024  # etcd's --max-request-bytes


def resource_prefix(key: str) -> str:
    """`group/plural/`: the part of a key that all objects of one resource share; "" for the prefix of all."""
    if not key:
        return ""
    first = key.index("/")
    return key[: key.index("/", first + 1) + 1]


def with_resource_version(raw: Raw, rev: Rev) -> Raw:
    """`raw` with its resourceVersion set; shares every other part."""
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(rev)}}


class MemoryWatchStream:
    """A queue of changes for one reader, bounded in number and in bytes; a reader that falls behind gets Overflow."""

    def __init__(self, owner: MemoryStore, prefix: str, backlog: int, backlog_bytes: int) -> None:
        self.prefix = prefix
        self._store = owner
        self._queue: deque[Change | None] = deque()
        self._queued_bytes = 0
        self._backlog, self._backlog_bytes = backlog, backlog_bytes
        self._waiter: asyncio.Future[None] | None = None
        self._ended: type[Exception] | None = None

    def __aiter__(self) -> AsyncIterator[Change]:
        return self._read()

    async def _read(self) -> AsyncIterator[Change]:
        while True:
            try:
                change = await self.next()
            except StopAsyncIteration:
                return
            if change is not None:
                yield change

    async def next(self) -> Change | None:
        while not self._queue:
            if self._ended is not None:
                raise self._ended
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        change = self._queue.popleft()
        self._queued_bytes -= change.size if change is not None else 0
        return change

    def push(self, change: Change | None) -> None:
        if self._ended is not None:
            return
        self._queued_bytes += change.size if change is not None else 0
        if self._queue and (len(self._queue) >= self._backlog or self._queued_bytes > self._backlog_bytes):
            self._queue.clear()
            self._end(Overflow)
            return
        self._queue.append(change)
        self._notify()

    def replay(self, changes: list[Change]) -> None:
        """Queue changes of the history; they do not count against the backlog."""
        self._queue.extend(changes)
        replayed_bytes = sum(change.size for change in changes)
        self._queued_bytes += replayed_bytes
        self._backlog += len(changes)
        self._backlog_bytes += replayed_bytes

    def wake(self) -> None:
        self.push(None)

    def close(self) -> None:
        self._end(StopAsyncIteration)

    def _end(self, how: type[Exception]) -> None:
        if self._ended is None:
            self._ended = how
            self._store.remove_stream(self)
            self._notify()

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class MemoryStore:
    """Keeps the last `history` changes, of at most `history_bytes`; a watch stream with more than `backlog` unread changes,
    or with more than `history_bytes` of them, ends with Overflow. An object has at most MAX_OBJECT_BYTES.
    """

    def __init__(
        self, *, history: int = HISTORY, history_bytes: int = HISTORY_BYTES, backlog: int = BACKLOG
    ) -> None:
        self._entries: dict[str, Entry] = {}
        self._keys: dict[str, list[str]] = {}
        self._ring: deque[Change] = deque()
        self._ring_bytes = 0
        self._history, self._history_bytes, self._backlog = history, history_bytes, backlog
        self._streams: dict[str, list[MemoryWatchStream]] = {}
        self._rev: Rev = 0
        self._oldest: Rev = 0  # changes after this revision are all in the ring

    @property
    def rev(self) -> Rev:
        return self._rev

    @property
    def compacted_rev(self) -> Rev:
        """The revision up to which changes are forgotten."""
        return self._oldest

    def count_by_resource(self) -> dict[str, int]:
        """How many objects there are, by `resource_prefix`."""
        return {prefix: len(keys) for prefix, keys in self._keys.items()}

    async def find(self, key: str) -> Entry | None:
        return self._entries.get(key)

    async def range(
        self, prefix: str, at: Rev | None = None, limit: int = 0, *, start: str = "", key_suffix: str = ""
    ) -> Page:
        past = {} if at is None or at >= self._rev else self._entries_at(prefix, at)
        keys = self._keys.get(resource_prefix(prefix), [])
        if past:
            keys = sorted({*keys, *past})
        place = bisect_left(keys, max(prefix, start))
        found: list[Entry] = []
        remaining = 0
        for index in range(place, len(keys)):
            key = keys[index]
            if not key.startswith(prefix):
                break
            entry = past[key] if key in past else self._entries[key]
            if entry is None or (key_suffix and not key.endswith(key_suffix)):
                continue
            if limit and len(found) == limit:
                remaining += 1
                continue
            found.append(entry)
        return Page(found, self._rev if at is None else min(at, self._rev), remaining)

    def snapshot(self) -> tuple[Rev, tuple[Entry, ...]]:
        """The revision and every object of now. Entries never change, so another thread may read them."""
        return self._rev, tuple(self._entries.values())

    def _entries_at(self, prefix: str, at: Rev) -> dict[str, Entry | None]:
        """The entries at revision `at` of the keys changed since."""
        if at < self._oldest:
            raise Compacted(at, self._oldest)
        past: dict[str, Entry | None] = {}
        for change in reversed(self._ring):
            if change.rev <= at:
                break
            if change.key.startswith(prefix):
                past[change.key] = change.before
        return past

    async def commit(self, key: str, new: Raw | None, was: Rev | None) -> Entry:
        before = self._entries.get(key)
        if (before.rev if before else None) != was or (new is None and before is None):
            raise RevisionMismatch(key, before)
        change = self._change(key, before, new)
        self._persist(change)
        self._apply(change)
        return change.last

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()  # nothing is to be done after a write

    def _change(self, key: str, before: Entry | None, new: Raw | None) -> Change:
        rev = self._rev + 1
        if new is None:
            assert before is not None
            return Change(rev, key, before, None, Entry(key, rev, with_resource_version(before.raw, rev)))
        after = Entry(key, rev, with_resource_version(new, rev))
        if len(after.data) > MAX_OBJECT_BYTES:
            raise request_too_large()
        return Change(rev, key, before, after, after)

    def _persist(self, change: Change) -> None:
        """Overridden by a persistent store: called before the change is visible."""

    def _apply(self, change: Change) -> None:
        self._rev = change.rev
        keys = self._keys.setdefault(resource_prefix(change.key), [])
        if change.after is None:
            del self._entries[change.key]
            del keys[bisect_left(keys, change.key)]
        else:
            if change.before is None:
                insort(keys, change.key)
            self._entries[change.key] = change.after
        self._ring.append(change)
        self._ring_bytes += change.size
        while len(self._ring) > self._history or self._ring_bytes > self._history_bytes:
            self._oldest = self._forget_oldest()
        for feed in (*self._streams.get(resource_prefix(change.key), ()), *self._streams.get("", ())):
            if change.key.startswith(feed.prefix):
                feed.push(change)

    def _forget_oldest(self) -> Rev:
        oldest = self._ring.popleft()
        self._ring_bytes -= oldest.size
        return oldest.rev

    def changes(self, prefix: str, after: Rev) -> MemoryWatchStream:
        if after < self._oldest:
            raise Compacted(after, self._oldest)
        feed = MemoryWatchStream(self, prefix, self._backlog, self._history_bytes)
        missed: list[Change] = []
        for change in reversed(self._ring):
            if change.rev <= after:
                break
            if change.key.startswith(prefix):
                missed.append(change)
        feed.replay(missed[::-1])
        self._streams.setdefault(resource_prefix(prefix), []).append(feed)
        return feed

    def remove_stream(self, feed: MemoryWatchStream) -> None:
        listening = self._streams.get(resource_prefix(feed.prefix), [])
        if feed in listening:
            listening.remove(feed)

    def compact(self, rev: Rev) -> None:
        """Forget history up to `rev`; objects stay."""
        while self._ring and self._ring[0].rev <= rev:
            self._forget_oldest()
        self._oldest = max(self._oldest, min(rev, self._rev))

    def check_writable(self) -> None:
        pass  # memory has no disk that could be full

    def close(self) -> None:
        for feeds in list(self._streams.values()):
            for feed in tuple(feeds):
                feed.close()
