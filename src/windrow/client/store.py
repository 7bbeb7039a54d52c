"""A store of values by key, whose changes can be followed (client-go: Store)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Hashable, ValuesView
from itertools import count
from typing import Any, Generic, TypeVar

V = TypeVar("V")

Change = tuple[V | None, V | None]


class Store(Generic[V]):
    """The latest value of each key. Its owner writes it; a slow reader of `changes` gets the latest of each key, once."""

    def __init__(self, index: Callable[[V], Hashable] | None = None) -> None:
        """`index` says by what `index_keys` finds a value."""
        self.index = index
        self._values: dict[Any, V] = {}
        self._keys: dict[
            Hashable, dict[Any, None]
        ] = {}  # of the values, by their index; ordered, as the values are
        self._numbers = count()
        # Ordered, so that a simulation resumes its subscribers in the same order each time.
        self._subscribers: weakref.WeakValueDictionary[int, _Subscriber[V]] = weakref.WeakValueDictionary()

    def get(self, key: Hashable) -> V | None:
        return self._values.get(key)

    def values(self) -> ValuesView[V]:
        return self._values.values()

    def items(self) -> list[tuple[Any, V]]:
        return list(self._values.items())

    def index_keys(self, index: Hashable) -> list[Any]:
        """The keys of the values of this index."""
        return list(self._keys.get(index, ()))

    def changes(self) -> AsyncIterator[Change[V]]:
        """(before, after) for each change, starting with (None, value) for what is there now."""
        subscriber: _Subscriber[V] = _Subscriber()
        for key, value in self._values.items():
            subscriber.notify(key, None, value)
        self._subscribers[next(self._numbers)] = subscriber
        return subscriber

    def put(self, key: Hashable, after: V | None) -> None:
        """Store `after`, or delete the key where it is None; readers are notified only of a difference."""
        before = self._values.get(key)
        if after is not None:
            # Also where it is equal: it may have a resourceVersion, which is not compared.
            self._values[key] = after
        self._update_index(key, before, after)
        if before == after:
            return
        if after is None:
            del self._values[key]
        for subscriber in list(self._subscribers.values()):
            subscriber.notify(key, before, after)

    def _update_index(self, key: Hashable, before: V | None, after: V | None) -> None:
        if self.index is None:
            return
        was = () if before is None else (self.index(before),)
        now = () if after is None else (self.index(after),)
        if was == now:
            return
        for index in was:
            del self._keys[index][key]
            if not self._keys[index]:
                del self._keys[index]
        for index in now:
            self._keys.setdefault(index, {})[key] = None


class _Subscriber(Generic[V]):
    """The changes that one subscriber has not taken yet, one per key at most."""

    def __init__(self) -> None:
        self._pending: dict[Hashable, Change[V]] = {}
        self._changed = asyncio.Event()

    def notify(self, key: Hashable, before: V | None, after: V | None) -> None:
        first = self._pending[key][0] if key in self._pending else before
        if first == after:
            self._pending.pop(key, None)  # the value is again as the subscriber last saw it
        else:
            self._pending[key] = (first, after)
            self._changed.set()

    def __aiter__(self) -> AsyncIterator[Change[V]]:
        return self

    async def __anext__(self) -> Change[V]:
        while not self._pending:
            self._changed.clear()
            await self._changed.wait()
        return self._pending.pop(next(iter(self._pending)))
