"""The store in which an adapter keeps the status of its machines: a Cache that its owner writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Generic, TypeVar
from weakref import WeakSet

from windrow.machines.port import MachineStatus

V = TypeVar("V")


class _Subscription(Generic[V]):
    """The pending changes of one reader: for each changed key, the value that the reader got last."""

    def __init__(self, store: StatusStore[V]) -> None:
        self._store = store
        self._pending: dict[Hashable, V | None] = dict.fromkeys(store.keys())
        self._wake = asyncio.Event()
        if self._pending:
            self._wake.set()

    def notify(self, key: Hashable, before: V | None) -> None:
        self._pending.setdefault(key, before)
        self._wake.set()

    def __aiter__(self) -> _Subscription[V]:
        return self

    async def __anext__(self) -> tuple[V | None, V | None]:
        while True:
            while self._pending:
                key = next(iter(self._pending))
                before, after = self._pending.pop(key), self._store.get(key)
                if before != after:
                    return before, after
            self._wake.clear()
            await self._wake.wait()


class StatusStore(Generic[V]):
    """A Cache that its owner writes (client-go: Store). A slow reader gets the latest value of each key, once."""

    def __init__(self) -> None:
        self._values: dict[Hashable, V] = {}
        self._subscriptions: WeakSet[_Subscription[V]] = WeakSet()

    async def wait_for_sync(self) -> None:
        """Return at once: a key that its owner has not written is unknown, not late."""

    @property
    def is_watching(self) -> bool:
        return True

    def get(self, key: Hashable) -> V | None:
        return self._values.get(key)

    def keys(self) -> Iterable[Hashable]:
        """All keys."""
        return tuple(self._values)

    def values(self) -> Iterable[V]:
        return tuple(self._values.values())

    def changes(self) -> AsyncIterator[tuple[V | None, V | None]]:
        subscription = _Subscription(self)
        self._subscriptions.add(subscription)
        return subscription

    def put(self, key: Hashable, value: V) -> None:
        """Store `value`; readers are notified only when it differs."""
        before = self._values.get(key)
        if before == value:
            return
        self._values[key] = value
        self._notify(key, before)

    def delete(self, key: Hashable) -> None:
        before = self._values.pop(key, None)
        if before is not None:
            self._notify(key, before)

    def _notify(self, key: Hashable, before: V | None) -> None:
        for subscription in self._subscriptions:
            subscription.notify(key, before)


def with_since(before: MachineStatus | None, status: MachineStatus, now: datetime) -> MachineStatus:
    """`status`, with the time since which its presence and state have been the same. An unknown one keeps the uid, the
    addresses and the place that were last known."""
    if before is None:
        return replace(status, since=now)
    if status.presence == "unknown":
        status = replace(
            status,
            vm_uid=before.vm_uid,
            addresses=before.addresses,
            host=before.host,
            zone=before.zone,
            region=before.region,
        )
    stays = (before.presence, before.state) == (status.presence, status.state)
    return replace(status, since=before.since if stays else now)
