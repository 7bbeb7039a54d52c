"""The back-off that all informers of one API server share.

| What an attempt brought                                        | The next one                                       |
|----------------------------------------------------------------|----------------------------------------------------|
| an error of the server itself (403, 410, 429, 500, …)          | alone, after a delay that doubles up to a maximum  |
| no answer (refused, reset, timed out, 502, 503, 504), and some | the same, but at once when an outage ends          |
| other informer is watching                                     |                                                    |
| no answer, and none is watching: an outage                     | in turns, one attempt each second in all; after    |
|                                                                | two hours, one every twenty seconds                |

The first answer ends the outage and wakes every informer. So they watch again a second or two after the server is
back from an outage of up to two hours, and a server that starts is not met by all of them at once before it answers one.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from weakref import WeakKeyDictionary, WeakSet

from windrow.client.transport import Transport
from windrow.core.clock import Clock, sleep
from windrow.core.rng import Rng
from windrow.core.wait import wait_first
from windrow.kubernetes.errors import CertificateError, KubeError, OutcomeUnknown, ServerError, Unreachable

INITIAL_BACKOFF_S = 0.8
# In an outage, between the attempts of all informers together.
TURN_S = (0.8, 1.2)
# After a long outage, between the same: a second matters no longer when a server comes back after a night.
LONG_OUTAGE = timedelta(hours=2)
LONG_TURN_S = (15.0, 20.0)
# Those who are woken do not all send at the same instant.
WAKE_JITTER_S = 0.25
# What a proxy or an ingress answers while the API server behind it is away.
GATEWAY_STATUSES = (502, 503, 504)


def is_unanswered(error: KubeError) -> bool:
    """Whether `error` is no answer of the API server itself, so that the next request may find it back."""
    if isinstance(error, CertificateError) or error.retry_after_s:
        return False
    is_gateway = isinstance(error, ServerError) and error.status in GATEWAY_STATUSES
    return is_gateway or isinstance(error, Unreachable | OutcomeUnknown)


class SharedBackoff:
    """The back-off for one API server. `of` gives the one that belongs to a transport."""

    def __init__(self) -> None:
        # The members that are watching, by identity; weakly, because an informer may end without a word.
        self._watching: WeakSet[object] = WeakSet()
        self._outage_since: timedelta | None = None
        self._answered = asyncio.Event()
        self._last_turn: timedelta | None = None

    @classmethod
    def of(cls, transport: Transport) -> SharedBackoff:
        """The one of all informers that use this transport object."""
        return _BY_TRANSPORT.setdefault(transport, cls())

    def set_watching(self, member: object, watching: bool) -> None:
        (self._watching.add if watching else self._watching.discard)(member)

    def on_answer(self) -> None:
        """The server answered a request: an outage is over. May be repeated."""
        if self._outage_since is not None:
            self._outage_since = self._last_turn = None
            self._answered.set()
            self._answered = asyncio.Event()

    async def wait(self, error: KubeError, failures: int, maximum_s: float, clock: Clock, rng: Rng) -> bool:
        """Return when the next attempt is due, after `failures` in a row. Whether it was a turn in an outage, which
        counts as no failure of the caller's own."""
        if not is_unanswered(error):
            self.on_answer()
            await _sleep_alone(error.retry_after_s or 0.0, failures, maximum_s, clock, rng)
            return False
        answered, is_turn = self._answered, not self._watching
        if is_turn:
            now = clock.monotonic()
            delay = self._next_turn(now, rng) - now
        else:
            delay = timedelta(seconds=backoff_s(failures, maximum_s, rng))
        await wait_first(clock, delay, answered)
        if answered.is_set():
            await sleep(clock, timedelta(seconds=rng.uniform(0, WAKE_JITTER_S)))
        return is_turn or answered.is_set()

    def _next_turn(self, now: timedelta, rng: Rng) -> timedelta:
        self._outage_since = now if self._outage_since is None else self._outage_since
        turn_s = LONG_TURN_S if now - self._outage_since >= LONG_OUTAGE else TURN_S
        self._last_turn = max(self._last_turn or now, now) + timedelta(seconds=rng.uniform(*turn_s))
        return self._last_turn


def backoff_s(failures: int, maximum_s: float, rng: Rng) -> float:
    """The delay after `failures` in a row; 0 after none."""
    if not failures:
        return 0.0
    doubled: float = INITIAL_BACKOFF_S * 2 ** min(failures - 1, 16)
    return min(doubled, maximum_s) * rng.uniform(1.0, 2.0)


async def _sleep_alone(least_s: float, failures: int, maximum_s: float, clock: Clock, rng: Rng) -> None:
    delay_s = max(backoff_s(failures, maximum_s, rng), least_s * rng.uniform(1.0, 2.0))
    await sleep(clock, timedelta(seconds=delay_s))


_BY_TRANSPORT: WeakKeyDictionary[Transport, SharedBackoff] = WeakKeyDictionary()
