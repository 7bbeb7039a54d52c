"""A transport that keeps to a rate, so that a big manager is a polite guest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import Clock
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import EVENT


class RateLimitedTransport(TransportMiddleware):
    """At most `burst` requests at once and `per_second` in the long run, first come, first served.

    Who gives up waiting has taken nobody's turn. Watches are free: a server counts them once, however long they last.
    """

    def __init__(self, inner: Transport, clock: Clock, *, per_second: float = 50.0, burst: int = 100) -> None:
        super().__init__(inner)
        self._clock = clock
        self._interval = timedelta(seconds=1 / per_second)
        self._burst_allowance = self._interval * (burst - 1)
        self._next_free = clock.now()  # when the allowance would be whole again, were nobody to ask
        self._lock = asyncio.Lock()

    async def send(self, request: Request) -> Reply:
        async with self._lock:
            # Only the first in line counts the time, and only what is sent is counted.
            now = self._clock.now()
            if self._next_free - self._burst_allowance > now:
                await self._clock.sleep_until(self._next_free - self._burst_allowance)
            self._next_free = max(self._next_free, now) + self._interval
        return await self._inner.send(request)


class SeparateEventBudget:
    """Events go one way, everything else another: what is told must not hold up what is done.

    Each way has an allowance of its own; the rate of both together is theirs together.
    """

    def __init__(self, requests: Transport, events: Transport) -> None:
        self._requests = requests
        self._events = events

    async def send(self, request: Request) -> Reply:
        transport = self._events if EVENT.plural in request.path.split("/") else self._requests
        return await transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._requests.stream(request)

    async def aclose(self) -> None:
        await self._requests.aclose()
        await self._events.aclose()
