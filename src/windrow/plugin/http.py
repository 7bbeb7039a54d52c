"""Requests to one API server with blocking sockets: TLS, keep-alive, proxies, watches. Standard library only.

What is promised:

* A request is written at most once per attempt, and repeated only by the table of `kube.repeating`. A write on a
  connection that breaks is `Unanswered`, also on a used one: it may have arrived.
* Everything is bounded: connecting, waiting for an answer, its size, the attempts. A peer that lost power is noticed
  within a minute, so a watch may stay silent for as long as it asked to live.
* Errors name the server and the credential, never its secret.

Threads may share one `Http`; each exchange has a connection of its own while it lasts.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from windrow.formats.json import NotJson, loads
from windrow.kube import sentences
from windrow.kube.errors import (
    KubeError,
    NotTrusted,
    ServerFailed,
    Unanswered,
    Unauthorized,
    Unreachable,
    error_for,
)
from windrow.kube.kubeconfig import Access, ReadFile
from windrow.kube.repeating import asked_s, is_worth_repeating, survives
from windrow.kube.requests import Event, Reply, Request
from windrow.plugin.http11 import (
    BLOCK,
    BODY_LIMIT,
    BadHttp,
    Body,
    CutOff,
    Head,
    Source,
    read_head,
    render_request,
)
from windrow.plugin.proxies import BadProxy, Proxy, find_proxy
from windrow.values.chance import Chance

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

AGENT = "docker-machine-driver-harvester (windrow)"

CONNECT_S = 10.0
ANSWER_S = 60.0
# How much longer than it asked to live a watch may be silent.
SLACK_S = 30.0
# How often whoever reads a silent watch gets to look at the clock.
TICK_S = 5.0
# Go's servers keep idle connections for longer; what lies between may not.
IDLE_S = 30.0

ATTEMPTS = 4
FIRST_PAUSE_S = 0.25
# No further attempt begins after this.
PATIENCE_S = 30.0

EVENT_LIMIT = 2**24

_SAFE_IN_PATH = "/:@!$&'()*+,;=~-._"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What `Http` is handed of the process it runs in."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    chance: Chance
    env: Mapping[str, str] = field(default_factory=dict)
    read_file: ReadFile | None = None
    # Where a file with the client key may stand for a moment, if memory cannot hold it.
    folders: Sequence[str] = ()


@dataclass(slots=True)
class _Link:
    """One connection. Closed unless it is given back."""

    socket: socket.socket
    source: Source
    deadline: float = 0.0
    idle_since: float = 0.0

    def close(self) -> None:
        with suppress(OSError):
            self.socket.close()


class Http:
    """One API server as one identity."""

    def __init__(self, access: Access, surroundings: Surroundings) -> None:
        """Raises Unreachable where `access` cannot be used at all."""
        self.access = access
        self._around = surroundings
        self._lock = Lock()
        self._idle: list[_Link] = []
        self._context: ssl.SSLContext | None = None
        parts = urlsplit(access.server)
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or _DEFAULT_PORTS[parts.scheme]
        self._prefix = parts.path.rstrip("/")
        self._authority = f"[{self._host}]" if ":" in self._host else self._host
        if parts.port:
            self._authority += f":{parts.port}"
        if access.exec is not None:
            raise self._unreachable(
                f"its credential would come from the program {access.exec.command!r}, which a node driver does not run",
                "use a kubeconfig with a token or a client certificate, as Harvester's own is",
            )
        try:
            self._proxy = find_proxy(access.server, access.proxy_url, surroundings.env)
        except BadProxy as bad:
            raise self._unreachable(str(bad), "or take the proxy away") from bad

    def send(self, request: Request) -> Reply:
        """The answer, whatever its status, after repeating what may be repeated. Raises Unreachable, Unanswered."""
        started = self._around.monotonic()
        attempt = 1
        while True:
            try:
                reply = self._exchange(request)
            except KubeError as error:
                if not survives(error, request) or not self._pause(attempt, started, 0.0):
                    raise
            else:
                if not is_worth_repeating(request, reply):
                    return reply
                if not self._pause(attempt, started, asked_s(reply)):
                    return reply
            attempt += 1

    def watch(self, request: Request) -> Iterator[Event | None]:
        """The events of a watch until the server ends it, and None whenever nothing has come for some seconds.

        Raises the KubeError that it is refused with (after repeating what may be), and Unanswered where it breaks off.
        """
        started = self._around.monotonic()
        attempt = 1
        while True:
            try:
                link, head = self._begin(request)
            except KubeError as error:
                if not survives(error, request) or not self._pause(attempt, started, 0.0):
                    raise
            else:
                if head.status == 200:
                    return self._events(request, link, head)
                reply = self._finish(request, link, head)
                if not is_worth_repeating(request, reply) or not self._pause(
                    attempt, started, asked_s(reply)
                ):
                    raise error_for(reply) or ServerFailed(
                        f"wanted a watch from {self.access.server}, found an answer {reply.status}",
                        status=reply.status,
                    )
            attempt += 1

    def close(self) -> None:
        """Let go of the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    # --- one attempt

    def _pause(self, attempt: int, started: float, asked: float) -> bool:
        """Wait before the next attempt; False where there is none left."""
        plain = FIRST_PAUSE_S * 2 ** (attempt - 1)
        span = max(asked, plain) * self._around.chance.between(1.0, 1.5)
        left = started + PATIENCE_S - self._around.monotonic()
        if attempt >= ATTEMPTS or span > left:
            return False
        self._around.sleep(span)
        return True

    def _exchange(self, request: Request) -> Reply:
        link, head = self._begin(request)
        return self._finish(request, link, head)

    def _begin(self, request: Request) -> tuple[_Link, Head]:
        """Send, and read the head of the answer."""
        sent = self._render(request)
        link = self._take_idle() or self._connect()
        link.deadline = self._around.monotonic() + ANSWER_S
        with _Closing(self, request, link):
            return link, self._converse(link, sent)

    def _converse(self, link: _Link, sent: bytes) -> Head:
        link.source.begin()
        try:
            self._write(link, sent)
        except TimeoutError:
            raise
        except OSError:
            # Servers say why they hang up, before they do: a TLS alert, or an answer to half of a request.
            with suppress(CutOff, BadHttp):
                return read_head(link.source)
            raise
        return read_head(link.source)

    def _finish(self, request: Request, link: _Link, head: Head) -> Reply:
        with _Closing(self, request, link):
            body = Body(head, request.method)
            content = self._whole(link, body)
        if body.leaves_it_usable:
            self._give_back(link)
        else:
            link.close()
        if 300 <= head.status < 400:
            raise self._sent_elsewhere(head)
        reply = Reply(head.status, content, head.headers.get("Content-Type", ""), dict(head.headers))
        return sentences.explained(reply, self.access)

    def _whole(self, link: _Link, body: Body) -> bytes:
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
            block = self._receive(link, BLOCK)
            if not block:
                body.end()

    def _events(self, request: Request, link: _Link, head: Head) -> Iterator[Event | None]:
        lives = float(request.parameter("timeoutSeconds") or 0) or 3600.0
        link.deadline = self._around.monotonic() + lives + SLACK_S
        held = b""
        try:
            with _Closing(self, request, link):
                for block in self._blocks(link, Body(head)):
                    if block is None:
                        yield None
                        continue
                    *lines, held = (held + block).split(b"\n")
                    if len(held) > EVENT_LIMIT:
                        raise BadHttp(f"an event of more than {EVENT_LIMIT} bytes")
                    for line in lines:
                        if line.strip():
                            yield self._event(line)
                if held.strip():
                    raise CutOff(begun=True)
        finally:
            link.close()

    def _blocks(self, link: _Link, body: Body) -> Iterator[bytes | None]:
        """The body as it comes; None whenever nothing has come for a while."""
        yield body.feed(link.source.rest())
        while not body.is_done:
            link.socket.settimeout(min(self._left(link), TICK_S))
            try:
                block = link.socket.recv(BLOCK)
            except TimeoutError:
                yield None
                continue
            if not block:
                body.end()
            yield body.feed(block)

    def _event(self, line: bytes) -> Event:
        try:
            raw = loads(line)
            return Event(raw["type"], raw["object"])
        except (NotJson, LookupError, TypeError) as error:
            raise BadHttp(f"a watch that carried {line[:60]!r}, which is no event") from error

    # --- connections

    def _take_idle(self) -> _Link | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                link = self._idle.pop()
            if self._around.monotonic() - link.idle_since < IDLE_S and _is_quiet(link.socket):
                return link
            link.close()

    def _give_back(self, link: _Link) -> None:
        link.idle_since = self._around.monotonic()
        with self._lock:
            self._idle.append(link)

    def _connect(self) -> _Link:
        deadline = self._around.monotonic() + CONNECT_S
        if self._proxy is None:
            plain = self._dial(
                self._host, self._port, deadline, "is the API server running, and are address and port right?"
            )
        else:
            plain = self._dial(
                self._proxy.host,
                self._proxy.port,
                deadline,
                "check the proxy, or take it away",
                " (its proxy)",
            )
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_dead_peers(plain)
            if self._proxy is not None and self._is_tls:
                self._tunnel(plain, self._proxy, deadline)
            spoken = self._secure(plain, deadline) if self._is_tls else plain
        except BaseException:
            plain.close()
            raise
        link = _Link(spoken, Source(lambda count: b""))
        link.source = Source(lambda count: self._receive(link, count))
        return link

    def _dial(self, host: str, port: int, deadline: float, cure: str, called: str = "") -> socket.socket:
        try:
            # As bytes, or Python would load the codec for international names.
            found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise self._unreachable(
                f"the name {host}{called} is not known ({_reason(error)})",
                "check the name, or the resolver of this machine",
            ) from error
        last: OSError = OSError("no address")
        for place, (family, kind, protocol, _, address) in enumerate(found):
            made = socket.socket(family, kind, protocol)
            try:
                left = (deadline - self._around.monotonic()) / (len(found) - place)
                made.settimeout(max(left, 0.1))
                made.connect(address)
            except OSError as error:
                last = error
                made.close()
            else:
                return made
        if isinstance(last, TimeoutError):
            why, cure = (
                f"no connection within {CONNECT_S:.0f} s",
                "is the address right, and does a firewall stand between?",
            )
        else:
            why = _reason(last)
        raise self._unreachable(f"{host}:{port}{called}: {why}" if called else why, cure) from last

    def _tunnel(self, plain: socket.socket, proxy: Proxy, deadline: float) -> None:
        where = f"[{self._host}]" if ":" in self._host else self._host
        target = f"{where}:{self._port}"
        headers = [("Host", target), ("User-Agent", AGENT)]
        if proxy.authorization:
            headers.append(("Proxy-Authorization", proxy.authorization))
        try:
            plain.settimeout(max(deadline - self._around.monotonic(), 0.1))
            plain.sendall(render_request("CONNECT", target, headers))
            # One byte at a time, so that nothing is taken from what follows the head.
            head = read_head(Source(lambda count: plain.recv(1)))
        except (OSError, BadHttp, CutOff) as error:
            raise self._unreachable(
                f"its proxy did not answer: {_reason(error)}", "check the proxy"
            ) from error
        if head.status != 200:
            raise self._unreachable(
                f"the proxy answered {head.status} {head.reason[:200]}".rstrip(),
                "is the server running, and may the proxy lead there?",
            )

    def _secure(self, plain: socket.socket, deadline: float) -> socket.socket:
        import ssl  # late: it costs as much as half of the interpreter's start

        context = self._tls()
        name = self.access.tls_server_name or self._host
        plain.settimeout(max(deadline - self._around.monotonic(), 0.1))
        try:
            # As bytes, for the same reason as above; the type stubs know text only.
            return context.wrap_socket(plain, server_hostname=name.encode("ascii"))
        except ssl.SSLCertVerificationError as error:
            raise NotTrusted(sentences.not_trusted(self.access, error.verify_message)) from error
        except (ssl.SSLError, OSError, UnicodeError) as error:
            if refusal := _certificate_alert(error):
                raise Unauthorized(sentences.certificate_refused(self.access, refusal), status=401) from error
            raise self._unreachable(
                f"no TLS there ({_reason(error)})", "is the port right, and does an API server listen on it?"
            ) from error

    def _tls(self) -> ssl.SSLContext:
        with self._lock:
            if self._context is None:
                self._context = self._new_context()
            return self._context

    def _new_context(self) -> ssl.SSLContext:
        import ssl

        from windrow.plugin.tls import NoPlaceForKey, new_context

        access, around = self.access, self._around
        try:
            return new_context(
                ca=access.ca,
                insecure=access.insecure,
                certificate=access.certificate,
                key=access.key,
                env=around.env,
                folders=around.folders,
                name=lambda: f"windrow-{around.chance.suffix(10)}",
            )
        except NoPlaceForKey as error:
            raise self._unreachable(
                f"its client key cannot be handed to OpenSSL: {error}",
                "use a kubeconfig with a token, or give the machine store a directory that can be written",
            ) from error
        except (ssl.SSLError, ValueError, TypeError) as error:
            raise self._unreachable(
                f"its certificates cannot be used ({_reason(error)})",
                "copy certificate-authority-data, client-certificate-data and client-key-data again, whole",
            ) from error

    # --- bytes

    def _write(self, link: _Link, sent: bytes) -> None:
        link.socket.settimeout(self._left(link))
        link.socket.sendall(sent)

    def _receive(self, link: _Link, count: int) -> bytes:
        link.socket.settimeout(self._left(link))
        return link.socket.recv(count)

    def _left(self, link: _Link) -> float:
        left = link.deadline - self._around.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _render(self, request: Request) -> bytes:
        query = f"?{urlencode(request.query)}" if request.query else ""
        target = self._prefix + quote(request.path, safe=_SAFE_IN_PATH) + query
        headers = [("Host", self._authority), ("User-Agent", AGENT), ("Accept", request.accept)]
        if request.content_type:
            headers.append(("Content-Type", request.content_type))
        headers += request.headers
        if token := self._token():
            headers.append(("Authorization", f"Bearer {token}"))
        if self._proxy is not None and not self._is_tls:
            target = f"http://{self._authority}{target}"
            if self._proxy.authorization:
                headers.append(("Proxy-Authorization", self._proxy.authorization))
        try:
            return render_request(request.method, target, headers, request.body)
        except ValueError as error:
            raise self._unreachable(str(error), "copy the token again, whole") from error

    def _token(self) -> str:
        access = self.access
        token = access.token
        if access.token_file:
            token = self._read_token(access.token_file)
        if token and not self._is_tls and not _is_loopback(self._host):
            raise NotTrusted(
                sentences.unreachable(
                    access, "a token would be sent in clear text", "use an https:// server in the kubeconfig"
                )
            )
        return token

    def _read_token(self, path: str) -> str:
        # Read each time: somebody renews it, and requests are few.
        if self._around.read_file is None:
            raise self._unreachable(
                f"the token file {path} may not be read", "put the token into the kubeconfig"
            )
        try:
            return self._around.read_file(path).strip()
        except (OSError, UnicodeError) as error:
            raise self._unreachable(
                f"the token file {path} cannot be read ({_reason(error)})", "correct the path"
            ) from error

    # --- errors

    def _unreachable(self, why: str, cure: str) -> Unreachable:
        return Unreachable(sentences.unreachable(self.access, why, cure))

    def _sent_elsewhere(self, head: Head) -> KubeError:
        """Redirects are not followed: the credential is for the server that the kubeconfig names."""
        return ServerFailed(
            f"{sentences.where(self.access)} answered {head.status} and sends to "
            f"{head.headers.get('Location', 'nowhere')[:200]}; name the API server itself in the kubeconfig",
            status=head.status,
        )

    def broken(self, request: Request, error: BaseException) -> KubeError:
        """What a connection that broke after we began to write means."""
        if refusal := _certificate_alert(error):
            return Unauthorized(sentences.certificate_refused(self.access, refusal), status=401)
        return Unanswered(sentences.unanswered(self.access, request.method, request.path, _reason(error)))


class _Closing:
    """Closes the connection when the block fails, and tells the failure in the family's words."""

    def __init__(self, http: Http, request: Request, link: _Link) -> None:
        self._http, self._request, self._link = http, request, link

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        self._link.close()
        if isinstance(error, OSError | CutOff | BadHttp):
            raise self._http.broken(self._request, error) from error


def _is_quiet(used: socket.socket) -> bool:
    """Whether an idle connection is as we left it: a server that spoke unasked has closed it, or is about to."""
    import select

    look = select.poll()
    look.register(used, select.POLLIN)
    return not look.poll(0)


def _notice_dead_peers(made: socket.socket) -> None:
    """Within a minute, so that a watch that has nothing to tell differs from one whose server lost power."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _certificate_alert(error: BaseException) -> str:
    """What a TLS alert from the server says about our certificate, or ""."""
    # With TLS 1.3 it comes after the request was written, but before anybody read it.
    said = str(getattr(error, "reason", "") or "")
    return _reason(error) if "ALERT" in said and ("CERT" in said or "UNKNOWN_CA" in said) else ""


def _reason(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    if isinstance(reason, str) and reason:  # OpenSSL's
        return reason.replace("_", " ").lower()
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "the connection was closed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
