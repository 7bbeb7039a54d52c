"""Acceptor: accepts the connections of a server within its limits, and gives each a protocol (asyncio.Protocol).

Any client that reaches the port can open connections, so what one can hold is bounded in time: a TLS handshake, and
the head of the first request. How many there may be, and which give way, is in `core.connections`. Without a file
descriptor for a new connection an idle one is closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from windrow.core.connections import Connection, ConnectionLimits

_log = logging.getLogger(__name__)

CLOSE_WITHIN_S = 2.0
ACCEPT_RETRY_S = 0.1


async def open_sockets(host: str | None, port: int, *, share_port: bool = False) -> list[socket.socket]:
    """Listening sockets of every address of `host` (None: any address), all on one port; 0 lets the system choose it.
    Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            chosen = (address[0], made[0].getsockname()[1] if made else port, *address[2:])
            try:
                made.append(socket.create_server(chosen, family=family, backlog=1024, reuse_port=share_port))
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:  # a machine without IPv6
                    raise
        if not made:
            raise OSError(errno.EADDRNOTAVAIL, "no address to listen on")
        for one in made:
            one.setblocking(False)
    except BaseException:
        for one in made:
            one.close()
        raise
    return made


class Acceptor:
    """Accepts on `sockets` while started. Protocols tell it of their end by `on_lost`."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make_protocol: Callable[[], Any],
        limits: ConnectionLimits,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        handshake_timeout_s: float | None = None,
        head_timeout_s: float,
    ) -> None:
        self._sockets, self._make_protocol, self._limits, self._tls = sockets, make_protocol, limits, tls
        self._handshake_timeout_s, self._head_timeout_s = handshake_timeout_s, head_timeout_s
        self._connections: dict[Any, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        for listening in self._sockets:
            self._start(self._accept(listening))

    async def stop(self) -> None:
        """Accept no more. Connections stay open."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for listening in self._sockets:
            listening.close()

    def set_used(self, protocol: Any) -> None:
        """A request begins: the time-out for the head of the first one has been kept."""
        if (connection := self._connections.get(protocol)) is not None:
            connection.used = True

    def set_busy(self, protocol: Any, busy: bool) -> None:
        """A request is under way, so that the connection gives way to no other; or has ended."""
        if (connection := self._connections.get(protocol)) is not None:
            self._limits.set_busy(connection, busy)

    def on_lost(self, protocol: Any) -> None:
        """The protocol's connection has ended. May be repeated."""
        if (connection := self._connections.pop(protocol, None)) is not None:
            self._limits.remove(connection)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:  # no file descriptor is left, or the client has gone away already
                if self._limits.close_idle():
                    await asyncio.sleep(0)  # the loop closes its descriptor
                else:
                    port = listening.getsockname()[1]
                    _log.warning("a connection to port %d could not be accepted: %s", port, error)
                    await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            self._start(self._open(accepted, str(peer[0])))

    async def _open(self, accepted: socket.socket, address: str) -> None:
        """The TLS handshake of a connection, which is idle meanwhile; then its protocol has it."""
        task = asyncio.current_task()
        assert task is not None
        connection = self._limits.admit(address, task.cancel)
        if connection is None:
            accepted.close()
            return
        loop, tls = asyncio.get_running_loop(), self._tls()
        transport: asyncio.Transport | None = None
        protocol: Any = None

        def make_protocol() -> Any:
            nonlocal protocol
            protocol = self._make_protocol()
            self._connections[protocol] = connection
            return protocol

        try:
            transport, _ = await loop.connect_accepted_socket(
                make_protocol,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=self._handshake_timeout_s if tls else None,
                ssl_shutdown_timeout=CLOSE_WITHIN_S if tls else None,
            )
        except OSError:  # of TLS, a time-out, or the client has gone away
            pass
        finally:
            if transport is None:
                self._connections.pop(protocol, None)
                self._limits.remove(connection)
        if transport is not None and protocol in self._connections:
            connection.close = transport.abort  # at once: a close of TLS waits for the client's
            loop.call_later(self._head_timeout_s, self._close_unused, protocol)

    def _close_unused(self, protocol: Any) -> None:
        """Close a connection of which no request has arrived since it was opened."""
        connection = self._connections.get(protocol)
        if connection is not None and not connection.used:
            connection.close()
