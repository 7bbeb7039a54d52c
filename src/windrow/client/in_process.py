"""Requests straight into a server in this process, checked as TLS and sockets would check them.

The same kubeconfig works here and over sockets: the server's certificate must be signed by the kubeconfig's CA for the
host that was dialled, and our own certificate is shown only if the server would recognise it. No threads, no sockets:
stories run on a driven clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from windrow.client.credentials import Presented, credential_for
from windrow.formats import x509
from windrow.kube import sentences
from windrow.kube.errors import NotTrusted, Unauthorized, Unreachable, error_for
from windrow.kube.kubeconfig import Access, ReadFile
from windrow.kube.requests import Event, Reply, Request
from windrow.values.clock import Clock

# Certificates are looked at anew when they change, and at least this often, because they expire.
LOOK_AGAIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Caller:
    """What a door learns of us: the client certificate (PEM, "" for none) and an address."""

    certificate: str = ""
    address: str = ""


class Door(Protocol):
    """The shape of a server: what `apiserver.doors.Door` promises, without importing it."""

    def identity(self) -> Any: ...

    async def send(self, request: Request, peer: Any) -> Reply: ...

    def stream(self, request: Request, peer: Any) -> AbstractAsyncContextManager[AsyncIterator[Event]]: ...


Find = Callable[[str, int], Door | None]


class InProcessTransport:
    """One API server, found anew by host and port for each request, as one identity."""

    def __init__(
        self,
        access: Access,
        find: Find,
        clock: Clock,
        *,
        env: Mapping[str, str] | None = None,
        read_file: ReadFile | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        parts = urlsplit(access.server)
        self.access = access
        self._find = find
        self._clock = clock
        self._address = address
        self._scheme = parts.scheme
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._credential = credential_for(access, clock, read_file or _read_file, env or {})
        self._seen: tuple[Any, Presented, datetime] | None = None
        self._shown_certificate = ""

    async def send(self, request: Request) -> Reply:
        shown = await self._credential.present()
        door, caller = self._enter(shown)
        reply = await door.send(self._dressed(request, shown), caller)
        if reply.status == 401:
            self._credential.rejected(shown)
        return sentences.explained(reply, self.access)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Event]]:
        shown = await self._credential.present()
        door, caller = self._enter(shown)
        async with AsyncExitStack() as stack:
            try:
                events = await stack.enter_async_context(door.stream(self._dressed(request, shown), caller))
            except Unauthorized as error:
                self._credential.rejected(shown)
                raise self._explained(error) from error
            yield events

    def _explained(self, error: Unauthorized) -> Exception:
        reply = sentences.explained(Reply(401, error.message.encode(), "text/plain"), self.access)
        return error_for(reply) or error

    def _enter(self, shown: Presented) -> tuple[Door, Caller]:
        door = self._find(self._host, self._port)
        if door is None:
            raise Unreachable(
                sentences.unreachable(
                    self.access,
                    "connection refused",
                    "is the API server running, and are address and port right?",
                )
            )
        identity = door.identity()
        if (identity is not None) != (self._scheme == "https"):
            found = "no TLS there" if identity is None else "it speaks TLS, and the kubeconfig says http://"
            raise Unreachable(
                sentences.unreachable(
                    self.access, found, "correct the server's scheme or port in the kubeconfig"
                )
            )
        if identity is None:
            return door, Caller(address=self._address)
        self._shake_hands(identity, shown)
        return door, Caller(self._shown_certificate, self._address)

    def _shake_hands(self, identity: Any, shown: Presented) -> None:
        now = self._clock.now()
        if self._seen is not None:
            before, presented, at = self._seen
            if before == identity and presented == shown and now - at < LOOK_AGAIN:
                return
        self._check_server(identity.chain, now)
        self._shown_certificate = self._recognised(identity.client_ca, shown, now)
        self._seen = (identity, shown, now)

    def _check_server(self, chain: str, now: datetime) -> None:
        if self.access.insecure:
            return
        host = self.access.tls_server_name or self._host
        try:
            reason = x509.verify_server(chain, self.access.ca, host, now)
        except x509.NotCertificate as error:
            reason = str(error)
        if reason is not None:
            raise NotTrusted(sentences.not_trusted(self.access, reason))

    def _recognised(self, client_ca: str, shown: Presented, now: datetime) -> str:
        if not shown.certificate or not client_ca:
            return ""
        try:
            matching = x509.matches_key(shown.certificate, shown.key)
            reason = x509.verify_client(shown.certificate, client_ca, now)
        except x509.NotCertificate as error:
            matching, reason = False, str(error)
        if not matching:
            raise Unreachable(
                f"{self.access.credential} for {self.access.server} cannot be used; "
                "client-certificate-data and client-key-data must be a pair, in PEM"
            )
        if reason is not None:
            raise Unauthorized(sentences.certificate_refused(self.access, reason), status=401)
        return shown.certificate

    def _dressed(self, request: Request, shown: Presented) -> Request:
        headers = request.headers
        if shown.token:
            headers = (*headers, ("Authorization", f"Bearer {shown.token}"))
        return replace(request, path=self._prefix + request.path, headers=headers)


def _read_file(path: str) -> str:
    return Path(path).read_text()
