"""One shared list+watch per kind and scope: the only way services learn what exists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable
from typing import Protocol, TypeVar

V_co = TypeVar("V_co", covariant=True)


class Cache(Protocol[V_co]):
    """Typed readings of everything in scope, kept current by a watch. Keys are Refs or uids, as its maker says."""

    async def wait_for_sync(self) -> None:
        """Return once the first complete list has been read."""
        ...

    @property
    def is_watching(self) -> bool:
        """False before the first list, and again while the server cannot be reached: then nothing is certain."""
        ...

    def get(self, key: Hashable) -> V_co | None: ...

    def values(self) -> Iterable[V_co]: ...

    def changes(self) -> AsyncIterator[tuple[V_co | None, V_co | None]]:
        """(before, after) for each change, starting with (None, value) for what is there now. Bounded by keys,
        not by time: a slow reader gets the latest state of each key."""
        ...
