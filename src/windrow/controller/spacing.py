"""How soon a large object is reconciled again for what has changed.

A reconcile of a Cluster reads and plans all of its machines, and each machine that boots changes some twenty times: reconciled
for every change, twice the machines cost four times as much. So the changes of a large one are gathered for a moment that
grows with it, and planned together. A small one is reconciled at once; so is any that has itself something left to do.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from windrow.core.clock import Clock

K = TypeVar("K", bound=Hashable)

LARGE = 25
PER_PART = timedelta(milliseconds=10)
LONGEST = timedelta(seconds=2)


def spacing_of(parts: int) -> timedelta:
    """How long after a reconcile of an object of so many parts the next one for a change begins, at the earliest."""
    return timedelta() if parts < LARGE else min(PER_PART * parts, LONGEST)


@dataclass(frozen=True, slots=True)
class _Reconciled:
    at: timedelta  # by the monotonic clock
    parts: int


class Spacing(Generic[K]):
    """When each key was reconciled last, and of how many parts its object was."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[K, _Reconciled] = {}

    def on_reconciled(self, key: K, parts: int) -> None:
        self._last[key] = _Reconciled(self._clock.monotonic(), parts)

    def forget(self, key: K) -> None:
        """Its object is gone. May be repeated."""
        self._last.pop(key, None)

    def left(self, key: K) -> timedelta:
        """How long a change of the object waits from now; zero where it does not."""
        last = self._last.get(key)
        if last is None:
            return timedelta()
        due = last.at + spacing_of(last.parts)
        return max(due - self._clock.monotonic(), timedelta())
