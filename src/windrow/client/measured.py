"""A transport that tells how each request went and how long it took. Watches are counted when they stand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from windrow.client.transport import Transport
from windrow.kube.errors import KubeError
from windrow.kube.requests import Event, Reply, Request
from windrow.values.clock import Clock

# What client-go writes where there was no status code.
BROKEN = "<error>"

# Told: the request, its status code or BROKEN, and the seconds it took.
Heard = Callable[[Request, str, float], None]


class MeasuredTransport:
    def __init__(self, inner: Transport, clock: Clock, heard: Heard) -> None:
        self._inner = inner
        self._clock = clock
        self._heard = heard

    async def send(self, request: Request) -> Reply:
        begun = self._clock.now()
        code = BROKEN
        try:
            reply = await self._inner.send(request)
            code = str(reply.status)
        except KubeError as error:
            code = str(error.status or BROKEN)
            raise
        finally:
            self._heard(request, code, (self._clock.now() - begun).total_seconds())
        return reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Event]]:
        begun = self._clock.now()
        code = BROKEN
        async with AsyncExitStack() as stack:
            try:
                events = await stack.enter_async_context(self._inner.stream(request))
                code = "200"
            except KubeError as error:
                code = str(error.status or BROKEN)
                raise
            finally:
                self._heard(request, code, (self._clock.now() - begun).total_seconds())
            yield events
