"""A transport that reports each request's status and duration. A watch is reported when it has been opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import Clock
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.requests import Reply, Request, WatchEvent

# What client-go writes where there was no status code.
NO_STATUS = "<error>"

# Gets the request, its status code or NO_STATUS, and its duration in seconds.
OnRequest = Callable[[Request, str, float], None]


class InstrumentedTransport(TransportMiddleware):
    def __init__(self, inner: Transport, clock: Clock, on_request: OnRequest) -> None:
        super().__init__(inner)
        self._clock = clock
        self._on_request = on_request

    async def send(self, request: Request) -> Reply:
        begun = self._clock.monotonic()
        code = NO_STATUS
        try:
            reply = await self._inner.send(request)
            code = str(reply.status)
        except KubeError as error:
            code = str(error.status or NO_STATUS)
            raise
        finally:
            self._on_request(request, code, (self._clock.monotonic() - begun).total_seconds())
        return reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        begun = self._clock.monotonic()
        code = NO_STATUS
        async with AsyncExitStack() as stack:
            try:
                events = await stack.enter_async_context(self._inner.stream(request))
                code = "200"
            except KubeError as error:
                code = str(error.status or NO_STATUS)
                raise
            finally:
                self._on_request(request, code, (self._clock.monotonic() - begun).total_seconds())
            yield events
