"""A transport whose writes are waited for, although their caller gives up.

A write that was sent is carried out by the server whether or not its answer is waited for. If the caller of a cancelled
operation went on at once, the next operation could read the object before that write reached it, find nothing to undo, and be
overtaken by it. So a cancelled write ends with its answer, and only then its caller.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from windrow.client.transport import TransportMiddleware
from windrow.kubernetes.requests import Reply, Request

_READS = frozenset({"GET", "HEAD"})


class AwaitedWrites(TransportMiddleware):
    """Passes everything on to `inner`, which bounds how long a request takes. Belongs inside of retries: a cancelled write is
    waited for, and not repeated."""

    async def send(self, request: Request) -> Reply:
        if request.method in _READS:
            return await self._inner.send(request)
        sending = asyncio.create_task(self._inner.send(request))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            while not sending.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([sending])
            if not sending.cancelled():
                sending.exception()  # read, so that nothing complains that it was not
            raise
