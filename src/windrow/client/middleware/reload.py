"""A transport whose inner transport can be replaced while it is used: for credentials that are renewed.

Requests that begin after `replace` use the new one; those that are being sent, and open watches, keep the old one. A 401
means that the request was not carried out, so it is sent once more where there is a newer credential.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from windrow.client.transport import Transport, TransportMiddleware
from windrow.kubernetes.errors import Unauthorized
from windrow.kubernetes.requests import Reply, Request, WatchEvent


class ReloadableTransport(TransportMiddleware):
    """`on_unauthorized` is called for each 401 of the inner transport in use; it returns whether to send once more.

    It may call `replace` before it returns.
    """

    def __init__(self, inner: Transport, on_unauthorized: Callable[[], bool]) -> None:
        super().__init__(inner)
        self._on_unauthorized = on_unauthorized

    def replace(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, request: Request) -> Reply:
        used = self._inner
        try:
            reply = await used.send(request)
        except Unauthorized:
            if not self._may_retry(used):
                raise
        else:
            if reply.status != 401 or not self._may_retry(used):
                return reply
        return await self._inner.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        used = self._inner
        async with AsyncExitStack() as stack:
            try:
                events = await stack.enter_async_context(used.stream(request))
            except Unauthorized:
                if not self._may_retry(used):
                    raise
                events = await stack.enter_async_context(self._inner.stream(request))
            yield events

    def _may_retry(self, used: Transport) -> bool:
        # Of many requests that got 401 together, the first reloads the credential.
        return used is not self._inner or self._on_unauthorized()
