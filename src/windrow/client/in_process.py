"""A transport to a server in this process that verifies certificates as TLS over sockets would.

A kubeconfig works here as over sockets: the server's certificate must be issued by the kubeconfig's CA for the host of
its URL, and the client certificate must be one that the server accepts. Without threads and sockets, simulations run on
a driven clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from windrow.client.auth import RequestCredentials, credential_for
from windrow.core import pki
from windrow.core.clock import Clock
from windrow.core.files import read_text
from windrow.kubernetes.answers import messages
from windrow.kubernetes.errors import CertificateError, Unauthorized, Unreachable, error_for
from windrow.kubernetes.handler import Handler, Peer, TlsIdentity
from windrow.kubernetes.kubeconfig import ClientConfig, ReadFile
from windrow.kubernetes.requests import Reply, Request, WatchEvent

# Certificates are verified again when they change, and at least this often, because they expire.
RECHECK_INTERVAL = timedelta(minutes=1)
# Where servers see requests come from.
_ADDRESS = "127.0.0.1"


FindServer = Callable[[str, int], Handler | None]


class InProcessTransport:
    """One API server, found by host and port at each request, as one identity."""

    def __init__(
        self,
        config: ClientConfig,
        find: FindServer,
        clock: Clock,
        *,
        read_file: ReadFile = read_text,
    ) -> None:
        parts = urlsplit(config.server)
        self.config = config
        self._find = find
        self._clock = clock
        self._scheme = parts.scheme
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._credential = credential_for(config, clock, read_file, {})
        self._last_handshake: tuple[TlsIdentity, RequestCredentials, datetime] | None = None
        self._peer_certificate = ""
        self.certificate_end: datetime | None = None

    async def send(self, request: Request) -> Reply:
        credentials = await self._credential.get()
        server, peer = self._connect(credentials)
        reply = await server.send(self._with_credentials(request, credentials), peer)
        if reply.status == 401:
            self._credential.invalidate(credentials)
        return messages.explain(reply, self.config)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        credentials = await self._credential.get()
        server, peer = self._connect(credentials)
        async with AsyncExitStack() as stack:
            try:
                events = await stack.enter_async_context(
                    server.stream(self._with_credentials(request, credentials), peer)
                )
            except Unauthorized as error:
                self._credential.invalidate(credentials)
                raise self._explain(error) from error
            yield events

    async def aclose(self) -> None:
        """Nothing to close: there are no sockets."""

    def _explain(self, error: Unauthorized) -> Exception:
        reply = messages.explain(Reply(401, error.message.encode(), "text/plain"), self.config)
        return error_for(reply) or error

    def _connect(self, credentials: RequestCredentials) -> tuple[Handler, Peer]:
        server = self._find(self._host, self._port)
        if server is None:
            raise Unreachable(
                messages.unreachable(
                    self.config,
                    "connection refused",
                    "is the API server running, and are address and port right?",
                )
            )
        identity = server.identity()
        if (identity is not None) != (self._scheme == "https"):
            found = "no TLS there" if identity is None else "it speaks TLS, and the kubeconfig says http://"
            raise Unreachable(
                messages.unreachable(
                    self.config, found, "correct the server's scheme or port in the kubeconfig"
                )
            )
        if identity is None:
            return server, Peer(address=_ADDRESS)
        self._handshake(identity, credentials)
        return server, Peer(self._peer_certificate, _ADDRESS)

    def _handshake(self, identity: TlsIdentity, credentials: RequestCredentials) -> None:
        now = self._clock.now()
        if self._last_handshake is not None:
            previous_identity, previous_credentials, at = self._last_handshake
            if (
                previous_identity == identity
                and previous_credentials == credentials
                and now - at < RECHECK_INTERVAL
            ):
                return
        self._check_server(identity.chain, now)
        self._peer_certificate = self._check_client(identity.client_ca, credentials, now)
        self._last_handshake = (identity, credentials, now)
        self.certificate_end = (
            None if self.config.insecure else pki.read_certificate(identity.chain).not_after
        )

    def _check_server(self, chain: str, now: datetime) -> None:
        if self.config.insecure:
            return
        host = self.config.tls_server_name or self._host
        try:
            reason = pki.verify_server(chain, self.config.ca, host, now)
        except pki.NotCertificate as error:
            reason = str(error)
        if reason is not None:
            raise CertificateError(messages.certificate_error(self.config, reason))

    def _check_client(self, client_ca: str, credentials: RequestCredentials, now: datetime) -> str:
        if not credentials.certificate or not client_ca:
            return ""
        try:
            matching = pki.matches_key(credentials.certificate, credentials.key)
            reason = pki.verify_client(credentials.certificate, client_ca, now)
        except pki.NotCertificate as error:
            matching, reason = False, str(error)
        if not matching:
            raise Unreachable(
                f"{self.config.credential} for {self.config.server} cannot be used; "
                "client-certificate-data and client-key-data must be a pair, in PEM"
            )
        if reason is not None:
            raise Unauthorized(messages.client_certificate_rejected(self.config, reason), status=401)
        return credentials.certificate

    def _with_credentials(self, request: Request, credentials: RequestCredentials) -> Request:
        headers = request.headers
        if credentials.token:
            headers = (*headers, ("Authorization", f"Bearer {credentials.token}"))
        return replace(request, path=self._prefix + request.path, headers=headers)
