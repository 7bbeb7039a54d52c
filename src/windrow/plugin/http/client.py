"""Requests to one API server with blocking sockets: repeated where that is safe, watches line by line.

What is promised:

* A request is written at most once per attempt, and repeated only by the table of `windrow.kubernetes.retry`. A write on a
  connection that breaks is `OutcomeUnknown`, also on a used one: it may have arrived.
* Everything is bounded: connecting, waiting for an answer, its size, the attempts. A peer that lost power is noticed
  within a minute, so a watch may stay silent for as long as it asked to live.
* Errors name the server and the credential, never its secret.

Threads may share one `HttpClient`; each exchange has a connection of its own while it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from windrow.core.formats.json import NotJson, loads
from windrow.kubernetes.answers import messages
from windrow.kubernetes.errors import (
    CertificateError,
    KubeError,
    OutcomeUnknown,
    ServerError,
    Unauthorized,
    error_for,
)
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.retry import is_retryable, is_retryable_reply, retry_after_s
from windrow.plugin.environment import ProcessEnv
from windrow.plugin.http.http11 import (
    MAX_BODY_SIZE,
    READ_SIZE,
    Body,
    ConnectionClosed,
    Head,
    InvalidResponse,
    read_head,
    render_request,
)
from windrow.plugin.http.pool import (
    Connection,
    ConnectionPool,
    certificate_alert,
    error_reason,
)

T = TypeVar("T")

USER_AGENT = "docker-machine-driver-harvester (windrow)"

RESPONSE_TIMEOUT_S = 60.0
# How much longer than it asked to live a watch may be silent.
WATCH_GRACE_S = 30.0
# How often the reader of a silent watch may check its deadline.
READ_TICK_S = 5.0

ATTEMPTS = 4
FIRST_RETRY_DELAY_S = 0.25
# No further attempt begins after this.
RETRY_WINDOW_S = 30.0

MAX_EVENT_SIZE = 2**24

_SAFE_IN_PATH = "/:@!$&'()*+,;=~-._"


class HttpClient:
    """One API server as one identity."""

    def __init__(self, access: ClientConfig, process: ProcessEnv, folders: Sequence[str] = ()) -> None:
        """Raises Unreachable where `access` cannot be used at all. `folders` are ConnectionPool's."""
        self.access, self._process = access, process
        self._pool = ConnectionPool(access, process, folders, USER_AGENT)
        self._prefix = urlsplit(access.server).path.rstrip("/")
        if access.exec is not None:
            raise self._pool.unreachable(
                f"its credential would come from the program {access.exec.command!r}, which a node driver does not run",
                "use a kubeconfig with a token or a client certificate, as Harvester's own is",
            )

    def send(self, request: Request) -> Reply:
        """The answer, whatever its status, after repeating what may be repeated. Raises Unreachable, OutcomeUnknown."""
        return self._with_retries(request, self._exchange)

    def watch(self, request: Request) -> Iterator[WatchEvent | None]:
        """The events of a watch until the server ends it, and None whenever nothing has come for some seconds.

        Raises the KubeError that it is refused with (after repeating what may be), and OutcomeUnknown where it breaks off.
        """
        opened = self._with_retries(request, self._open_watch)
        if not isinstance(opened, Reply):
            return opened
        raise error_for(opened) or ServerError(
            f"wanted a watch from {self.access.server}, found an answer {opened.status}", status=opened.status
        )

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    # --- attempts

    def _with_retries(self, request: Request, attempt: Callable[[Request], T]) -> T:
        started = self._process.monotonic()
        number = 1
        while True:
            try:
                result = attempt(request)
            except KubeError as error:
                if not is_retryable(error, request) or not self._wait_before_retry(number, started, 0.0):
                    raise
            else:
                if not isinstance(result, Reply) or not is_retryable_reply(request, result):
                    return result
                if not self._wait_before_retry(number, started, retry_after_s(result)):
                    return result
            number += 1

    def _wait_before_retry(self, attempt: int, started: float, retry_after_s: float) -> bool:
        """Wait before the next attempt; False where there is none left."""
        backoff_s = FIRST_RETRY_DELAY_S * 2 ** (attempt - 1)
        delay_s = max(retry_after_s, backoff_s) * self._process.rng.uniform(1.0, 1.5)
        left_s = started + RETRY_WINDOW_S - self._process.monotonic()
        if attempt >= ATTEMPTS or delay_s > left_s:
            return False
        self._process.sleep(delay_s)
        return True

    def _exchange(self, request: Request) -> Reply:
        connection, head = self._send_request(request)
        return self._read_response(request, connection, head)

    def _open_watch(self, request: Request) -> Reply | Iterator[WatchEvent | None]:
        connection, head = self._send_request(request)
        return (
            self._events(request, connection, head)
            if head.status == 200
            else self._read_response(request, connection, head)
        )

    # --- one exchange

    def _send_request(self, request: Request) -> tuple[Connection, Head]:
        """Send, and read the head of the answer."""
        sent = self._render(request)
        connection = self._pool.acquire()
        connection.deadline = self._process.monotonic() + RESPONSE_TIMEOUT_S
        with self._closing_on_error(request, connection):
            connection.source.begin()
            try:
                connection.write(sent)
            except TimeoutError:
                raise
            except OSError:
                # Servers send the reason before they close: a TLS alert, or an answer to half of a request.
                with suppress(ConnectionClosed, InvalidResponse):
                    return connection, read_head(connection.source)
                raise
            return connection, read_head(connection.source)

    def _read_response(self, request: Request, connection: Connection, head: Head) -> Reply:
        with self._closing_on_error(request, connection):
            body = Body(head, request.method)
            content = _read_body(connection, body)
        if body.leaves_it_usable:
            self._pool.release(connection)
        else:
            connection.close()
        if 300 <= head.status < 400:
            raise self._redirect_error(head)
        reply = Reply(head.status, content, head.headers.get("Content-Type", ""), dict(head.headers))
        return messages.explain(reply, self.access)

    def _events(self, request: Request, connection: Connection, head: Head) -> Iterator[WatchEvent | None]:
        lives = float(request.query_parameter("timeoutSeconds") or 0) or 3600.0
        connection.deadline = self._process.monotonic() + lives + WATCH_GRACE_S
        buffer = b""
        try:
            with self._closing_on_error(request, connection):
                for block in _stream_body(connection, Body(head)):
                    if block is None:
                        yield None
                        continue
                    *lines, buffer = (buffer + block).split(b"\n")
                    if len(buffer) > MAX_EVENT_SIZE:
                        raise InvalidResponse(f"an event of more than {MAX_EVENT_SIZE} bytes")
                    for line in lines:
                        if line.strip():
                            yield _event(line)
                if buffer.strip():
                    raise ConnectionClosed(begun=True)
        finally:
            connection.close()

    # --- the request

    def _render(self, request: Request) -> bytes:
        query = f"?{urlencode(request.query)}" if request.query else ""
        target = self._prefix + quote(request.path, safe=_SAFE_IN_PATH) + query
        headers = [("Host", self._pool.authority), ("User-Agent", USER_AGENT), ("Accept", request.accept)]
        if request.content_type:
            headers.append(("Content-Type", request.content_type))
        headers += request.headers
        if token := self._token():
            headers.append(("Authorization", f"Bearer {token}"))
        if (proxy := self._pool.plain_proxy) is not None:
            target = f"http://{self._pool.authority}{target}"
            if proxy.authorization:
                headers.append(("Proxy-Authorization", proxy.authorization))
        try:
            return render_request(request.method, target, headers, request.body)
        except ValueError as error:
            raise self._pool.unreachable(str(error), "copy the token again, whole") from error

    def _token(self) -> str:
        access = self.access
        token = self._read_token(access.token_file) if access.token_file else access.token
        if token and not self._pool.is_tls and not _is_loopback(self._pool.host):
            raise CertificateError(
                messages.unreachable(
                    access, "a token would be sent in clear text", "use an https:// server in the kubeconfig"
                )
            )
        return token

    def _read_token(self, path: str) -> str:
        # Read each time: the kubelet renews it, and requests are few.
        try:
            return self._process.read_text(path).strip()
        except (OSError, UnicodeError) as error:
            raise self._pool.unreachable(
                f"the token file {path} cannot be read ({error_reason(error)})", "correct the path"
            ) from error

    # --- errors

    def _redirect_error(self, head: Head) -> KubeError:
        """Redirects are not followed: the credential is for the server that the kubeconfig names."""
        return ServerError(
            f"{messages.server_of(self.access)} answered {head.status} and sends to "
            f"{head.headers.get('Location', 'nowhere')[:200]}; name the API server itself in the kubeconfig",
            status=head.status,
        )

    @contextmanager
    def _closing_on_error(self, request: Request, connection: Connection) -> Iterator[None]:
        """Closes the connection when the block fails; what breaks it after we began to write is raised as a KubeError."""
        try:
            yield
        except (OSError, ConnectionClosed, InvalidResponse) as error:
            connection.close()
            if alert := certificate_alert(error):
                text = messages.client_certificate_rejected(self.access, alert)
                raise Unauthorized(text, status=401) from error
            raise OutcomeUnknown(
                messages.outcome_unknown(self.access, request.method, request.path, error_reason(error))
            ) from error
        except BaseException:
            connection.close()
            raise


def _read_body(connection: Connection, body: Body) -> bytes:
    parts: list[bytes] = []
    block = connection.source.rest()
    size = 0
    while True:
        parts.append(body.feed(block))
        size += len(parts[-1])
        if size > MAX_BODY_SIZE:
            raise InvalidResponse(f"a body of more than {MAX_BODY_SIZE} bytes")
        if body.is_done:
            return b"".join(parts)
        block = connection.receive(READ_SIZE)
        if not block:
            body.end()


def _stream_body(connection: Connection, body: Body) -> Iterator[bytes | None]:
    """The body as it comes; None whenever nothing has come for a while."""
    yield body.feed(connection.source.rest())
    while not body.is_done:
        try:
            block = connection.receive(READ_SIZE, READ_TICK_S)
        except TimeoutError:
            if connection.is_expired:
                raise
            yield None
            continue
        if not block:
            body.end()
        yield body.feed(block)


def _event(line: bytes) -> WatchEvent:
    try:
        raw = loads(line)
        return WatchEvent(raw["type"], raw["object"])
    except (NotJson, LookupError, TypeError) as error:
        raise InvalidResponse(f"a watch that carried {line[:60]!r}, which is no event") from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
