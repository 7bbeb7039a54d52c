"""The port through which requests leave: sockets, or straight into a server in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from windrow.kube.requests import Event, Reply, Request


class Transport(Protocol):
    """Carries requests to one API server as one identity."""

    async def send(self, request: Request) -> Reply:
        """The server's answer, whatever its status.

        Raises Unreachable when the request was certainly not sent, Unanswered when it may have been.
        """
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """The events of a watch, until the server ends it (a clean end) or the connection breaks (Unanswered).

        A refusal (401, 403, 404, …) is raised on entry as the KubeError it stands for. Never retried here.
        """
        ...
