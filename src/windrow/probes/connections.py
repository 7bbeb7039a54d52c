"""The connections to the port: few, quick, and of bounded size, for anybody on the network may open them.

Where one more comes than there may be, the oldest that nobody is answering goes: then a probe gets through, however
many others only hold the line.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from typing import cast

log = logging.getLogger(__name__)

MOST = 64
HANDSHAKE_S = 5.0
# A request has to be there by then, and an answer taken.
IDLE_S = 10.0
LARGEST_REQUEST = 64 * 1024
REST_S = 1.0  # where no connection can be accepted, such as for want of file handles


class Line(asyncio.Protocol):
    """One connection, which ends when nothing comes of it. To be mixed into the protocol that understands requests."""

    idle_s = IDLE_S
    is_answered = False
    is_over = False
    _received = 0
    _line: asyncio.Transport | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Not isinstance: uvloop's transports are of no such class.
        self._line = cast("asyncio.Transport", transport)
        self._await_request()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.is_over = True
        self._stop_timer()
        super().connection_lost(exc)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > LARGEST_REQUEST:
            self.end()
            return
        super().data_received(data)

    def begin_answer(self) -> None:
        self.is_answered = True
        self._stop_timer()

    def finish_answer(self) -> None:
        self.is_answered = False
        self._await_request()

    def end(self) -> None:
        """At once, whatever is under way."""
        if self._line is not None:
            self._line.abort()

    def _await_request(self) -> None:
        self._received = 0
        self._stop_timer()
        if not self.is_over:
            self._timer = asyncio.get_running_loop().call_later(self.idle_s, self.end)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connections:
    """Accepts on `sockets` while its `run` runs."""

    def __init__(
        self,
        new_line: Callable[[], Line],
        sockets: list[socket.socket],
        context: Callable[[], ssl.SSLContext],
        *,
        most: int = MOST,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        self._new_line = new_line
        self._sockets = sockets
        self._context = context
        self._most, self._handshake_s = most, handshake_s
        # In the order in which they came; those whose handshake goes on have their task only.
        self._open: dict[Line, asyncio.Task[None]] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for listening in self._sockets:
                group.create_task(self._accept(listening, group))

    async def _accept(self, listening: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("no connection can be accepted: %s", error)
                await asyncio.sleep(REST_S)
                continue
            line = self._new_line()
            self._make_room()
            self._open[line] = group.create_task(self._greet(accepted, line))

    def _make_room(self) -> None:
        for line in [one for one in self._open if one.is_over]:
            del self._open[line]
        if len(self._open) < self._most:
            return
        idle = next((one for one in self._open if not one.is_answered), next(iter(self._open)))
        self._open.pop(idle).cancel()
        idle.end()

    async def _greet(self, accepted: socket.socket, line: Line) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: line, accepted, ssl=self._context(), ssl_handshake_timeout=self._handshake_s
            )
        except OSError:  # of the network, of TLS, or too slow
            line.is_over = True
        except asyncio.CancelledError:
            line.is_over = True
            accepted.close()
            raise
        except Exception:
            # A fault of ours must not close the port to everybody else.
            log.exception("a connection could not be served")
            line.is_over = True
            accepted.close()


def listen(host: str, port: int, *, share_port: bool = False) -> list[socket.socket]:
    """Sockets at `port` of `host`; of both families where that is the address of every one, as in Go. Raises OSError."""
    found = socket.getaddrinfo(
        None if ip_address(host).is_unspecified else host,
        port,
        type=socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE,
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in found:
            try:
                one = socket.socket(family, kind, protocol)
            except OSError:
                continue  # a family that this machine does not have
            sockets.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if share_port:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(128)
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets
