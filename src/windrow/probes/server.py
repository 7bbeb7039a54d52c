"""The socket behind which the pages stand. The only file here that knows aiohttp."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType

from aiohttp import web

from windrow.probes.connections import HANDSHAKE_S, IDLE_S, MOST, Connections, Line, listen
from windrow.probes.endpoints import ProbeRequest, refusal
from windrow.probes.identity import ServingCertificate, ServingIdentity
from windrow.probes.responses import Response

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 0.5
RESPONSE_TIMEOUT_S = 10.0


class CannotListen(OSError):
    """The port cannot be had; the message says so in the words of the Go program."""


class Guarded(Line, web.RequestHandler):
    """A connection of ours, which understands HTTP."""


class HealthServer:
    """Serves `answer` by HTTPS while entered; `port` is the one that the system chose when 0 was asked for.

    Raises CannotListen and BadCertificate on entry.
    """

    def __init__(
        self,
        answer: Callable[[ProbeRequest], Awaitable[Response]],
        identity: ServingIdentity,
        host: str,
        port: int,
        *,
        share_port: bool = False,
        minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        most: int = MOST,
        idle_s: float = IDLE_S,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self._respond_to = answer
        self._identity = identity
        self._host, self.port = host, port
        self._share_port = share_port
        self._minimum_version = minimum_version
        self._most, self._idle_s, self._handshake_s = most, idle_s, handshake_s
        self._server: web.Server | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._sockets: list[socket.socket] = []
        self._loaded: ServingCertificate | None = None
        self._context: ssl.SSLContext | None = None

    async def __aenter__(self) -> HealthServer:
        self._tls()
        try:
            self._sockets = listen(self._host, self.port, share_port=self._share_port)
        except OSError as error:
            raise self._refused(error) from error
        # A probe that has gone away needs no answer; the next one comes soon.
        self._server = web.Server(self._handle, handler_cancellation=True)
        self.port = self._sockets[0].getsockname()[1]
        connections = Connections(
            self._new_line, self._sockets, self._tls, most=self._most, handshake_s=self._handshake_s
        )
        self._accepting = asyncio.create_task(connections.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._accepting is not None
        self._accepting.cancel()
        await asyncio.wait({self._accepting})
        for one in self._sockets:
            one.close()
        self._server.pre_shutdown()
        await self._server.shutdown(CLOSE_TIMEOUT_S)

    def _refused(self, error: OSError) -> CannotListen:
        where = f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"
        why = {
            errno.EADDRINUSE: "address already in use",
            errno.EACCES: "permission denied",
            errno.EADDRNOTAVAIL: "cannot assign requested address",
        }.get(error.errno or 0, error.strerror or str(error))
        return CannotListen(
            f"failed to create listener: failed to listen on {where}: listen tcp {where}: bind: {why}"
        )

    def _tls(self) -> ssl.SSLContext:
        pair = self._identity.current()
        if pair != self._loaded or self._context is None:
            self._context = self._new_context(pair)
            self._loaded = pair
        return self._context

    def _new_context(self, pair: ServingCertificate) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum_version
        context.set_alpn_protocols(["http/1.1"])
        with tempfile.TemporaryDirectory() as folder:  # the ssl module reads key pairs from files only
            chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
            key.touch(mode=0o600)
            chain.write_text(pair.chain)
            key.write_text(pair.key)
            context.load_cert_chain(chain, key)
        context.sni_callback = self._renew
        return context

    def _renew(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Show a renewed certificate to new connections, without a restart."""
        fresh = self._tls()
        if fresh is not context:
            connection.context = fresh

    def _new_line(self) -> Guarded:
        assert self._server is not None
        line = Guarded(self._server, loop=asyncio.get_running_loop(), access_log=None)  # type: ignore[arg-type]
        line.idle_s = self._idle_s
        return line

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        connection = http.protocol
        assert isinstance(connection, Guarded)
        connection.begin_answer()
        try:
            return await self._respond(http)
        finally:
            connection.finish_answer()

    async def _respond(self, http: web.BaseRequest) -> web.StreamResponse:
        scheme, _, token = http.headers.get("Authorization", "").partition(" ")
        query = {name: http.query.getall(name) for name in http.query}
        asked = ProbeRequest(
            http.method, http.path, query, token.strip() if scheme.lower() == "bearer" else ""
        )
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                answer = await self._respond_to(asked)
        except TimeoutError:
            answer = refusal(500, f"no answer within {RESPONSE_TIMEOUT_S:.0f} s")
        except Exception:
            # A fault of ours: the operator learns why, whoever asked that there is one.
            log.exception("%s %s failed", asked.method, asked.path)
            answer = refusal(500, "the page could not be made; the program's log says why")
        headers = {
            "Content-Type": answer.content_type,
            "Cache-Control": "no-cache, private",
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(status=answer.status, body=answer.body.encode(), headers=headers)
