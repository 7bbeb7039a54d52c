"""DashboardListener: serves a site on a port. An adapter to aiohttp's server.

What one client can hold is bounded as in the API's own listener: a handshake, the head and the body of a request, and idle
connections in time; a body in size; an event that is not read in time.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import ssl
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any, Protocol
from urllib.parse import parse_qsl

from aiohttp import web

from windrow.core.acceptor import Acceptor, open_sockets
from windrow.core.connections import ConnectionLimits
from windrow.dashboard.guard import SECURITY_HEADERS
from windrow.dashboard.messages import TEXT, EventStream, PageRequest, PageResponse

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024
MAX_FIELDS = 100
HANDSHAKE_TIMEOUT_S = 10.0
HEAD_TIMEOUT_S = 32.0
BODY_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 90.0
WRITE_TIMEOUT_S = 20.0
# Proxies, and browsers, notice a connection that has ended.
KEEP_ALIVE_S = 20.0
CLOSE_WITHIN_S = 1.0
COMPRESSED_FROM_BYTES = 1024
COMPRESSION_LEVEL = 5


class Site(Protocol):
    """What answers; it raises nothing but defects."""

    async def respond(self, request: PageRequest) -> PageResponse | EventStream: ...


class BadForm(ValueError):
    """The body of a request is no form, or a larger one than any page has."""


class _Server(web.Server):
    """aiohttp's server, which calls `on_lost` with the connection handlers whose connections have ended."""

    def __init__(self, answer: Any, on_lost: Callable[[Any], None]) -> None:
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


class DashboardListener:
    """Serves `site` while entered; with port 0 the system chooses, and `port` is the chosen one. Raises OSError.

    `tls` gives the context for each new connection, None for plain HTTP.
    """

    def __init__(
        self,
        site: Site,
        host: str,
        port: int,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self._site, self._host, self.port = site, host, port
        self._tls = tls
        self._limits = limits or ConnectionLimits()
        self._server: _Server | None = None
        self._acceptor: Acceptor | None = None
        self._streams: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> DashboardListener:
        sockets = await open_sockets(self._host, self.port)
        self.port = sockets[0].getsockname()[1]
        self._server = _Server(self._answer, lambda handler: acceptor.on_lost(handler))
        acceptor = self._acceptor = Acceptor(
            sockets,
            self._server,
            self._limits,
            tls=self._tls,
            handshake_timeout_s=HANDSHAKE_TIMEOUT_S,
            head_timeout_s=HEAD_TIMEOUT_S,
        )
        acceptor.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in tuple(self._streams):
            task.cancel()
        assert self._server is not None
        assert self._acceptor is not None
        await self._acceptor.stop()
        self._server.pre_shutdown()
        await self._server.shutdown(CLOSE_WITHIN_S)

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        acceptor = self._acceptor
        assert acceptor is not None
        acceptor.set_used(http.protocol)
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                request = await _read(http)
        except BadForm as error:
            return _refuse(413 if "bytes" in str(error) else 400, str(error))
        except TimeoutError:
            return _refuse(408, "the body of the request did not arrive in time")
        acceptor.set_busy(http.protocol, True)
        try:
            found = await self._site.respond(request)
            if isinstance(found, EventStream):
                return await self._stream(http, found)
            return _response(found, "gzip" in http.headers.get("Accept-Encoding", ""))
        except Exception:
            # A defect: the traceback is for the log. The path may hold a code, which the log must not.
            log.exception("%s %s failed", request.method, request.path)
            return _refuse(500, "the page could not be made; the log of windrow serve says why")
        finally:
            acceptor.set_busy(http.protocol, False)

    async def _stream(self, http: web.BaseRequest, stream: EventStream) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={**SECURITY_HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(http)
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            async with aclosing(stream.events) as events:  # type: ignore[type-var]  # a generator is one
                await _write_events(response, events)
        except (ConnectionError, TimeoutError):
            return response  # the browser has left, or does not read
        finally:
            self._streams.discard(task)
        with suppress(ConnectionError):
            await response.write_eof()
        return response


async def _write_events(response: web.StreamResponse, events: Any) -> None:
    """Write each event as it comes, and a comment where none does."""
    waiting: asyncio.Task[bytes] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({waiting}, timeout=KEEP_ALIVE_S)
            if done:
                try:
                    piece = waiting.result()
                except StopAsyncIteration:
                    return
                waiting = None
            else:
                piece = b":\n\n"
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await response.write(piece)
    finally:
        if waiting is not None:
            waiting.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await waiting


async def _read(http: web.BaseRequest) -> PageRequest:
    form: dict[str, str] = {}
    if http.can_read_body:
        body = bytearray()
        async for chunk in http.content.iter_any():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise BadForm(f"wanted a form of at most {MAX_BODY_BYTES} bytes, found more")
        form = read_form(bytes(body), http.content_type)
    return PageRequest(
        http.method,
        http.path,
        dict(http.query),
        form,
        dict(http.cookies),
        {name.lower(): value for name, value in http.headers.items()},
        http.remote or "",
        http.secure,
    )


def read_form(body: bytes, content_type: str) -> dict[str, str]:
    """The fields of a form. Raises BadForm."""
    if not body:
        return {}
    if content_type != "application/x-www-form-urlencoded":
        raise BadForm("wanted a form (application/x-www-form-urlencoded)")
    try:
        return dict(
            parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=MAX_FIELDS)
        )
    except ValueError as error:
        raise BadForm("wanted the fields of a form, found something else") from error


def _refuse(status: int, message: str) -> web.Response:
    return _response(PageResponse(status, f"{message}\n".encode(), TEXT), False)


def _response(page: PageResponse, compress: bool) -> web.Response:
    headers = {
        **SECURITY_HEADERS,
        "Cache-Control": "no-store",
        **page.headers,
        "Content-Type": page.content_type,
    }
    if page.cookie:
        headers["Set-Cookie"] = page.cookie
    body = page.body
    if compress and len(body) >= COMPRESSED_FROM_BYTES:
        body = gzip.compress(body, COMPRESSION_LEVEL, mtime=0)
        headers["Content-Encoding"] = "gzip"
        headers["Vary"] = "Accept-Encoding"
    return web.Response(status=page.status, body=body, headers=headers)
