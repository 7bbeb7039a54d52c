"""Listener: serves a Handler on the sockets of one port. The only adapter to aiohttp's server.

Any client that reaches the port can open connections, so what one can hold is bounded in time: a TLS handshake by
`HANDSHAKE_TIMEOUT_S`, the head of the first request by `HEAD_TIMEOUT_S`, a body by `BODY_TIMEOUT_S`, a connection
between two requests by `IDLE_TIMEOUT_S`, a client that does not read its watch or its answer by `WRITE_TIMEOUT_S`. The
first two are kept by `core.acceptor`; how many there may be, and which give way, is in `core.connections`.

What is large is written in pieces as the client reads, so that a connection holds no copy of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from windrow.apiserver.apierrors import error_reply, internal, status_error
from windrow.apiserver.request.info import parse_request_info, query_options, request_verb
from windrow.apiserver.verbs.watch import EntryEvent
from windrow.core.acceptor import Acceptor, open_sockets
from windrow.core.connections import ConnectionLimits
from windrow.core.formats.fastjson import dumps
from windrow.kubernetes.errors import KubeError, OutcomeUnknown, Unreachable
from windrow.kubernetes.handler import Handler, Peer, TlsIdentity
from windrow.kubernetes.requests import JSON, FileReply, PartsReply, Reply, Request, WatchEvent

_log = logging.getLogger(__name__)

MAX_BODY_BYTES = 3 * 1024 * 1024
CLOSE_WITHIN_S = 2.0
HANDSHAKE_TIMEOUT_S = 10.0
HEAD_TIMEOUT_S = 32.0  # as kube-apiserver's ReadHeaderTimeout
BODY_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 90.0  # as kube-apiserver's; client-go closes its own as late
WRITE_TIMEOUT_S = 60.0
PIECE_BYTES = 256 * 1024


def encode_event(event: WatchEvent) -> tuple[bytes, ...]:
    """One line of a watch, in parts; an object that is encoded already is neither encoded again nor copied."""
    if isinstance(event, EntryEvent):
        return b'{"type":"%s","object":' % event.type.encode(), event.entry.data, b"}\n"
    return dumps({"type": event.type, "object": event.object}), b"\n"


def tls_context(identity: TlsIdentity) -> ssl.SSLContext:
    """A server context with the identity; client certificates are requested, not required."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads key pairs from files only
        chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
        key.touch(mode=0o600)
        chain.write_text(identity.chain)
        key.write_text(identity.key)
        context.load_cert_chain(chain, key)
    if identity.client_ca:
        context.load_verify_locations(cadata=identity.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


class _Server(web.Server):
    """aiohttp's server, which calls `on_lost` with the connection handlers whose connections have ended."""

    def __init__(self, answer: Any, on_lost: Callable[[Any], None]) -> None:
        # A body is decoded by its length and media type only: kube-apiserver takes no Content-Encoding either.
        super().__init__(
            answer,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=IDLE_TIMEOUT_S,
            auto_decompress=False,
        )
        self._on_lost = on_lost

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._on_lost(handler)


class Listener:
    """Serves `handler` while entered; with port 0 the system chooses, and `port` is the chosen one.

    `identity` gives the TLS identity for each new connection, where that is not the handler's own.
    """

    def __init__(
        self,
        handler: Handler,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        identity: Callable[[], TlsIdentity | None] | None = None,
        limits: ConnectionLimits | None = None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        body_timeout_s: float = BODY_TIMEOUT_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._handler, self._host, self.port = handler, host, port
        self._read_identity = handler.identity if identity is None else identity
        self._limits = ConnectionLimits() if limits is None else limits
        self._handshake_timeout_s = handshake_timeout_s
        self._head_timeout_s, self._body_timeout_s = head_timeout_s, body_timeout_s
        self._write_timeout_s = write_timeout_s
        self._server: _Server | None = None
        self._acceptor: Acceptor | None = None
        self._identity: TlsIdentity | None = None
        self._context: ssl.SSLContext | None = None
        self._watches: set[asyncio.Task[Any]] = set()
        self._closing = False

    async def __aenter__(self) -> Listener:
        self._tls()
        sockets = await open_sockets(self._host, self.port)
        self.port = sockets[0].getsockname()[1]
        self._server = _Server(self._answer, lambda handler: acceptor.on_lost(handler))
        acceptor = self._acceptor = Acceptor(
            sockets,
            self._server,
            self._limits,
            tls=self._tls,
            handshake_timeout_s=self._handshake_timeout_s,
            head_timeout_s=self._head_timeout_s,
        )
        acceptor.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._closing = True
        for task in tuple(self._watches):
            task.cancel()
        assert self._server is not None
        assert self._acceptor is not None
        await self._acceptor.stop()
        self._server.pre_shutdown()
        await self._server.shutdown(CLOSE_WITHIN_S)

    def _tls(self) -> ssl.SSLContext | None:
        """The context of the TLS identity; None for plain HTTP."""
        identity = self._read_identity()
        if identity is None:
            return None
        if identity != self._identity or self._context is None:
            self._identity, self._context = identity, tls_context(identity)
            self._context.sni_callback = self._on_sni
        return self._context

    def _on_sni(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Use a renewed certificate for new connections, without a restart."""
        fresh = self._tls()
        if fresh is not None and fresh is not context:
            connection.context = fresh

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        acceptor = self._acceptor
        assert acceptor is not None
        acceptor.set_used(http.protocol)
        try:
            async with asyncio.timeout(self._body_timeout_s):
                request = await _read(http)
        except KubeError as error:
            return _response(error_reply(error))
        except TimeoutError:
            return _abort_connection(http)
        acceptor.set_busy(http.protocol, True)
        try:
            return await self._respond(http, request)
        finally:
            acceptor.set_busy(http.protocol, False)

    async def _respond(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        peer = _peer(http)
        info = parse_request_info(request.path)
        try:
            if info.is_resource and request_verb(request.method, info, query_options(request)) == "watch":
                return await self._watch(http, request, peer)
            reply = await self._handler.send(request, peer)
            if isinstance(reply, FileReply):
                return await self._send_file(http, reply)
            if isinstance(reply, PartsReply):
                return await self._send_parts(http, reply, reply.parts)
            if len(reply.body) > PIECE_BYTES:
                return await self._send_parts(http, reply, (reply.body,))
            return _response(reply)
        except (OutcomeUnknown, Unreachable):
            return _abort_connection(http)
        except OSError:
            raise
        except Exception as error:
            # A bug: 500 for the client, the traceback for the log.
            _log.exception("%s %s failed", request.method, request.path)
            return _response(error_reply(internal(str(error))))

    async def _watch(self, http: web.BaseRequest, request: Request, peer: Peer) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            async with self._handler.stream(request, peer) as events:
                return await self._send_events(http, events)
        except (OutcomeUnknown, Unreachable):
            return _abort_connection(http)
        except KubeError as error:
            return _response(error_reply(error))
        finally:
            self._watches.discard(task)

    async def _send_events(
        self, http: web.BaseRequest, events: AsyncIterator[WatchEvent]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        try:
            async for event in events:
                await self._write(response, *encode_event(event))
        except TimeoutError:
            return _abort_connection(http)
        except ConnectionError:
            return response  # the client closed the connection
        except asyncio.CancelledError:
            if not self._closing:
                raise
        with suppress(ConnectionError):  # a closed connection needs no end of stream
            await response.write_eof()
        return response

    async def _write(self, response: web.StreamResponse, *parts: bytes | memoryview) -> None:
        """Write the parts in pieces. Raises TimeoutError when the client does not read one of them."""
        for piece in _pieces(parts):
            async with asyncio.timeout(self._write_timeout_s):
                await response.write(piece)

    async def _send_parts(
        self, http: web.BaseRequest, reply: Reply, parts: Sequence[bytes | memoryview]
    ) -> web.StreamResponse:
        """A large reply, as the client reads it."""
        response = web.StreamResponse(status=reply.status, headers=_headers(reply))
        response.content_length = sum(map(len, parts))
        await response.prepare(http)
        written = () if http.method == "HEAD" else parts
        return await self._finish(http, response, self._write(response, *written))

    async def _send_file(self, http: web.BaseRequest, reply: FileReply) -> web.StreamResponse:
        """Send the file in pieces, read by another thread, and close it."""
        assert reply.file is not None
        with reply.file as file:
            response = web.StreamResponse(status=reply.status, headers={"Content-Type": reply.content_type})
            response.content_length = os.fstat(file.fileno()).st_size
            await response.prepare(http)

            async def write_all() -> None:
                while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                    await self._write(response, piece)

            return await self._finish(http, response, write_all())

    async def _finish(
        self, http: web.BaseRequest, response: web.StreamResponse, writing: Awaitable[None]
    ) -> web.StreamResponse:
        try:
            await writing
        except TimeoutError:
            return _abort_connection(http)
        except ConnectionError:
            return response  # the client closed the connection
        with suppress(ConnectionError):
            await response.write_eof()
        return response


def _pieces(parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The parts in pieces of PIECE_BYTES at most: small ones joined, large ones cut."""
    small: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        if small and size + len(part) > PIECE_BYTES:
            yield b"".join(small)
            small, size = [], 0
        for start in range(0, len(part) - PIECE_BYTES, PIECE_BYTES):
            yield memoryview(part)[start : start + PIECE_BYTES]
        rest = memoryview(part)[(max(0, len(part) - 1) // PIECE_BYTES) * PIECE_BYTES :]
        small.append(rest)
        size += len(rest)
    if small:
        yield b"".join(small)


def _abort_connection(http: web.BaseRequest) -> web.StreamResponse:
    """The handler asks for the connection to break without a response; the one returned is not sent."""
    if http.transport is not None:
        http.transport.abort()
    return web.Response(status=500)


async def _read(http: web.BaseRequest) -> Request:
    body: bytes | None = None
    if (encoding := http.headers.get("Content-Encoding", "identity").lower()) != "identity":
        text = f"the body has the Content-Encoding {encoding[:40]!r}; send it without one"
        raise status_error(415, text)
    if http.can_read_body:
        chunks, size = [], 0
        async for chunk in http.content.iter_any():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise status_error(413, f"Request entity too large: limit is {MAX_BODY_BYTES}")
            chunks.append(chunk)
        body = b"".join(chunks)
    skipped = ("accept", "content-type")
    return Request(
        http.method,
        http.rel_url.raw_path,
        tuple(http.query.items()),
        body or None,
        http.headers.get("Content-Type", ""),
        ", ".join(http.headers.getall("Accept", [])) or "*/*",
        tuple((name, value) for name, value in http.headers.items() if name.lower() not in skipped),
    )


def _peer(http: web.BaseRequest) -> Peer:
    connection = http.transport.get_extra_info("ssl_object") if http.transport else None
    shown = connection.getpeercert(binary_form=True) if connection is not None else None
    certificate = ssl.DER_cert_to_PEM_cert(shown) if shown else ""
    return Peer(certificate, http.remote or "")


def _headers(reply: Reply) -> dict[str, str]:
    return {"Cache-Control": "no-cache, private", **reply.headers, "Content-Type": reply.content_type}


def _response(reply: Reply) -> web.Response:
    return web.Response(status=reply.status, body=reply.body, headers=_headers(reply))
