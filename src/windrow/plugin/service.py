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
from windrow.wire.dockermachine import DEFAULT_LIMITS, OLD_SERVICE, SERVICE
from windrow.wire.gob import BadGob, Type
from windrow.wire.netrpc import BadRpc, Call, Server

# More than any host opens or asks at once.
CONNECTIONS = 32
CALLS = 64
BLOCK = 2**16

Answer = tuple[Type, Any]


class CallFailed(Exception):
    """A call's answer is this text."""


# Takes a method as it stands on the wire, and its argument; raises CallFailed, and nothing else.
Handle = Callable[[str, Any], Answer]

HEARTBEATS = frozenset(f"{service}.Heartbeat" for service in (SERVICE, OLD_SERVICE))
CLOSES = frozenset(f"{service}.Close" for service in (SERVICE, OLD_SERVICE))


class Service:
    """Answers calls with `handle`, for as many connections as come."""

    def __init__(self, handle: Handle, lifetime: Lifetime) -> None:
        self._handle, self._lifetime = handle, lifetime
        self._places = BoundedSemaphore(CONNECTIONS)

    def accept(self, listener: socket.socket) -> None:
        """Serve until the listener breaks, each connection in a thread."""
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                if not self._places.acquire(blocking=False):
                    connection.close()
                    continue
                self._lifetime.connected()
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError, BadGob, BadRpc):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _Conversation(connection, self._handle, self._lifetime).run()
        finally:
            self._places.release()
            self._lifetime.disconnected()


class _Conversation:
    def __init__(self, connection: socket.socket, handle: Handle, lifetime: Lifetime) -> None:
        self._connection, self._handle, self._lifetime = connection, handle, lifetime
        self._server = Server(DEFAULT_LIMITS)
        self._state = Lock()  # around `_server`, never held while bytes leave
        self._way_out = Lock()
        self._calls = BoundedSemaphore(CALLS)

    def run(self) -> None:
        """Until the host hangs up. Raises OSError, BadGob, BadRpc."""
        while block := self._connection.recv(BLOCK):
            with self._state:
                calls = self._server.feed(block)
            self._flush()
            for call in calls:
                self._take(call)
            if self._server.closing:
                return

    def _take(self, call: Call) -> None:
        if call.method in HEARTBEATS:
            self._lifetime.heard()
        if not self._calls.acquire(blocking=False):
            self._refuse(call, f"more than {CALLS} calls at once")
            return
        self._lifetime.call_began()
        Thread(target=self._carry_out, args=(call,), daemon=True).start()

    def _carry_out(self, call: Call) -> None:
        try:
            with suppress(OSError):  # the host has hung up
                self._answer(call)
        finally:
            self._lifetime.call_ended()
            self._calls.release()
        if call.method in CLOSES:
            self._lifetime.end()

    def _answer(self, call: Call) -> None:
        try:
            kind, value = self._handle(call.method, call.argument)
        except CallFailed as failed:
            self._refuse(call, str(failed))
            return
        with self._state:
            self._server.answer(call, kind, value)
        self._flush()

    def _refuse(self, call: Call, text: str) -> None:
        with self._state:
            self._server.refuse(call, text)
        self._flush()

    def _flush(self) -> None:
        with self._way_out:
            with self._state:
                ready = self._server.take()
            if ready:
                self._connection.sendall(ready)
