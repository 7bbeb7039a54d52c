"""What our own writes answered, until the watch has brought it: so that no step is planned twice.

A write rests on the version that was read, hence nothing lies between that version and the answer's: as long as the
cache shows a version that we replaced, the answer is the newer truth. It is not trusted for long, because a cache
without the object also comes after its deletion.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from windrow.core.clock import Clock
from windrow.kubernetes.resources import ObjectRef

TRUSTED_FOR = timedelta(seconds=5)


class Versioned(Protocol):
    @property
    def version(self) -> str: ...


V = TypeVar("V", bound=Versioned)


@dataclass(frozen=True, slots=True)
class _Answer(Generic[V]):
    replaced: frozenset[str]  # versions; "" for no object
    value: V | None
    until: datetime


class Ahead(Generic[V]):
    """Answers of writes, by object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[ObjectRef, _Answer[V]] = {}

    def wrote(self, ref: ObjectRef, before: V | None, after: V | None) -> None:
        """A write has turned `before` into `after`; None is no object."""
        replaced = _version(before)
        if _version(after) == replaced:
            return
        known = self._answers.get(ref)
        chain = known.replaced if known is not None and _version(known.value) == replaced else frozenset()
        self._answers[ref] = _Answer(chain | {replaced}, after, self._clock.now() + TRUSTED_FOR)

    def latest(self, ref: ObjectRef, cached: V | None) -> V | None:
        """The newer of what the cache has and what we were answered."""
        known = self._answers.get(ref)
        if known is None:
            return cached
        if _version(cached) in known.replaced and self._clock.now() < known.until:
            return known.value
        del self._answers[ref]
        return cached

    def until(self, ref: ObjectRef) -> datetime | None:
        """When an answer that the watch does not confirm stops to count."""
        known = self._answers.get(ref)
        return None if known is None else known.until


def _version(value: Versioned | None) -> str:
    return "" if value is None else value.version
