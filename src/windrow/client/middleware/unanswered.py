"""A transport that says whether a creation sent through it may be carried out later."""

from __future__ import annotations

import asyncio

from windrow.client.transport import Transport, TransportMiddleware
from windrow.kubernetes.errors import KubeError, OutcomeUnknown
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.retry import may_still_be_carried_out


class UnansweredCreations(TransportMiddleware):
    """Passes everything on to `inner`, outside of its retries. `found`: a creation had no answer, or one that leaves open
    whether it is carried out, or was not waited for; with `plural`, one of that resource."""

    def __init__(self, inner: Transport, plural: str = "") -> None:
        super().__init__(inner)
        self._plural = plural
        self.found = False

    async def send(self, request: Request) -> Reply:
        try:
            reply = await self._inner.send(request)
        except KubeError as error:
            self._on_result(request, error)
            raise
        except asyncio.CancelledError:
            self._on_result(request, OutcomeUnknown("cancelled"))
            raise
        self._on_result(request, reply)
        return reply

    def _on_result(self, request: Request, result: KubeError | Reply) -> None:
        if request.method == "POST" and request.path.endswith(f"/{self._plural}" if self._plural else ""):
            self.found |= may_still_be_carried_out(result)
