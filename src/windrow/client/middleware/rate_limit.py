"""A transport with a rate limit (client-go's QPS and Burst)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import Clock, sleep
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import EVENT


class Allowance:
    """How much of something may be used: `burst` at once, and `per_second` in the long run."""

    def __init__(self, clock: Clock, *, per_second: float, burst: float) -> None:
        self._clock = clock
        self._interval = timedelta(seconds=1 / per_second)
        self._burst_allowance = self._interval * (burst - 1)
        self._next_free = clock.monotonic()  # when the burst would be whole again without further use

    @property
    def is_used_up(self) -> bool:
        return self._debt() > timedelta()

    async def wait(self) -> None:
        """Return when something may be used."""
        if (debt := self._debt()) > timedelta():
            await sleep(self._clock, debt)

    def charge(self, amount: float = 1) -> None:
        """`amount` was used; it may be more than is left, and the next waits longer then."""
        self._next_free = max(self._next_free, self._clock.monotonic()) + self._interval * amount

    def _debt(self) -> timedelta:
        return self._next_free - self._burst_allowance - self._clock.monotonic()


class RateLimitedTransport(TransportMiddleware):
    """At most `burst` requests at once and `per_second` in the long run, first come, first served.

    A cancelled request does not count. Watches are not limited.
    """

    def __init__(self, inner: Transport, clock: Clock, *, per_second: float = 50.0, burst: int = 100) -> None:
        super().__init__(inner)
        self._allowance = Allowance(clock, per_second=per_second, burst=burst)
        self._lock = asyncio.Lock()

    async def send(self, request: Request) -> Reply:
        async with self._lock:
            # Only the first in the queue waits for the rate, and only requests that are sent count.
            await self._allowance.wait()
            self._allowance.charge()
        return await self._inner.send(request)


class SeparateEventBudget(TransportMiddleware):
    """Writes of Events have a rate limit of their own, so that they do not delay other requests."""

    def __init__(self, requests: Transport, events: Transport) -> None:
        super().__init__(requests)
        self._events = events

    async def send(self, request: Request) -> Reply:
        transport = self._events if EVENT.plural in request.path.split("/") else self._inner
        return await transport.send(request)

    async def aclose(self) -> None:
        await super().aclose()
        await self._events.aclose()
