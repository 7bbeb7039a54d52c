"""The RPC side of the process: connections and calls become threads, so that heartbeats are answered while Create runs.

Each connection has a decoder and an encoder of its own and one lock on the way out; answers leave in the order in which
they are ready. A connection that sends nonsense is closed; the others do not notice.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

from windrow.plugin.lifetime import Lifetime
from windrow.protocols.dockermachine import DEFAULT_LIMITS, LEGACY_SERVICE, SERVICE
from windrow.protocols.gob import BadGob, Type
from windrow.protocols.netrpc import BadRpc, Call, Server

# More than any host opens or asks at once.
CONNECTIONS = 32
CALLS = 64
BLOCK = 2**16
ACCEPT_PAUSE_S = 0.1

Answer = tuple[Type, Any]


class CallFailed(Exception):
    """A call's answer is this text."""


# Takes a method as it stands on the wire, and its argument; raises CallFailed, and nothing else.
Handle = Callable[[str, Any], Answer]

HEARTBEATS = frozenset(f"{service}.Heartbeat" for service in (SERVICE, LEGACY_SERVICE))
CLOSES = frozenset(f"{service}.Close" for service in (SERVICE, LEGACY_SERVICE))


class Service:
    """Answers calls with `handle`, for as many connections as come."""

    def __init__(self, handle: Handle, lifetime: Lifetime, pause: Callable[[float], object]) -> None:
        self._handle, self._lifetime, self._pause = handle, lifetime, pause
        self._places = BoundedSemaphore(CONNECTIONS)

    def accept(self, listener: socket.socket) -> None:
        """Serve until the listener breaks, each connection in a thread."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if listener.fileno() < 0:
                    return
                self._pause(ACCEPT_PAUSE_S)  # out of descriptors, most likely; some connection will end
                continue
            if not self._places.acquire(blocking=False):
                connection.close()
                continue
            if not _in_thread(self._serve, connection):
                connection.close()
                self._places.release()

    def _serve(self, connection: socket.socket) -> None:
        conversation = _Conversation(connection, self._handle, self._lifetime)
        try:
            with connection, suppress(OSError, BadGob, BadRpc):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                conversation.run()
        finally:
            conversation.end()
            self._places.release()


class _Conversation:
    def __init__(self, connection: socket.socket, handle: Handle, lifetime: Lifetime) -> None:
        self._connection, self._handle, self._lifetime = connection, handle, lifetime
        self._server = Server(DEFAULT_LIMITS)
        self._state = Lock()  # around `_server`, never held while bytes leave
        self._way_out = Lock()
        self._calls = BoundedSemaphore(CALLS)
        # Whoever only knocks at the port is no host, and must not count as one that has left.
        self._is_host = False

    def run(self) -> None:
        """Until the host hangs up. Raises OSError, BadGob, BadRpc."""
        while block := self._connection.recv(BLOCK):
            with self._state:
                calls = self._server.feed(block)
            self._flush()
            if calls and not self._is_host:
                self._is_host = True
                self._lifetime.connected()
            for call in calls:
                self._take(call)
            if self._server.closing:
                return

    def end(self) -> None:
        """The connection is closed."""
        if self._is_host:
            self._lifetime.disconnected()

    def _take(self, call: Call) -> None:
        if call.method in HEARTBEATS:
            self._lifetime.heard()
        if not self._calls.acquire(blocking=False):
            self._refuse(call, f"more than {CALLS} calls at once")
            return
        self._lifetime.call_began()
        if not _in_thread(self._carry_out, call):
            self._let_go()
            self._refuse(call, "the plugin may not start another thread")

    def _let_go(self) -> None:
        self._lifetime.call_ended()
        self._calls.release()

    def _carry_out(self, call: Call) -> None:
        try:
            with suppress(OSError):  # the host has hung up
                self._answer(call)
        finally:
            self._let_go()
        if call.method in CLOSES:
            self._lifetime.end()

    def _answer(self, call: Call) -> None:
        try:
            kind, value = self._handle(call.method, call.argument)
            with self._state:
                self._server.respond(call, kind, value)
        except (CallFailed, BadGob) as failed:
            self._refuse(call, str(failed))
        else:
            self._flush()

    def _refuse(self, call: Call, text: str) -> None:
        with self._state:
            self._server.respond_error(call, text)
        self._flush()

    def _flush(self) -> None:
        with self._way_out:
            with self._state:
                ready = self._server.data_to_send()
            if ready:
                self._connection.sendall(ready)


def _in_thread(work: Callable[[Any], None], argument: Any) -> bool:
    """Whether a thread could be started; a limit of the system may forbid it."""
    try:
        Thread(target=work, args=(argument,), daemon=True).start()
    except RuntimeError:
        return False
    return True
