"""A docker-machine plugin in a few lines, for drivers that exist only in tests: the sans-I/O server on threads."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from windrow.protocols import dockermachine as wire
from windrow.protocols.netrpc import Call, Server, no_method, no_service


class Refusal(Exception):
    """The call's answer is this error."""


Handlers = Mapping[str, Callable[[Any], Any]]


def listen() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    return listener


def serve(
    handlers: Handlers, *, service: str = wire.SERVICE, silence: float = wire.HEARTBEAT_TIMEOUT_S
) -> None:
    """Answer one host until it says Close, hangs up or falls silent."""
    _Plugin(handlers, service, silence).run(listen())


class _Plugin:
    def __init__(self, handlers: Handlers, service: str, silence: float) -> None:
        self._handlers = {"GetVersion": lambda _: wire.API_VERSION, "Heartbeat": self._beat, **handlers}
        self._service, self._silence = service, silence
        self._beaten = time.monotonic()
        self._lock = threading.Lock()
        self._server = Server(wire.DEFAULT_LIMITS)

    def run(self, listener: socket.socket) -> None:
        threading.Thread(target=self._watch, daemon=True).start()
        connection, _ = listener.accept()
        while data := connection.recv(65536):
            with self._lock:
                calls = self._server.feed(data)
                connection.sendall(self._server.data_to_send())
            for call in calls:
                threading.Thread(target=self._answer, args=(connection, call), daemon=True).start()
        os._exit(0)

    def _watch(self) -> None:
        while time.monotonic() < self._beaten + self._silence:
            time.sleep(0.1)
        os._exit(1)

    def _beat(self, _: Any) -> None:
        self._beaten = time.monotonic()

    def _answer(self, connection: socket.socket, call: Call) -> None:
        service, _, method = call.method.partition(".")
        try:
            if service != self._service:
                raise Refusal(no_service(call.method))
            if method == "Close" and method not in self._handlers:
                os._exit(0)
            if method not in self._handlers:
                raise Refusal(no_method(call.method))
            value = self._handlers[method](call.argument)
        except Refusal as refusal:
            with self._lock:
                self._server.respond_error(call, str(refusal))
                connection.sendall(self._server.data_to_send())
            return
        with self._lock:
            self._server.respond(call, wire.METHODS[method].reply, {} if value is None else value)
            connection.sendall(self._server.data_to_send())
