"""Connections to one API server: dialled, tunnelled through a proxy, with TLS, and pooled for the next request.

Until a request is written nothing can have happened, so all that goes wrong here is Unreachable (or CertificateError, or
Unauthorized where the server refuses our certificate), with the server's name and the next move.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windrow.kubernetes.answers import messages
from windrow.kubernetes.errors import CertificateError, Unauthorized, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.proxies import BadProxy, Proxy, find_proxy
from windrow.plugin.environment import ProcessEnv
from windrow.plugin.http.http11 import ConnectionClosed, InvalidResponse, Source, read_head, render_request

if TYPE_CHECKING:
    import ssl

CONNECT_S = 10.0
# Go's servers keep idle connections for longer; proxies in between may not.
IDLE_S = 30.0

_DEFAULT_PORTS = {"http": 80, "https": 443}
_CHECK_SERVER = "is the API server running, and are address and port right?"


class Connection:
    """One connection. The acquirer closes or releases it; reads and writes fail at `deadline`."""

    def __init__(self, connected: socket.socket, monotonic: Callable[[], float]) -> None:
        self.socket = connected
        self.source = Source(self.receive)
        self.deadline = 0.0
        self.idle_since = 0.0
        self._monotonic = monotonic

    @property
    def is_expired(self) -> bool:
        return self._monotonic() >= self.deadline

    def write(self, content: bytes) -> None:
        """Raises OSError; TimeoutError at the deadline."""
        self.socket.settimeout(self._left())
        self.socket.sendall(content)

    def receive(self, count: int, most_s: float | None = None) -> bytes:
        """b"" at the end. Raises OSError; TimeoutError at the deadline, or when nothing came for `most_s`."""
        left = self._left()
        self.socket.settimeout(left if most_s is None else min(left, most_s))
        return self.socket.recv(count)

    def close(self) -> None:
        with suppress(OSError):
            self.socket.close()

    def _left(self) -> float:
        left = self.deadline - self._monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class ConnectionPool:
    """Makes connections to the server of `access`, and keeps those that may be used again.

    `folders` are where the client key may be written for a moment, if there is no memory file.
    """

    def __init__(
        self, access: ClientConfig, process: ProcessEnv, folders: Sequence[str], user_agent: str
    ) -> None:
        """Raises Unreachable where the proxy that is named cannot be used."""
        self._access, self._process, self._folders, self._user_agent = access, process, folders, user_agent
        self._lock = Lock()
        self.idle: list[Connection] = []
        self._context: ssl.SSLContext | None = None
        parts = urlsplit(access.server)
        self.is_tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.authority = _bracketed(self.host) + (f":{parts.port}" if parts.port else "")
        self._port = parts.port or _DEFAULT_PORTS[parts.scheme]
        try:
            self._proxy = find_proxy(access.server, access.proxy_url, process.env)
        except BadProxy as bad:
            raise self.unreachable(str(bad), "or remove the proxy") from bad

    @property
    def plain_proxy(self) -> Proxy | None:
        """The proxy that sees our requests themselves, since the server has no TLS to tunnel."""
        return None if self.is_tls else self._proxy

    def acquire(self) -> Connection:
        """A connection to the server, used or new. Raises Unreachable, CertificateError, Unauthorized."""
        return self._acquire_idle() or self._connect()

    def release(self, connection: Connection) -> None:
        """Keep it for another request: its answer was read to the end."""
        connection.idle_since = self._process.monotonic()
        with self._lock:
            self.idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self.idle = self.idle, []
        for connection in idle:
            connection.close()

    def unreachable(self, why: str, hint: str) -> Unreachable:
        return Unreachable(messages.unreachable(self._access, why, hint))

    def _acquire_idle(self) -> Connection | None:
        while True:
            with self._lock:
                if not self.idle:
                    return None
                connection = self.idle.pop()
            if self._process.monotonic() - connection.idle_since < IDLE_S and _has_no_pending_input(
                connection.socket
            ):
                return connection
            connection.close()

    # --- making one

    def _connect(self) -> Connection:
        deadline = self._process.monotonic() + CONNECT_S
        tcp = self._dial(deadline)
        try:
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _enable_keepalive(tcp)
            if self._proxy is not None and self.is_tls:
                self._tunnel(tcp, self._proxy, deadline)
            stream = self._start_tls(tcp, deadline) if self.is_tls else tcp
        except OSError as error:
            tcp.close()
            raise self.unreachable(error_reason(error), _CHECK_SERVER) from error
        except BaseException:
            tcp.close()
            raise
        return Connection(stream, self._process.monotonic)

    def _dial(self, deadline: float) -> socket.socket:
        proxy = self._proxy
        host, port = (proxy.host, proxy.port) if proxy else (self.host, self._port)
        prefix = f"its proxy {host}:{port}: " if proxy else ""
        try:
            # As bytes, or Python would load the codec for international names.
            found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise self.unreachable(
                f"{prefix}the name {host} is not known ({error_reason(error)})",
                "check the name, or the resolver of this machine",
            ) from error
        last: OSError = OSError("no address")
        for index, (family, kind, protocol, _, address) in enumerate(found):
            made: socket.socket | None = None
            try:
                made = socket.socket(family, kind, protocol)
                # Each address gets its part of the time, so that a dead one does not cost the others theirs.
                made.settimeout(self._left(deadline) / (len(found) - index))
                made.connect(address)
            except OSError as error:
                last = error
                if made is not None:
                    made.close()
            else:
                return made
        if isinstance(last, TimeoutError):
            raise self.unreachable(
                f"{prefix}no connection within {CONNECT_S:.0f} s",
                "is the address right, and does a firewall block it?",
            ) from last
        hint = "check the proxy, or remove it" if proxy else _CHECK_SERVER
        raise self.unreachable(f"{prefix}{error_reason(last)}", hint) from last

    def _tunnel(self, tcp: socket.socket, proxy: Proxy, deadline: float) -> None:
        target = f"{_bracketed(self.host)}:{self._port}"
        headers = [("Host", target), ("User-Agent", self._user_agent)]
        if proxy.authorization:
            headers.append(("Proxy-Authorization", proxy.authorization))
        try:
            tcp.settimeout(self._left(deadline))
            tcp.sendall(render_request("CONNECT", target, headers))
            # One byte at a time, so that nothing behind the head is read.
            head = read_head(Source(lambda count: tcp.recv(1)))
        except (OSError, InvalidResponse, ConnectionClosed) as error:
            raise self.unreachable(
                f"its proxy did not answer: {error_reason(error)}", "check the proxy"
            ) from error
        if head.status != 200:
            raise self.unreachable(
                f"the proxy answered {head.status} {head.reason[:200]}".rstrip(),
                "is the server running, and may the proxy lead there?",
            )

    def _start_tls(self, tcp: socket.socket, deadline: float) -> socket.socket:
        import ssl  # late: it costs as much as half of the interpreter's start

        context = self._tls_context()
        name = self._access.tls_server_name or self.host
        tcp.settimeout(self._left(deadline))
        try:
            # As bytes, for the same reason as above.
            return context.wrap_socket(tcp, server_hostname=name.encode("ascii"))
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(messages.certificate_error(self._access, error.verify_message)) from error
        except (ssl.SSLError, OSError, ValueError) as error:
            if alert := certificate_alert(error):
                raise Unauthorized(
                    messages.client_certificate_rejected(self._access, alert), status=401
                ) from error
            raise self.unreachable(
                f"no TLS there ({error_reason(error)})",
                "is the port right, and does an API server listen on it?",
            ) from error

    def _tls_context(self) -> ssl.SSLContext:
        with self._lock:
            if self._context is None:
                self._context = self._new_tls_context()
            return self._context

    def _new_tls_context(self) -> ssl.SSLContext:
        import ssl

        from windrow.plugin.http.tls import CannotStoreKey, new_context

        access, process = self._access, self._process
        try:
            return new_context(
                ca=access.ca,
                insecure=access.insecure,
                certificate=access.certificate,
                key=access.key,
                env=process.env,
                folders=self._folders,
                name=lambda: f"windrow-{process.rng.name_suffix(10)}",
            )
        except CannotStoreKey as error:
            raise self.unreachable(
                f"its client key cannot be handed to OpenSSL: {error}",
                "use a kubeconfig with a token, or give the machine store a directory that can be written",
            ) from error
        except (ssl.SSLError, ValueError, TypeError) as error:
            raise self.unreachable(
                f"its certificates cannot be used ({error_reason(error)})",
                "copy certificate-authority-data, client-certificate-data and client-key-data again, whole",
            ) from error

    def _left(self, deadline: float) -> float:
        """Never nothing: a time-out of 0 would mean not to wait at all."""
        return max(deadline - self._process.monotonic(), 0.1)


def error_reason(error: BaseException) -> str:
    """The operating system's or OpenSSL's reason as text."""
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


def certificate_alert(error: BaseException) -> str:
    """The server's TLS alert about the client certificate, or ""."""
    # With TLS 1.3 it comes after the request was written, but before the server read it.
    reason = str(getattr(error, "reason", "") or "")
    return error_reason(error) if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason) else ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _has_no_pending_input(used: socket.socket) -> bool:
    """Whether an idle connection is as we left it: a server that spoke unasked has closed it, or is about to."""
    import select

    poller = select.poll()
    poller.register(used, select.POLLIN)
    return not poller.poll(0)


def _enable_keepalive(made: socket.socket) -> None:
    """TCP keepalive: a peer that lost power is noticed within a minute, so a watch may be silent for longer."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
