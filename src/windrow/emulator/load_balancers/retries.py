"""Why a load balancer is not Ready, and what brings it there (reference 02 §4.3)."""

from __future__ import annotations

from datetime import datetime

from windrow.emulator.delays import ScaledClock
from windrow.emulator.kit.listers import Key

FIRST_RETRY_S = 0.005
LAST_RETRY_S = 30.0
LONGEST_POWER = 20


class NotReady(Exception):
    """The load balancer cannot work now; the message goes into its Ready condition."""


class RetrySoon(NotReady):
    """It is looked at again after a second, for ever."""


class AwaitChange(NotReady):
    """Nothing is done until a machine or its health changes."""


class Failed(NotReady):
    """It is tried again with growing back-off: 5 ms doubling to 30 s."""


class Backoff:
    """The waits of a work queue, by key."""

    def __init__(self, pace: ScaledClock) -> None:
        self._pace = pace
        self._failures: dict[Key, int] = {}

    def next(self, key: Key) -> datetime:
        """When to try again, after one more failure."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        wait = min(FIRST_RETRY_S * (1 << min(count - 1, LONGEST_POWER)), LAST_RETRY_S)
        return self._pace.after(wait)

    def forget(self, key: Key) -> None:
        self._failures.pop(key, None)
