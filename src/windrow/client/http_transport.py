"""The transport over sockets: HTTP/1.1 and TLS by aiohttp's client.

What is promised beyond the port `Transport`:

* A request is written at most once here. aiohttp by itself repeats GET, PUT and DELETE when the connection breaks;
  that is switched off, because a repeated DELETE answers 404 for a deletion that succeeded.
* Every error of aiohttp, of OpenSSL and of the operating system becomes Unreachable or OutcomeUnknown, by one rule:
  were the request's headers written or not?
* Redirects are not followed, cookies not kept, proxies of the environment not used.
* What a server sends is bounded, after decompression: a reply by MAX_REPLY_BYTES, an event of a watch by MAX_EVENT_BYTES. A
  tenant chooses the server of a cloud credential, and one that sends without end must not take the manager's memory.
* Nor its time: the events of all watches of one transport, and the bytes of its lists, have a rate; TCP holds back the rest.
  Large answers are read a few at a time, and one at a time from one transport.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from errno import ECONNRESET
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from windrow.client.auth import RequestCredentials, credential_for
from windrow.client.middleware.rate_limit import Allowance
from windrow.core import pki
from windrow.core.clock import Clock
from windrow.core.files import read_text
from windrow.core.formats.fastjson import loads
from windrow.core.formats.json import NotJson
from windrow.kubernetes.answers import messages
from windrow.kubernetes.errors import (
    CertificateError,
    KubeError,
    OutcomeUnknown,
    ServerError,
    Unauthorized,
    Unreachable,
    error_for,
    require_few_values,
)
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply, Request, WatchEvent

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
RESPONSE_TIMEOUT_S = 90.0
# Longer than the timeoutSeconds of an informer's watch.
WATCH_IDLE_TIMEOUT_S = 400.0
# Above any page of 500 real objects, and above the largest object that an API server stores.
MAX_REPLY_BYTES = 64 * 2**20
# Lists compress to a twentieth or so. What is larger than MAX_UNPACKED_FREELY and denser than this is no list of objects.
MAX_COMPRESSION_RATIO = 200
MAX_UNPACKED_FREELY = 4 * 2**20
MAX_EVENT_BYTES = 16 * 2**20
# Of all watches of one transport. A thousand VMs that start send thirty each; a flood in the long run takes a few percent of
# a processor.
EVENTS_PER_S, EVENTS_AT_ONCE = 200.0, 20_000
# After so many events that came together, others have their turn.
EVENTS_PER_TURN = 20
# For which the lists of one transport wait: the first lists of 10,000 VMs at once, and then what costs a few percent of a processor.
LISTED_KIB_PER_S, LISTED_KIB_AT_ONCE = 8 * 2**10, 256 * 2**10
# Above most pages of 500 real objects. Larger answers are read LARGE_ANSWERS at a time, in LARGE_ANSWER_S each.
LARGE_ANSWER_BYTES = 8 * 2**20
LARGE_ANSWERS = 4
LARGE_ANSWER_S = 60.0

_SAFE_IN_PATH = "/:@!$&'()*+,;=~-._"


class ConnectionPool:
    """Connections that many transports share. Its owner closes it: `async with ConnectionPool() as pool`."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self.large_answers = asyncio.Semaphore(LARGE_ANSWERS)

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=30, socket_factory=_keepalive_socket
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[_trace_config()],
                auto_decompress=True,
                read_bufsize=2**18,
            )
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


@dataclass
class _RequestTrace:
    """How far a request has got."""

    headers_sent: bool = False


class HttpTransport:
    """One API server as one identity, over HTTP/1.1. Close it when done, unless its pool belongs to another."""

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        *,
        env: Mapping[str, str] | None = None,
        user_agent: str = "windrow",
        pool: ConnectionPool | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        max_event_bytes: int = MAX_EVENT_BYTES,
        response_timeout_s: float = RESPONSE_TIMEOUT_S,
        large_answer_bytes: int = LARGE_ANSWER_BYTES,
        events_at_once: int = EVENTS_AT_ONCE,
        listed_kib_at_once: int = LISTED_KIB_AT_ONCE,
    ) -> None:
        self._max_reply_bytes, self._max_event_bytes = max_reply_bytes, max_event_bytes
        self._response_timeout_s = response_timeout_s
        self.config = config
        self._pool = pool or ConnectionPool()
        self._owns_pool = pool is None
        self._user_agent = user_agent
        self._credential = credential_for(config, clock, read_text, env or {})
        self._events_allowed = Allowance(clock, per_second=EVENTS_PER_S, burst=events_at_once)
        self._kib_allowed = Allowance(clock, per_second=LISTED_KIB_PER_S, burst=listed_kib_at_once)
        self._large_answer_bytes, self._large_answer = large_answer_bytes, asyncio.Lock()
        self._has_logged_flood = False
        self.certificate_end: datetime | None = None
        self._context: ssl.SSLContext | None = None
        self._context_for: tuple[str, str] | None = None
        if config.insecure:
            log.warning("%s", messages.insecure_warning(config))

    async def aclose(self) -> None:
        if self._owns_pool:
            await self._pool.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def send(self, request: Request) -> Reply:
        timeout = aiohttp.ClientTimeout(total=self._response_timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        if request.query_parameter("limit"):
            # Only lists wait: the renewal of a Lease must not.
            await self._kib_allowed.wait()
        async with self._exchange(request, timeout) as response:
            reply = await self._read_reply(request, response)
        self._kib_allowed.charge(len(reply.body) / 2**10)
        return reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=WATCH_IDLE_TIMEOUT_S
        )
        async with self._exchange(request, timeout) as response:
            if response.status != 200:
                reply = await self._read_reply(request, response)
                raise error_for(reply) or ServerError(
                    f"wanted a watch from {self.config.server}, found an answer {reply.status}",
                    status=reply.status,
                )
            # While a watch is open its connection is; that of another answer may be gone before it is read.
            self.certificate_end = None if self.config.insecure else _find_certificate_end(response)
            async with aclosing(self._events(request, response)) as events:
                yield events

    @asynccontextmanager
    async def _exchange(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        credentials = await self._credential.get()
        options = self._options(request, credentials)
        trace = _RequestTrace()
        try:
            response = await self._pool.session.request(
                request.method, self._url(request), timeout=timeout, trace_request_ctx=trace, **options
            )
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise self._translate_error(error, request, trace.headers_sent) from error
        if response.status == 401:
            self._credential.invalidate(credentials)
        try:
            yield response
        finally:
            # Gives the connection back when the body was read to its end; closes it otherwise.
            response.release() if response.content.is_eof() else response.close()

    async def _read_reply(self, request: Request, response: aiohttp.ClientResponse) -> Reply:
        try:
            async with AsyncExitStack() as turn:
                body = await self._read_body(response, turn)
        except (aiohttp.ClientError, OSError) as error:
            raise self._translate_error(error, request, sent=True) from error
        content_type = response.headers.get("Content-Type", "")
        return messages.explain(
            Reply(response.status, body, content_type, dict(response.headers)), self.config
        )

    async def _read_body(self, response: aiohttp.ClientResponse, turn: AsyncExitStack) -> bytes:
        pieces, size = [], 0
        async for piece in response.content.iter_any():
            if size <= self._large_answer_bytes < size + len(piece):
                await self._take_turn(turn)
            pieces.append(piece)
            size += len(piece)
            if size > self._max_reply_bytes:
                raise self._too_large("an answer", self._max_reply_bytes)
            packed = response.content.total_compressed_bytes
            if packed and size > max(MAX_UNPACKED_FREELY, MAX_COMPRESSION_RATIO * packed):
                raise ServerError(
                    f"{self.config.server} sends an answer that unpacks to more than {MAX_COMPRESSION_RATIO} times "
                    "its size; is it an API server?",
                    status=502,
                )
        return b"".join(pieces)

    async def _take_turn(self, turn: AsyncExitStack) -> None:
        """Wait until a large answer may be read; `turn` ends it."""
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            await turn.enter_async_context(self._large_answer)
            await turn.enter_async_context(self._pool.large_answers)
        await turn.enter_async_context(asyncio.timeout(LARGE_ANSWER_S))

    async def _events(
        self, request: Request, response: aiohttp.ClientResponse
    ) -> AsyncGenerator[WatchEvent, None]:
        # Lines are split here, because aiohttp's own readline refuses lines longer than its buffer.
        rest: list[bytes] = []
        size = 0
        try:
            async for chunk in response.content.iter_any():
                *lines, tail = chunk.split(b"\n")
                if lines:
                    lines[0] = b"".join([*rest, lines[0]])
                    rest = [tail]
                    size = len(tail)
                else:
                    rest.append(tail)
                    size += len(tail)
                for number, line in enumerate(lines, 1):
                    await self._wait_for_event_turn()
                    if line.strip():
                        yield self._event(request, line)
                    if number % EVENTS_PER_TURN == 0:
                        await asyncio.sleep(0)
                if size > self._max_event_bytes:
                    raise self._too_large("an event", self._max_event_bytes)
        except (aiohttp.ClientError, OSError) as error:
            raise self._translate_error(error, request, sent=True) from error
        if b"".join(rest).strip():
            raise self._outcome_unknown(request, "the watch ended in the middle of an event")

    async def _wait_for_event_turn(self) -> None:
        if self._events_allowed.is_used_up and not self._has_logged_flood:
            self._has_logged_flood = True
            log.warning(
                "%s sends more than %d events a second; they are read at that rate, and what it tells comes late",
                self.config.server,
                EVENTS_PER_S,
            )
        await self._events_allowed.wait()
        self._events_allowed.charge()

    def _event(self, request: Request, line: bytes) -> WatchEvent:
        require_few_values(line)
        try:
            raw = loads(line)
            return WatchEvent(raw["type"], raw["object"])
        except (NotJson, LookupError, TypeError) as error:
            raise self._outcome_unknown(
                request, f"the watch carried {line[:60]!r}, which is no event"
            ) from error

    def _too_large(self, what: str, limit: int) -> ServerError:
        return ServerError(
            f"{self.config.server} sends {what} of more than {limit // 2**20} MiB; is it an API server?",
            status=502,
        )

    def _url(self, request: Request) -> URL:
        query = f"?{urlencode(request.query)}" if request.query else ""
        return URL(self.config.server + quote(request.path, safe=_SAFE_IN_PATH) + query, encoded=True)

    def _options(self, request: Request, credentials: RequestCredentials) -> dict[str, Any]:
        headers = {"Accept": request.accept, "User-Agent": self._user_agent}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        headers.update(request.headers)
        if credentials.token:
            self._refuse_cleartext_token()
            headers["Authorization"] = f"Bearer {credentials.token}"
        options: dict[str, Any] = {
            "data": request.body,
            "headers": headers,
            "allow_redirects": False,
            # Without this aiohttp would call every body a stream of octets.
            "skip_auto_headers": ("Content-Type",),
            "middlewares": (_single_attempt(),),
        }
        if self.config.proxy_url:
            options["proxy"] = self.config.proxy_url
        if self.config.server.startswith("https"):
            options["ssl"] = self._tls(credentials)
            if self.config.tls_server_name:
                options["server_hostname"] = self.config.tls_server_name
        return options

    def _refuse_cleartext_token(self) -> None:
        parts = urlsplit(self.config.server)
        if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            raise CertificateError(
                messages.unreachable(
                    self.config,
                    "a token would be sent in clear text",
                    "use an https:// server in the kubeconfig",
                )
            )

    def _tls(self, credentials: RequestCredentials) -> ssl.SSLContext:
        wanted = (credentials.certificate, credentials.key)
        if self._context is None or self._context_for != wanted:
            self._context = self._new_context(credentials)
            self._context_for = wanted
        return self._context

    def _new_context(self, credentials: RequestCredentials) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # As in Go, each certificate of the bundle is an anchor, also an intermediate one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self.config.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.config.ca:
            try:
                context.load_verify_locations(cadata=self.config.ca)
            except (ssl.SSLError, ValueError) as error:
                raise CertificateError(
                    f"the CA in the kubeconfig for {self.config.server} is no certificate ({error}); "
                    "copy certificate-authority-data again, whole"
                ) from error
        else:
            context.load_default_certs()
        if credentials.certificate:
            self._load_chain(context, credentials)
        return context

    def _load_chain(self, context: ssl.SSLContext, credentials: RequestCredentials) -> None:
        # OpenSSL reads chains from files only; this one lives for a moment, for its owner's eyes (mode 0600).
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{credentials.key.strip()}\n{credentials.certificate.strip()}\n")
            file.flush()
            try:
                # Without a password OpenSSL would prompt for one at the terminal.
                context.load_cert_chain(file.name, password="")
            except (ssl.SSLError, ValueError) as error:
                raise Unreachable(
                    f"{self.config.credential} for {self.config.server} cannot be used ({error}); "
                    "client-certificate-data and client-key-data must be a pair, in PEM"
                ) from error

    def _translate_error(self, error: Exception, request: Request, sent: bool) -> KubeError:
        refusal = _certificate_alert(error)
        if refusal:
            return Unauthorized(messages.client_certificate_rejected(self.config, refusal), status=401)
        if sent:
            why = _reason(error)
            if self.config.certificate and _is_disconnect(error):
                why += " (where this happens each time, the server may not accept the client certificate)"
            return self._outcome_unknown(request, why)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return CertificateError(messages.certificate_error(self.config, _reason(error)))
        for kind, explain, hint in _EXPLANATIONS:
            if isinstance(error, kind):
                return Unreachable(messages.unreachable(self.config, explain(error), hint))
        return Unreachable(
            messages.unreachable(self.config, _reason(error), "check the address and the network")
        )

    def _outcome_unknown(self, request: Request, why: str) -> OutcomeUnknown:
        return OutcomeUnknown(messages.outcome_unknown(self.config, request.method, request.path, why))


def _find_certificate_end(response: aiohttp.ClientResponse) -> datetime | None:
    """When the certificate of the server ends; None without one that can be read. OpenSSL has bounded and verified its chain."""
    transport = response.connection.transport if response.connection is not None else None
    connection = transport.get_extra_info("ssl_object") if transport is not None else None
    shown = connection.getpeercert(binary_form=True) if connection is not None else None
    try:
        return pki.read_certificate(ssl.DER_cert_to_PEM_cert(shown)).not_after if shown else None
    except ValueError:  # NotCertificate, and dates that are none
        return None


def _reason(error: BaseException) -> str:
    """The innermost reason: aiohttp wraps the errors of the operating system and of OpenSSL."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return _reason(error.os_error)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _reason(error.certificate_error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return str(getattr(error, "reason", None) or error).replace("_", " ").lower()
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection broke in the middle of the answer"
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError | BrokenPipeError):
        return "the connection was closed"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def _is_disconnect(error: Exception) -> bool:
    """Whether the server closed the connection instead of answering."""
    return isinstance(error, aiohttp.ServerDisconnectedError) or getattr(error, "errno", None) == ECONNRESET


def _certificate_alert(error: BaseException) -> str:
    """The reason in a TLS alert of the server about the client certificate, or ""."""
    cause: BaseException | None = error
    while cause is not None:
        # With TLS 1.3 the alert comes after the request was written, but before the server read it.
        reason = str(getattr(cause, "reason", ""))
        if (
            isinstance(cause, ssl.SSLError)
            and "ALERT" in reason
            and ("CERT" in reason or "UNKNOWN_CA" in reason)
        ):
            return _reason(cause)
        cause = cause.__cause__
    return ""


def _connect_reason(error: Any) -> str:
    return "connection refused" if isinstance(error.os_error, ConnectionRefusedError) else _reason(error)


# The first match wins; subclasses come before their bases.
_EXPLANATIONS: tuple[tuple[type[Exception], Callable[[Any], str], str], ...] = (
    (
        aiohttp.ClientProxyConnectionError,
        lambda error: f"the proxy itself cannot be reached: {_connect_reason(error)}",
        "check proxy-url in the kubeconfig",
    ),
    (
        aiohttp.ClientHttpProxyError,
        lambda error: f"the proxy answered {error.status} {error.message}",
        "is the server running, and may the proxy lead there?",
    ),
    (
        aiohttp.ClientConnectorDNSError,
        lambda error: f"its name is not known ({_reason(error)})",
        "check the name in the kubeconfig, or the resolver of this machine",
    ),
    (
        aiohttp.ClientConnectorSSLError,
        lambda error: f"no TLS there ({_reason(error)})",
        "is the port right, and does an API server listen on it?",
    ),
    (
        aiohttp.ClientConnectorError,
        _connect_reason,
        "is the API server running, and are address and port right?",
    ),
    (
        TimeoutError,
        lambda error: f"no connection within {CONNECT_TIMEOUT_S:.0f} s",
        "is the address right, and does a firewall block it?",
    ),
)


def _single_attempt() -> Callable[[aiohttp.ClientRequest, Any], Awaitable[aiohttp.ClientResponse]]:
    """Middleware that lets aiohttp try once: its own second try gets the first one's error."""
    first: list[Exception] = []

    async def middleware(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
        if first:
            raise first[0]
        try:
            response: aiohttp.ClientResponse = await handler(request)
        except Exception as error:
            first.append(error)
            raise
        return response

    return middleware


def _trace_config() -> aiohttp.TraceConfig:
    async def on_headers_sent(session: Any, context: Any, parameters: Any) -> None:
        if isinstance(context.trace_request_ctx, _RequestTrace):
            context.trace_request_ctx.headers_sent = True

    tracing = aiohttp.TraceConfig()
    tracing.on_request_headers_sent.append(on_headers_sent)
    return tracing


def _keepalive_socket(address: Any) -> socket.socket:
    """A socket whose dead peer is noticed within a minute, so that no watch hangs on a host that lost power."""
    made = socket.socket(*address[:3])
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
