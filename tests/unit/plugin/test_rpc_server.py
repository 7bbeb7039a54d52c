"""The RPC side over real sockets, with an answer for each call that the test chooses."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest

from windrow.plugin import rpc_server
from windrow.plugin.rpc_server import CallFailed, RpcServer
from windrow.plugin.watchdog import Watchdog
from windrow.protocols import dockermachine as wire
from windrow.protocols.netrpc import Client, Response


class Line:
    """A connection as a host has one, without threads."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._client = Client(wire.DEFAULT_LIMITS)
        self._send()
        assert self._hear() == []

    def ask(self, method: str) -> int:
        number = self._client.call(f"{wire.SERVICE}.{method}", wire.EMPTY, {})
        self._send()
        return number

    def answers(self, count: int = 1) -> list[Response]:
        heard: list[Response] = []
        while len(heard) < count:
            heard += self._hear()
        return heard

    def _send(self) -> None:
        self.socket.sendall(self._client.data_to_send())

    def _hear(self) -> list[Response]:
        block = self.socket.recv(65536)
        if not block:
            raise EOFError
        return self._client.feed(block)


@pytest.fixture
def lifetime() -> Watchdog:
    return Watchdog(lambda: 0.0, 0.0, 10.0)


@pytest.fixture
def dial(lifetime: Watchdog) -> Iterator[Callable[[rpc_server.Handle], Line]]:
    listeners = []

    def dial(handle: rpc_server.Handle) -> Line:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        Thread(
            target=RpcServer(handle, lifetime, lambda s: None).accept, args=(listener,), daemon=True
        ).start()
        return Line(listener.getsockname()[1])

    yield dial
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


Dial = Callable[[rpc_server.Handle], Line]


def test_a_call_that_takes_long_holds_up_no_other(dial: Dial):
    done = Event()

    def handle(method: str, argument: Any) -> rpc_server.MethodResult:
        if method.endswith("Create"):
            assert done.wait(5)
        return wire.EMPTY, {}

    line = dial(handle)
    creating = line.ask("Create")
    beating = line.ask("Heartbeat")
    assert [answer.seq for answer in line.answers()] == [beating]
    done.set()
    assert [answer.seq for answer in line.answers()] == [creating]


def test_many_answers_at_once_stay_whole(dial: Dial):
    line = dial(lambda method, argument: (wire.STRING, method * 1000))
    wanted = {line.ask("DriverName") for _ in range(60)}

    answers = line.answers(60)

    assert {answer.seq for answer in answers} == wanted
    assert {answer.value for answer in answers} == {"RPCServerDriver.DriverName" * 1000}


def test_more_calls_than_any_host_makes_are_refused_and_the_rest_goes_on(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rpc_server, "MAX_CALLS", 2)
    done = Event()

    def handle(method: str, argument: Any) -> rpc_server.MethodResult:
        assert done.wait(5)
        return wire.EMPTY, {}

    line = dial(handle)
    first, second, third = (line.ask("GetState") for _ in range(3))
    (refused,) = line.answers()
    assert (refused.seq, refused.error) == (third, "more than 2 calls at once")
    done.set()
    assert {answer.seq for answer in line.answers(2)} == {first, second}


def test_a_failure_and_an_answer_of_the_wrong_type_are_told(dial: Dial):
    def handle(method: str, argument: Any) -> rpc_server.MethodResult:
        if method.endswith("GetIP"):
            raise CallFailed("Host is not running")
        return wire.INT, "no number"

    line = dial(handle)
    line.ask("GetIP")
    assert line.answers()[0].error == "Host is not running"
    line.ask("GetState")
    assert line.answers()[0].error
    line.ask("GetIP")
    assert line.answers()[0].error == "Host is not running"


def test_close_is_answered_before_the_end(dial: Dial, lifetime: Watchdog):
    line = dial(lambda method, argument: (wire.EMPTY, {}))
    line.ask("Close")

    assert lifetime.wait() == 0
    assert line.answers()[0].error == ""


def test_no_more_connections_are_served_than_any_host_opens(dial: Dial, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rpc_server, "MAX_CONNECTIONS", 1)
    line = dial(lambda method, argument: (wire.EMPTY, {}))
    port = line.socket.getpeername()[1]
    line.ask("GetVersion")
    assert line.answers()

    with pytest.raises((EOFError, ConnectionError)):
        Line(port)
    line.ask("GetVersion")
    assert line.answers()


def test_connections_without_a_call_shut_out_no_host(dial: Dial):
    line = dial(lambda method, argument: (wire.EMPTY, {}))
    line.ask("GetVersion")
    assert line.answers()
    address = line.socket.getpeername()
    idle = [socket.create_connection(address, timeout=5) for _ in range(200)]

    for host in (Line(address[1]), Line(address[1]), line):
        host.ask("GetVersion")
        assert host.answers()
    for each in idle:
        each.close()


@pytest.mark.parametrize("noise", [b"\xff" * 64, b"\x00" * 64, b"\x01\x02\x03"])
def test_a_connection_that_talks_nonsense_is_closed(dial: Dial, noise: bytes):
    line = dial(lambda method, argument: (wire.EMPTY, {}))
    line.socket.sendall(noise)
    line.socket.shutdown(socket.SHUT_WR)

    assert line.socket.recv(100) == b""
