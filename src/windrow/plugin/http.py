"""Requests to one API server with blocking sockets: repeated where that is safe, watches line by line.

What is promised:

* A request is written at most once per attempt, and repeated only by the table of `kube.repeating`. A write on a
  connection that breaks is `OutcomeUnknown`, also on a used one: it may have arrived.
* Everything is bounded: connecting, waiting for an answer, its size, the attempts. A peer that lost power is noticed
  within a minute, so a watch may stay silent for as long as it asked to live.
* Errors name the server and the credential, never its secret.

Threads may share one `Http`; each exchange has a connection of its own while it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from windrow.core.json import NotJson, loads
from windrow.kubernetes import messages
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
from windrow.plugin.http11 import BLOCK, BODY_LIMIT, BadHttp, Body, CutOff, Head, read_head, render_request
from windrow.plugin.links import Link, Links, Surroundings, certificate_alert, reason

T = TypeVar("T")

AGENT = "docker-machine-driver-harvester (windrow)"

ANSWER_S = 60.0
# How much longer than it asked to live a watch may be silent.
SLACK_S = 30.0
# How often whoever reads a silent watch gets to look at the clock.
TICK_S = 5.0

ATTEMPTS = 4
FIRST_PAUSE_S = 0.25
# No further attempt begins after this.
PATIENCE_S = 30.0

EVENT_LIMIT = 2**24

_SAFE_IN_PATH = "/:@!$&'()*+,;=~-._"


class Http:
    """One API server as one identity."""

    def __init__(self, access: ClientConfig, surroundings: Surroundings) -> None:
        """Raises Unreachable where `access` cannot be used at all."""
        self.access = access
        self._around = surroundings
        self._links = Links(access, surroundings, AGENT)
        self._prefix = urlsplit(access.server).path.rstrip("/")
        if access.exec is not None:
            raise self._links.unreachable(
                f"its credential would come from the program {access.exec.command!r}, which a node driver does not run",
                "use a kubeconfig with a token or a client certificate, as Harvester's own is",
            )

    def send(self, request: Request) -> Reply:
        """The answer, whatever its status, after repeating what may be repeated. Raises Unreachable, OutcomeUnknown."""
        return self._patiently(request, self._exchange)

    def watch(self, request: Request) -> Iterator[WatchEvent | None]:
        """The events of a watch until the server ends it, and None whenever nothing has come for some seconds.

        Raises the KubeError that it is refused with (after repeating what may be), and OutcomeUnknown where it breaks off.
        """
        begun = self._patiently(request, self._begin_watch)
        if not isinstance(begun, Reply):
            return begun
        raise error_for(begun) or ServerError(
            f"wanted a watch from {self.access.server}, found an answer {begun.status}", status=begun.status
        )

    def close(self) -> None:
        """Let go of the connections that nobody uses."""
        self._links.close()

    # --- attempts

    def _patiently(self, request: Request, attempt: Callable[[Request], T]) -> T:
        started = self._around.monotonic()
        number = 1
        while True:
            try:
                came = attempt(request)
            except KubeError as error:
                if not is_retryable(error, request) or not self._pause(number, started, 0.0):
                    raise
            else:
                if not isinstance(came, Reply) or not is_retryable_reply(request, came):
                    return came
                if not self._pause(number, started, retry_after_s(came)):
                    return came
            number += 1

    def _pause(self, attempt: int, started: float, asked: float) -> bool:
        """Wait before the next attempt; False where there is none left."""
        plain = FIRST_PAUSE_S * 2 ** (attempt - 1)
        span = max(asked, plain) * self._around.rng.uniform(1.0, 1.5)
        left = started + PATIENCE_S - self._around.monotonic()
        if attempt >= ATTEMPTS or span > left:
            return False
        self._around.sleep(span)
        return True

    def _exchange(self, request: Request) -> Reply:
        link, head = self._begin(request)
        return self._finish(request, link, head)

    def _begin_watch(self, request: Request) -> Reply | Iterator[WatchEvent | None]:
        link, head = self._begin(request)
        return self._events(request, link, head) if head.status == 200 else self._finish(request, link, head)

    # --- one exchange

    def _begin(self, request: Request) -> tuple[Link, Head]:
        """Send, and read the head of the answer."""
        sent = self._render(request)
        link = self._links.take()
        link.deadline = self._around.monotonic() + ANSWER_S
        with _Closing(self, request, link):
            link.source.begin()
            try:
                link.write(sent)
            except TimeoutError:
                raise
            except OSError:
                # Servers say why they hang up, before they do: a TLS alert, or an answer to half of a request.
                with suppress(CutOff, BadHttp):
                    return link, read_head(link.source)
                raise
            return link, read_head(link.source)

    def _finish(self, request: Request, link: Link, head: Head) -> Reply:
        with _Closing(self, request, link):
            body = Body(head, request.method)
            content = _whole(link, body)
        if body.leaves_it_usable:
            self._links.give_back(link)
        else:
            link.close()
        if 300 <= head.status < 400:
            raise self._sent_elsewhere(head)
        reply = Reply(head.status, content, head.headers.get("Content-Type", ""), dict(head.headers))
        return messages.explain(reply, self.access)

    def _events(self, request: Request, link: Link, head: Head) -> Iterator[WatchEvent | None]:
        lives = float(request.query_parameter("timeoutSeconds") or 0) or 3600.0
        link.deadline = self._around.monotonic() + lives + SLACK_S
        held = b""
        try:
            with _Closing(self, request, link):
                for block in _blocks(link, Body(head)):
                    if block is None:
                        yield None
                        continue
                    *lines, held = (held + block).split(b"\n")
                    if len(held) > EVENT_LIMIT:
                        raise BadHttp(f"an event of more than {EVENT_LIMIT} bytes")
                    for line in lines:
                        if line.strip():
                            yield _event(line)
                if held.strip():
                    raise CutOff(begun=True)
        finally:
            link.close()

    # --- the request

    def _render(self, request: Request) -> bytes:
        query = f"?{urlencode(request.query)}" if request.query else ""
        target = self._prefix + quote(request.path, safe=_SAFE_IN_PATH) + query
        headers = [("Host", self._links.authority), ("User-Agent", AGENT), ("Accept", request.accept)]
        if request.content_type:
            headers.append(("Content-Type", request.content_type))
        headers += request.headers
        if token := self._token():
            headers.append(("Authorization", f"Bearer {token}"))
        if (proxy := self._links.spoken_proxy) is not None:
            target = f"http://{self._links.authority}{target}"
            if proxy.authorization:
                headers.append(("Proxy-Authorization", proxy.authorization))
        try:
            return render_request(request.method, target, headers, request.body)
        except ValueError as error:
            raise self._links.unreachable(str(error), "copy the token again, whole") from error

    def _token(self) -> str:
        access = self.access
        token = self._read_token(access.token_file) if access.token_file else access.token
        if token and not self._links.is_tls and not _is_loopback(self._links.host):
            raise CertificateError(
                messages.unreachable(
                    access, "a token would be sent in clear text", "use an https:// server in the kubeconfig"
                )
            )
        return token

    def _read_token(self, path: str) -> str:
        # Read each time: somebody renews it, and requests are few.
        if self._around.read_file is None:
            raise self._links.unreachable(
                f"the token file {path} may not be read", "put the token into the kubeconfig"
            )
        try:
            return self._around.read_file(path).strip()
        except (OSError, UnicodeError) as error:
            raise self._links.unreachable(
                f"the token file {path} cannot be read ({reason(error)})", "correct the path"
            ) from error

    # --- errors

    def _sent_elsewhere(self, head: Head) -> KubeError:
        """Redirects are not followed: the credential is for the server that the kubeconfig names."""
        return ServerError(
            f"{messages.server_of(self.access)} answered {head.status} and sends to "
            f"{head.headers.get('Location', 'nowhere')[:200]}; name the API server itself in the kubeconfig",
            status=head.status,
        )

    def broken(self, request: Request, error: BaseException) -> KubeError:
        """What a connection that broke after we began to write means."""
        if refusal := certificate_alert(error):
            return Unauthorized(messages.client_certificate_rejected(self.access, refusal), status=401)
        return OutcomeUnknown(
            messages.outcome_unknown(self.access, request.method, request.path, reason(error))
        )


class _Closing:
    """Closes the connection when the block fails, and tells the failure in the family's words."""

    def __init__(self, http: Http, request: Request, link: Link) -> None:
        self._http, self._request, self._link = http, request, link

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        self._link.close()
        if isinstance(error, OSError | CutOff | BadHttp):
            raise self._http.broken(self._request, error) from error


def _whole(link: Link, body: Body) -> bytes:
    parts: list[bytes] = []
    block = link.source.rest()
    size = 0
    while True:
        parts.append(body.feed(block))
        size += len(parts[-1])
        if size > BODY_LIMIT:
            raise BadHttp(f"a body of more than {BODY_LIMIT} bytes")
        if body.is_done:
            return b"".join(parts)
        block = link.receive(BLOCK)
        if not block:
            body.end()


def _blocks(link: Link, body: Body) -> Iterator[bytes | None]:
    """The body as it comes; None whenever nothing has come for a while."""
    yield body.feed(link.source.rest())
    while not body.is_done:
        try:
            block = link.receive(BLOCK, TICK_S)
        except TimeoutError:
            if link.is_over:
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
        raise BadHttp(f"a watch that carried {line[:60]!r}, which is no event") from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
