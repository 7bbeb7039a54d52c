"""The port through which requests leave: sockets, or straight into a server in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from windrow.kubernetes.requests import Reply, Request, WatchEvent


class Transport(Protocol):
    """Carries requests to one API server as one identity."""

    async def send(self, request: Request) -> Reply:
        """The server's answer, whatever its status.

        Raises Unreachable when the request was certainly not sent, OutcomeUnknown when it may have been.
        """
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """The events of a watch, until the server ends it (a clean end) or the connection breaks (OutcomeUnknown).

        A refusal (401, 403, 404, …) is raised on entry as the KubeError it stands for. Never retried here.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections that this transport owns. May be repeated; a closed transport is not used again."""
        ...


def find_certificate_end(transport: object) -> datetime | None:
    """When the certificate ends with which the server of the last watch has shown who it is; None where it has shown none that was
    verified."""
    end = getattr(transport, "certificate_end", None)
    return end if isinstance(end, datetime) else None


class TransportMiddleware:
    """A transport that passes everything on to `inner`; those in `client.middleware` override what they change."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, request: Request) -> Reply:
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._inner.stream(request)

    @property
    def certificate_end(self) -> datetime | None:
        return find_certificate_end(self._inner)

    async def aclose(self) -> None:
        await self._inner.aclose()
