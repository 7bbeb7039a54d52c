"""A transport whose way to the server can be replaced while it is used: for credentials that are renewed.

Requests that begin after `replace` go the new way; those under way, and watches that stand, go on as they are. A 401
means that nothing was carried out, so it is worth a second try where somebody knows a newer credential by now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from windrow.client.transport import Transport, TransportMiddleware
from windrow.kubernetes.errors import Unauthorized
from windrow.kubernetes.requests import Reply, Request, WatchEvent


class ReloadableTransport(TransportMiddleware):
    """`refused` is told of each 401 by the way that is in use, and says whether trying once more makes sense.

    It may call `replace` before it answers.
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
        # Of many requests that were refused together, the first has the credential read anew.
        return used is not self._inner or self._on_unauthorized()
