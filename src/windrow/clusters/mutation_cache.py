"""A cache that is never older than our own writes.

A watch tells of a write some time after its answer came. A controller that decides on the state in between would
record the same machine twice. So what a write answered is laid over the cache until the cache has caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.kubernetes.objects import Raw, finalizers_of, is_deleting, resource_version_of
from windrow.kubernetes.resources import ObjectRef, ref_of

V = TypeVar("V")


class MutationCache(Generic[V]):
    """Readings of one kind by Ref, the newest that is known. `noted` is told every change of the cache."""

    def __init__(
        self, cache: Informer[V], read: Callable[[Raw], V], resource_version: Callable[[V], str]
    ) -> None:
        self.cache = cache
        self._read = read
        self._resource_version = resource_version
        self._mutations: dict[ObjectRef, tuple[int, V | None]] = {}

    def mutated(self, raw: Raw) -> V:
        """Take in what a write answered."""
        reading = self._read(raw)
        # The answer to the removal of the last finalizer is the last anybody hears of an object.
        gone = is_deleting(raw) and not finalizers_of(raw)
        self._mutations[ref_of(self.cache.kind, raw)] = (
            _as_number(resource_version_of(raw)),
            None if gone else reading,
        )
        return reading

    def on_watch_event(self, ref: ObjectRef, after: V | None) -> None:
        """The cache changed: what it caught up with need not be laid over any more."""
        mutation = self._mutations.get(ref)
        if mutation is None:
            return
        if after is None or _as_number(self._resource_version(after)) >= mutation[0]:
            del self._mutations[ref]

    def get(self, ref: ObjectRef) -> V | None:
        return self._newest(ref, self.cache.get(ref))

    def values(self) -> Iterator[V]:
        known = dict(self.cache.items())
        for ref in [*known, *(ref for ref in self._mutations if ref not in known)]:
            value = self._newest(ref, known.get(ref))
            if value is not None:
                yield value

    def _newest(self, ref: ObjectRef, cached: V | None) -> V | None:
        if ref not in self._mutations:
            return cached
        number, ours = self._mutations[ref]
        if cached is not None and _as_number(self._resource_version(cached)) > number:
            return cached
        return ours

    async def refresh(self, client: Client, namespace: str, labels: str) -> None:
        """Look anew, after a write whose answer was lost."""
        for raw in await client.list(self.cache.kind, namespace, labels):
            self.mutated(raw)


def _as_number(version: str) -> int:
    """Resource versions may be compared as numbers since Kubernetes promised it; others count as older."""
    return int(version) if version.isdigit() else 0
