"""Adapter module of aiohttp.web: an HTTPS server for probes and metrics.

The port is open to anybody on the network, so what a client can hold is bounded: a TLS handshake by
`HANDSHAKE_TIMEOUT_S`, the head of the first request by `HEAD_TIMEOUT_S`, a connection between two requests by
`KEEPALIVE_S`, a response by `RESPONSE_TIMEOUT_S`, headers by aiohttp's limits, and a body is not read. There may be
`MAX_CONNECTIONS`, a quarter of them of one address; for a new one the longest idle is closed (`core.connections`), so
that connections which send nothing keep no probe away.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiohttp import web

from windrow.core.acceptor import Acceptor, open_sockets
from windrow.core.connections import ConnectionLimits
from windrow.probes.endpoints import ProbeRequest, Response, refusal
from windrow.probes.identity import ServingCertificate, ServingIdentity

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
HANDSHAKE_TIMEOUT_S = 5.0
HEAD_TIMEOUT_S = 5.0
KEEPALIVE_S = 10.0
RESPONSE_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 0.5


class CannotListen(OSError):
    """The port cannot be had; the message says so in the words of the Go program."""


class _Server(web.Server):
    """aiohttp's server, which calls `on_lost` with the connection handlers whose connections have ended."""

    def __init__(self, handle: Any, keepalive_s: float, on_lost: Callable[[Any], None]) -> None:
        super().__init__(
            handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=keepalive_s,
            lingering_time=0,
        )
        self._on_lost = on_lost

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._on_lost(handler)


class HealthServer:
    """Serves `respond` by HTTPS; `port` is the one that the system chose when 0 was asked for."""

    def __init__(
        self,
        respond: Callable[[ProbeRequest], Awaitable[Response]],
        identity: ServingIdentity,
        host: str,
        port: int,
        *,
        share_port: bool = False,
        minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        max_connections: int = MAX_CONNECTIONS,
        keepalive_s: float = KEEPALIVE_S,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        head_timeout_s: float = HEAD_TIMEOUT_S,
    ) -> None:
        self._respond = respond
        self._identity = identity
        self._host, self.port = host, port
        self._share_port = share_port
        self._minimum_version = minimum_version
        self._limits = ConnectionLimits(max_connections, max(max_connections // 4, 1), max_connections // 8)
        self._keepalive_s, self._handshake_timeout_s = keepalive_s, handshake_timeout_s
        self._head_timeout_s = head_timeout_s
        self._acceptor: Acceptor | None = None
        self._certificate: ServingCertificate | None = None
        self._context: ssl.SSLContext | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[HealthServer]:
        """With the port open. Raises CannotListen and BadCertificate on entry."""
        # A client that has gone away needs no response; the next probe comes soon.
        http = _Server(self._handle, self._keepalive_s, lambda handler: acceptor.on_lost(handler))
        self._current_context()
        try:
            # Every address means those of both families, as in Go.
            host = None if ip_address(self._host).is_unspecified else self._host
            sockets = await open_sockets(host, self.port, share_port=self._share_port)
        except OSError as error:
            raise self._cannot_listen(error) from error
        self.port = sockets[0].getsockname()[1]
        acceptor = self._acceptor = Acceptor(
            sockets,
            http,
            self._limits,
            tls=self._current_context,
            handshake_timeout_s=self._handshake_timeout_s,
            head_timeout_s=self._head_timeout_s,
        )
        acceptor.start()
        try:
            yield self
        finally:
            await acceptor.stop()
            http.pre_shutdown()
            await http.shutdown(CLOSE_TIMEOUT_S)

    def _cannot_listen(self, error: OSError) -> CannotListen:
        where = f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"
        why = {
            errno.EADDRINUSE: "address already in use",
            errno.EACCES: "permission denied",
            errno.EADDRNOTAVAIL: "cannot assign requested address",
        }.get(error.errno or 0, error.strerror or str(error))
        return CannotListen(
            f"failed to create listener: failed to listen on {where}: listen tcp {where}: bind: {why}"
        )

    def _current_context(self) -> ssl.SSLContext:
        certificate = self._identity.current()
        if certificate != self._certificate or self._context is None:
            self._context = self._new_context(certificate)
            self._certificate = certificate
        return self._context

    def _new_context(self, certificate: ServingCertificate) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum_version
        context.set_alpn_protocols(["http/1.1"])
        with tempfile.TemporaryDirectory() as folder:  # the ssl module reads key pairs from files only
            chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
            key.touch(mode=0o600)
            chain.write_text(certificate.chain)
            key.write_text(certificate.key)
            context.load_cert_chain(chain, key)
        context.sni_callback = self._renew
        return context

    def _renew(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Use a renewed certificate for new connections, without a restart; called at each handshake."""
        fresh = self._current_context()
        if fresh is not context:
            connection.context = fresh

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        scheme, _, token = http.headers.get("Authorization", "").partition(" ")
        query = {name: http.query.getall(name) for name in http.query}
        token = token.strip() if scheme.lower() == "bearer" else ""
        request = ProbeRequest(http.method, http.path, query, token)
        acceptor = self._acceptor
        assert acceptor is not None
        acceptor.set_used(http.protocol)
        acceptor.set_busy(http.protocol, True)
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                response = await self._respond(request)
        except TimeoutError:
            response = refusal(500, f"no response within {RESPONSE_TIMEOUT_S:.0f} s")
        except Exception:
            # A defect of ours: the operator learns why, the client only that there is one.
            log.exception("%s %s failed", request.method, request.path)
            response = refusal(500, "the response could not be made; the log of the program says why")
        finally:
            acceptor.set_busy(http.protocol, False)
        headers = {
            "Content-Type": response.content_type,
            "Cache-Control": "no-cache, private",
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(status=response.status, body=response.body.encode(), headers=headers)
