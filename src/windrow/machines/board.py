"""The board on which an adapter pins what it sees of its machines: a Cache that its owner writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Generic, TypeVar
from weakref import WeakSet

from windrow.machines.port import Sighting

V = TypeVar("V")


class _Reader(Generic[V]):
    """One reader's backlog: for each changed key, what the reader saw last."""

    def __init__(self, board: Board[V]) -> None:
        self._board = board
        self._seen: dict[Hashable, V | None] = dict.fromkeys(board.pinned())
        self._bell = asyncio.Event()
        if self._seen:
            self._bell.set()

    def note(self, key: Hashable, before: V | None) -> None:
        self._seen.setdefault(key, before)
        self._bell.set()

    def __aiter__(self) -> _Reader[V]:
        return self

    async def __anext__(self) -> tuple[V | None, V | None]:
        while True:
            while self._seen:
                key = next(iter(self._seen))
                before, after = self._seen.pop(key), self._board.get(key)
                if before != after:
                    return before, after
            self._bell.clear()
            await self._bell.wait()


class Board(Generic[V]):
    """A Cache whose owner says what is in it. Readers that lag get the latest state of each key, once."""

    def __init__(self) -> None:
        self._values: dict[Hashable, V] = {}
        self._readers: WeakSet[_Reader[V]] = WeakSet()

    async def synced(self) -> None:
        """Return at once: what its owner has not pinned is not known, rather than late."""

    @property
    def is_synced(self) -> bool:
        return True

    def get(self, key: Hashable) -> V | None:
        return self._values.get(key)

    def pinned(self) -> Iterable[Hashable]:
        """The keys of everything on the board."""
        return tuple(self._values)

    def values(self) -> Iterable[V]:
        return tuple(self._values.values())

    def changes(self) -> AsyncIterator[tuple[V | None, V | None]]:
        reader = _Reader(self)
        self._readers.add(reader)
        return reader

    def put(self, key: Hashable, value: V) -> None:
        """Pin `value`; readers hear of it only when it differs."""
        before = self._values.get(key)
        if before == value:
            return
        self._values[key] = value
        self._tell(key, before)

    def drop(self, key: Hashable) -> None:
        before = self._values.pop(key, None)
        if before is not None:
            self._tell(key, before)

    def _tell(self, key: Hashable, before: V | None) -> None:
        for reader in self._readers:
            reader.note(key, before)


def dated(before: Sighting | None, seen: Sighting, now: datetime) -> Sighting:
    """`seen`, with the instant since which its presence and state hold. Where nothing is certain, the places last
    known stay; they are then what they say, last known."""
    if before is None:
        return replace(seen, since=now)
    if seen.presence == "unknown":
        seen = replace(
            seen,
            vm_uid=before.vm_uid,
            addresses=before.addresses,
            host=before.host,
            zone=before.zone,
            region=before.region,
        )
    stays = (before.presence, before.state) == (seen.presence, seen.state)
    return replace(seen, since=before.since if stays else now)
