"""The port through which requests leave: sockets, or straight into a server in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
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
