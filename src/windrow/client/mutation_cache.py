"""An informer's objects overlaid with the results of our own writes (client-go's MutationCache).

A watch delivers a write some time after the answer to that write. A controller that plans on the state in between plans
the same step twice. So the object that a write answered with is overlaid until the informer has caught up with it, by
the resource versions, which are comparable as numbers within a resource type:

| informer read up to | cached object       | overlay  | used    |
|---------------------|---------------------|----------|---------|
| before the write    | any older, or none  | object   | overlay |
| before the write    | the same or newer   | object   | cached  |
| the write or later  | any, or none        | object   | cached  |
| any                 | newer               | deletion | cached  |
| any                 | the deleted, older or none | deletion | none |

An overlay ends after `ttl` in any case: a server restored from a backup counts its versions from an earlier one again.
Versions that are not numbers count as the oldest, so the informer is used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.core.clock import Clock
from windrow.kubernetes.objects import Raw, finalizers_of, is_deleting, resource_version_of, version_number
from windrow.kubernetes.resources import ObjectRef, ref_of

V = TypeVar("V")

# Longer than a watch lives, so that a stalled one has been replaced by then.
TTL = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class _Mutation(Generic[V]):
    resource_version: int
    value: V | None  # None: deleted
    expires: timedelta


class MutationCache(Generic[V]):
    """The newest known state of the objects of `informer`. `resource_version` reads the version of a value."""

    def __init__(
        self, informer: Informer[V], resource_version: Callable[[V], str], clock: Clock, ttl: timedelta = TTL
    ) -> None:
        self.informer = informer
        self._resource_version = resource_version
        self._clock = clock
        self._ttl = ttl
        self._mutations: dict[ObjectRef, _Mutation[V]] = {}

    def mutated(self, raw: Raw) -> V | None:
        """Overlay the object that a write answered with; its value, as the informer reads it."""
        value = self.informer.read(raw)
        # The answer to the removal of the last finalizer is the object's last state.
        is_deleted = is_deleting(raw) and not finalizers_of(raw)
        self._overlay(
            ref_of(self.informer.kind, raw), resource_version_of(raw), None if is_deleted else value
        )
        return value

    def deleted(self, ref: ObjectRef, resource_version: str) -> None:
        """Overlay the deletion of the object, which had that version."""
        self._overlay(ref, resource_version, None)

    def _overlay(self, ref: ObjectRef, resource_version: str, value: V | None) -> None:
        for other in list(self._mutations):
            self._current(other)
        self._mutations[ref] = _Mutation(
            version_number(resource_version), value, self._clock.monotonic() + self._ttl
        )

    def get(self, ref: ObjectRef) -> V | None:
        cached, mutation = self.informer.get(ref), self._current(ref)
        return cached if mutation is None else mutation.value

    def by_index(self, key: Hashable) -> Iterator[V]:
        """The objects of which the informer's `index` is `key`."""
        index = self.informer.index
        assert index is not None, "the informer has no index"
        refs = dict.fromkeys((*self.informer.index_keys(key), *self._mutations))
        for value in map(self.get, refs):
            if value is not None and index(value) == key:
                yield value

    def values(self) -> Iterator[V]:
        for ref in dict.fromkeys((*(ref for ref, _ in self.informer.items()), *self._mutations)):
            value = self.get(ref)
            if value is not None:
                yield value

    def expires(self, ref: ObjectRef) -> datetime | None:
        """Until when the overlay of the object lasts at most; None where there is none."""
        mutation = self._current(ref)
        return None if mutation is None else self._clock.now() + (mutation.expires - self._clock.monotonic())

    async def refresh(self, client: Client, namespace: str, labels: str) -> None:
        """Overlay the objects as they are on the server now: for a write whose answer was lost."""
        for raw in await client.list(self.informer.kind, namespace, labels):
            self.mutated(raw)

    def _current(self, ref: ObjectRef) -> _Mutation[V] | None:
        """The overlay of the object, which is dropped once it is superseded or has expired."""
        mutation = self._mutations.get(ref)
        if mutation is not None and (
            self._clock.monotonic() >= mutation.expires or self._is_superseded(ref, mutation)
        ):
            del self._mutations[ref]
            return None
        return mutation

    def _is_superseded(self, ref: ObjectRef, mutation: _Mutation[V]) -> bool:
        cached = self.informer.get(ref)
        version = 0 if cached is None else version_number(self._resource_version(cached))
        if mutation.value is None and cached is not None:
            # The deleted object had this version; deletions may carry none.
            return version > mutation.resource_version
        return max(version, version_number(self.informer.resource_version)) >= mutation.resource_version
