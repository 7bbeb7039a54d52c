"""The port Store: every object under one key, one revision counter for all of them, and a history to watch.

It has etcd's semantics: a write names the revision it has read, a watch the revision after which it starts. The store
sets `metadata.resourceVersion`. Objects passed to it must not be changed afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from windrow.core.formats.fastjson import dumps, loads

Raw = dict[str, Any]
Rev = int


class Entry:
    """One version of one object: its parsed form, and the same encoded once, on first use."""

    __slots__ = ("_data", "key", "raw", "rev")

    def __init__(self, key: str, rev: Rev, raw: Raw, data: bytes | None = None) -> None:
        self.key, self.rev, self.raw, self._data = key, rev, raw, data

    @property
    def data(self) -> bytes:
        if self._data is None:
            self._data = dumps(self.raw)
        return self._data

    def copy(self) -> Raw:
        """A copy of the object. (Decoding the cached bytes is faster than a deep copy.)"""
        copied: Raw = loads(self.data)
        return copied

    def __repr__(self) -> str:
        return f"Entry({self.key!r}, rev={self.rev})"


@dataclass(frozen=True, slots=True)
class Change:
    """One committed write. `after` is None for a removal; then `last` is the final state with resourceVersion `rev`."""

    rev: Rev
    key: str
    before: Entry | None
    after: Entry | None
    last: Entry

    @property
    def size(self) -> int:
        """The bytes of the encoded object; of a removal, those of the object before."""
        entry = self.after or self.before
        return len(entry.data) if entry is not None else 0


@dataclass(frozen=True, slots=True)
class Page:
    """Entries in key order as of revision `rev`; `remaining` counts those beyond the limit."""

    entries: list[Entry]
    rev: Rev
    remaining: int = 0


class RevisionMismatch(Exception):
    """The write names another revision than the key has. `current` is the entry there."""

    def __init__(self, key: str, found: Entry | None) -> None:
        super().__init__(f"{key} is at revision {found.rev if found else 'none'}")
        self.key, self.current = key, found

    @property
    def key_name(self) -> str:
        return self.key.rpartition("/")[2]


class Compacted(Exception):
    """The requested revision is older than the kept history."""

    def __init__(self, asked: Rev, oldest: Rev) -> None:
        super().__init__(f"revision {asked} was asked for, history starts after {oldest}")
        self.asked, self.oldest = asked, oldest


class Overflow(Exception):
    """A watch stream fell behind and was ended; its reader resumes from the last revision it has read."""


class WatchStream(Protocol):
    """The changes after a revision: first those of history, then each as it is committed."""

    def __aiter__(self) -> AsyncIterator[Change]: ...

    async def next(self) -> Change | None:
        """The next change; None after `wake`. Raises Overflow, or StopAsyncIteration once closed."""
        ...

    def wake(self) -> None:
        """Make one pending or future `next` return None, so that a reader can check its clock."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    @property
    def rev(self) -> Rev:
        """The revision of the latest commit; never falls, also not across restarts."""
        ...

    async def find(self, key: str) -> Entry | None: ...

    async def range(
        self, prefix: str, at: Rev | None = None, limit: int = 0, *, start: str = "", key_suffix: str = ""
    ) -> Page:
        """What is under `prefix` now, or as it was `at` a revision; at most `limit` (0: all), keys from `start`.

        `key_suffix` selects keys that end in it. Raises Compacted when `at` is too old.
        """
        ...

    async def commit(self, key: str, new: Raw | None, was: Rev | None) -> Entry:
        """Write `new` (None removes) if the key is at revision `was` (None: absent).

        Raises RevisionMismatch, and the API error for an object that is too large or a disk that cannot be written.
        Returns the entry written; for a removal the last state, with the revision of the removal.
        """
        ...

    def batch(self) -> AbstractContextManager[None]:
        """What is to be done after a write is done once for many writes of this task in the block, at its end at the latest.

        Each write is durable and visible when `commit` returns, as without it. For many writes whose caller answers once.
        """
        ...

    def changes(self, prefix: str, after: Rev) -> WatchStream:
        """Raises Compacted when `after` is too old. The stream starts with this call. Prefix "" is every key."""
        ...

    def compact(self, rev: Rev) -> None:
        """Forget the changes up to `rev`, as etcd does; objects stay. Watches that run go on."""
        ...

    def check_writable(self) -> None:
        """Raises OSError, with the reason, where a commit would fail now: the disk is full or read-only."""
        ...

    def close(self) -> None:
        """Ends every watch stream."""
        ...
