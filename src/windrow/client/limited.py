"""A transport that keeps to a rate, so that a big manager is a polite guest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from windrow.client.transport import Transport
from windrow.kube.refs import EVENT
from windrow.kube.requests import Event, Reply, Request
from windrow.values.clock import Clock


class LimitedTransport:
    """At most `burst` requests at once and `per_second` in the long run, first come, first served.

    Who gives up waiting has taken nobody's turn. Watches are free: a server counts them once, however long they last.
    """

    def __init__(self, inner: Transport, clock: Clock, *, per_second: float = 50.0, burst: int = 100) -> None:
        self._inner = inner
        self._clock = clock
        self._each = timedelta(seconds=1 / per_second)
        self._slack = self._each * (burst - 1)
        self._spent = clock.now()  # when the allowance would be whole again, were nobody to ask
        self._line = asyncio.Lock()

    async def send(self, request: Request) -> Reply:
        async with self._line:
            # Only the first in line counts the time, and only what is sent is counted.
            now = self._clock.now()
            if self._spent - self._slack > now:
                await self._clock.until(self._spent - self._slack)
            self._spent = max(self._spent, now) + self._each
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        return self._inner.stream(request)


class EventsApart:
    """Events go one way, everything else another: what is told must not hold up what is done.

    Each way has an allowance of its own; the rate of both together is theirs together.
    """

    def __init__(self, work: Transport, events: Transport) -> None:
        self._work = work
        self._events = events

    async def send(self, request: Request) -> Reply:
        way = self._events if EVENT.plural in request.path.split("/") else self._work
        return await way.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        return self._work.stream(request)
