"""The RPC side of the process: connections and calls become threads, so that heartbeats are answered while Create runs.

Each connection has its own decoder and encoder and one lock for sending; answers leave in the order in which they are
ready. A connection that sends invalid bytes is closed; the others go on.
"""

from __future__ import annotations

from _socket import IPPROTO_TCP, SHUT_RDWR, TCP_NODELAY
from _socket import socket as Socket  # without the module `socket`, which takes 3 ms of the start
from collections.abc import Callable
from contextlib import suppress
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

from windrow.plugin.watchdog import Watchdog
from windrow.protocols.dockermachine import DEFAULT_LIMITS, LEGACY_SERVICE, SERVICE
from windrow.protocols.gob import BadGob, Type
from windrow.protocols.netrpc import BadRpc, Call, Server

# More than any host opens or asks at once.
MAX_CONNECTIONS = 32
MAX_CALLS = 64
IDLE_END_S = 1.0  # a closed connection's thread ends at once
READ_SIZE = 2**16
ACCEPT_RETRY_DELAY_S = 0.1

MethodResult = tuple[Type, Any]


class CallFailed(Exception):
    """A call's answer is this text."""


# Called with the method's name on the wire and its argument; raises CallFailed, and nothing else.
Handle = Callable[[str, Any], MethodResult]

HEARTBEATS = frozenset(f"{service}.Heartbeat" for service in (SERVICE, LEGACY_SERVICE))
CLOSES = frozenset(f"{service}.Close" for service in (SERVICE, LEGACY_SERVICE))


class RpcServer:
    """Answers calls with `handle`, for as many connections as come."""

    def __init__(self, handle: Handle, watchdog: Watchdog, sleep: Callable[[float], object]) -> None:
        self._handle, self._watchdog, self._sleep = handle, watchdog, sleep
        self._slots = BoundedSemaphore(MAX_CONNECTIONS)
        self._sessions: dict[_RpcSession, None] = {}  # the oldest first
        self._sessions_lock = Lock()

    def accept(self, listener: Socket) -> None:
        """Serve until the listener breaks, each connection in a thread."""
        while True:
            try:
                descriptor, _ = listener._accept()  # type: ignore[attr-defined]
            except OSError:
                if listener.fileno() < 0:
                    return
                self._sleep(ACCEPT_RETRY_DELAY_S)  # out of descriptors, most likely; some connection will end
                continue
            connection = Socket(fileno=descriptor)
            if not self._slots.acquire(blocking=False) and not self._take_slot_of_idle():
                connection.close()
                continue
            if not _in_thread(self._serve, connection):
                connection.close()
                self._slots.release()

    def _take_slot_of_idle(self) -> bool:
        """Close the oldest connection that has made no call, so that idle ones shut out no host; False for none."""
        with self._sessions_lock:
            idle = next((session for session in self._sessions if not session.is_host), None)
            if idle is None:
                return False
            del self._sessions[idle]
        idle.close()
        return self._slots.acquire(timeout=IDLE_END_S)

    def _serve(self, connection: Socket) -> None:
        session = _RpcSession(connection, self._handle, self._watchdog)
        with self._sessions_lock:
            self._sessions[session] = None
        try:
            with suppress(OSError, BadGob, BadRpc):
                connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
                session.run()
        finally:
            with suppress(OSError):
                connection.close()
            session.end()
            with self._sessions_lock:
                self._sessions.pop(session, None)
            self._slots.release()


class _RpcSession:
    def __init__(self, connection: Socket, handle: Handle, watchdog: Watchdog) -> None:
        self._connection, self._handle, self._watchdog = connection, handle, watchdog
        self._server = Server(DEFAULT_LIMITS)
        self._state_lock = Lock()  # around `_server`, never held while bytes leave
        self._send_lock = Lock()
        self._call_slots = BoundedSemaphore(MAX_CALLS)
        # A connection without a call is no host's, and must not count as a host that has left.
        self.is_host = False

    def run(self) -> None:
        """Until the host closes the connection. Raises OSError, BadGob, BadRpc."""
        while block := self._connection.recv(READ_SIZE):
            with self._state_lock:
                calls = self._server.feed(block)
            self._flush()
            if calls and not self.is_host:
                self.is_host = True
                self._watchdog.connected()
            for call in calls:
                self._start_call(call)
            if self._server.closing:
                return

    def close(self) -> None:
        """End `run`, from another thread."""
        with suppress(OSError):
            self._connection.shutdown(SHUT_RDWR)

    def end(self) -> None:
        """The connection is closed."""
        if self.is_host:
            self._watchdog.disconnected()

    def _start_call(self, call: Call) -> None:
        if call.method in HEARTBEATS:
            self._watchdog.heartbeat()
        if not self._call_slots.acquire(blocking=False):
            self._refuse(call, f"more than {MAX_CALLS} calls at once")
            return
        self._watchdog.call_started()
        if not _in_thread(self._run_call, call):
            self._finish_call()
            self._refuse(call, "the plugin may not start another thread")

    def _finish_call(self) -> None:
        self._watchdog.call_ended()
        self._call_slots.release()

    def _run_call(self, call: Call) -> None:
        try:
            with suppress(OSError):  # the host has closed the connection
                self._answer(call)
        finally:
            self._finish_call()
        if call.method in CLOSES:
            self._watchdog.stop()

    def _answer(self, call: Call) -> None:
        try:
            kind, value = self._handle(call.method, call.argument)
            with self._state_lock:
                self._server.respond(call, kind, value)
        except (CallFailed, BadGob) as failed:
            self._refuse(call, str(failed))
        else:
            self._flush()

    def _refuse(self, call: Call, text: str) -> None:
        with self._state_lock:
            self._server.respond_error(call, text)
        self._flush()

    def _flush(self) -> None:
        with self._send_lock:
            with self._state_lock:
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
