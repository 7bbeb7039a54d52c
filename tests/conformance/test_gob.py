"""Go's encoding/gob and net/rpc, in a program of the standard library alone, as host and as plugin against ours."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conformance.gob_values import TYPES, random_value, render_value
from tests.wire.malformed import drop, flip, overwrite, renumber, repeat

from windrow.protocols.dockermachine import (
    DEFAULT_LIMITS,
    FLAGS,
    LEGACY_SERVICE,
    METHODS,
    REGISTRY,
    SERVICE,
    Method,
    read_flags,
    read_options,
)
from windrow.protocols.gob import EMPTY, INTERFACE, NOT_YET, STRING, BadGob, Decoder, Encoder, Type, fits
from windrow.protocols.netrpc import Call, Client, Response, Server, ill_formed, no_method, no_service

pytestmark = pytest.mark.go

# Values per kind: `make test` sends some, `make test-long` many.
each_count = pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
ROUNDS = 200
PROGRAM = Path(__file__).parent / "gobrpc"
PATIENCE_S = 60


@pytest.fixture(scope="session")
def gobrpc(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Go program, built here: it needs no module but Go's own, so this takes seconds and no network."""
    if shutil.which("go") is None:
        pytest.skip("no Go here; install Go 1.21 or later (go.dev)")
    program = tmp_path_factory.mktemp("gobrpc") / "gobrpc"
    alone = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
    }
    subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."],
        cwd=PROGRAM,
        env=alone,
        check=True,
    )
    return str(program)


# --- streams --------------------------------------------------------------------------------------------------------


def decoded(stream: bytes) -> Iterator[Any]:
    decoder = Decoder(DEFAULT_LIMITS)
    decoder.feed(stream)
    while (value := decoder.next()) is not NOT_YET:
        yield value
    assert decoder.idle


@each_count
@pytest.mark.parametrize("kind", TYPES)
def test_what_go_writes_is_read_as_the_same_and_written_as_the_same_bytes(
    gobrpc: str, tmp_path: Path, kind: str, count: int
) -> None:
    told = tmp_path / "told"
    run = subprocess.run([gobrpc, "write", kind, "1", str(count), str(told)], capture_output=True, check=True)

    values = list(decoded(run.stdout))

    assert [render_value(kind, value) for value in values] == told.read_text().splitlines()
    assert len(values) == count
    assert kind != "flags" or min(kinds_of(values).values()) >= count
    if kind != "options":  # a Go map of several is sent in random order
        encoder = Encoder(REGISTRY)
        assert b"".join(encoder.encode(TYPES[kind], value) for value in values) == run.stdout


@each_count
@pytest.mark.parametrize("kind", TYPES)
def test_what_is_written_here_is_read_by_go_as_the_same(gobrpc: str, kind: str, count: int) -> None:
    random = Random(1)
    values = [random_value(random, kind) for _ in range(count)]
    assert kind != "flags" or min(kinds_of(values).values()) >= count
    encoder = Encoder(REGISTRY)
    stream = b"".join(encoder.encode(TYPES[kind], value) for value in values)

    run = subprocess.run([gobrpc, "read", kind], input=stream, capture_output=True, check=True)

    assert run.stdout.decode().splitlines() == [render_value(kind, value) for value in values]


@pytest.mark.parametrize("kind", TYPES)
def test_what_is_read_from_a_broken_stream_is_what_go_reads_or_go_refuses_it(gobrpc: str, kind: str) -> None:
    """Go is asked only about what is read here: on a broken count of a map, its decoder takes all memory."""
    random = Random(4)
    whole = [Encoder(REGISTRY).encode(TYPES[kind], random_value(random, kind)) for _ in range(200)]
    broken = [
        random.choice((flip, overwrite, renumber, repeat, drop))(random, random.choice(whole))
        for _ in range(6000)
    ]
    read = {data: value for data in broken if (value := first_value(data, TYPES[kind])) is not None}
    streams = "".join(f"{data.hex()}\n" for data in read)

    run = subprocess.run([gobrpc, "judge", kind], input=streams, capture_output=True, check=True, text=True)

    answers = run.stdout.splitlines()
    agreed = 0
    for value, answer in zip(read.values(), answers, strict=True):
        agreed += answer == render_value(kind, value)
        assert answer.startswith("! ") or answer == render_value(kind, value)
    assert agreed > 50


def first_value(stream: bytes, type: Type) -> Any:
    """None where it is none of the type."""
    decoder = Decoder(DEFAULT_LIMITS)
    decoder.feed(stream)
    try:
        value = decoder.next()
        if value is NOT_YET or not fits(type, value):
            return None
        if type == FLAGS:
            read_flags(value)
        if type == INTERFACE:
            read_options(value)
    except BadGob:
        return None
    return value


def kinds_of(values: list[Any]) -> Counter[str]:
    return Counter(flag.kind for value in values for flag in read_flags(value))


# --- our host, Go's plugin ------------------------------------------------------------------------------------------


class Caller:
    """Our client on a blocking socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.client = Client(DEFAULT_LIMITS)
        self.answered: dict[int, Response] = {}

    def send(self, method: str, value: Any = None, service: str = SERVICE) -> int:
        types = METHODS.get(method, Method(EMPTY, EMPTY))
        seq = self.client.call(f"{service}.{method}", types.argument, {} if value is None else value)
        self.connection.sendall(self.client.data_to_send())
        return seq

    def answer(self, seq: int) -> Response:
        while seq not in self.answered:
            self._receive()
        return self.answered.pop(seq)

    def ask(self, method: str, value: Any = None, service: str = SERVICE) -> Any:
        answer = self.answer(self.send(method, value, service))
        assert answer.error == ""
        return answer.value

    def _receive(self) -> None:
        data = self.connection.recv(1 << 16)
        assert data, "the plugin hung up"
        self.answered |= {answer.seq: answer for answer in self.client.feed(data)}
        self.connection.sendall(self.client.data_to_send())


@contextmanager
def go_plugin(gobrpc: str) -> Iterator[tuple[str, int]]:
    """Its address."""
    process = subprocess.Popen([gobrpc, "plugin", "1"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().rpartition(":")
        yield host, int(port)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def caller(gobrpc: str) -> Iterator[Caller]:
    with go_plugin(gobrpc) as address, socket.create_connection(address, timeout=PATIENCE_S) as connection:
        yield Caller(connection)


def test_a_go_plugin_understands_our_host_and_is_understood(caller: Caller) -> None:
    random = Random(2)
    assert caller.ask("GetVersion") == 1
    assert caller.ask("GetVersion", service=LEGACY_SERVICE) == 1
    for _ in range(ROUNDS):
        config = random_value(random, "bytes")
        text = config.decode("utf-8", "surrogateescape")
        caller.ask("SetConfigRaw", config)
        assert caller.ask("GetConfigRaw") == config
        assert caller.ask("GetMachineName") == text
        if text:
            assert caller.answer(caller.send("GetIP")).error == text

        options = random_value(random, "options")
        caller.ask("SetConfigFromFlags", options)
        assert caller.ask("LastValue", service="Recorder") == render_value("options", options)

        flags = caller.ask("GetCreateFlags")
        assert caller.ask("LastValue", service="Recorder") == render_value("flags", flags)

        number = random_value(random, "int")
        caller.ask("SetConfigRaw", str(number).encode())
        assert caller.ask("GetSSHPort") == number


def test_an_answer_may_come_before_that_of_an_earlier_call(caller: Caller) -> None:
    """Create of Go's plugin waits for a heartbeat."""
    create = caller.send("Create")
    caller.ask("GetVersion")
    assert create not in caller.answered

    while create not in caller.answered:
        caller.ask("Heartbeat")

    assert caller.answer(create).error == ""


def test_a_go_plugin_refuses_in_the_words_that_we_use(caller: Caller) -> None:
    assert caller.answer(caller.send("Upgrade")).error == no_method(f"{SERVICE}.Upgrade")
    assert caller.answer(caller.send("GetVersion", service="Other")).error == no_service("Other.GetVersion")
    client = caller.client
    seq = client.call("Upgrade", EMPTY, {})
    caller.connection.sendall(client.data_to_send())
    assert caller.answer(seq).error == ill_formed("Upgrade")


def test_another_method_is_refused_as_go_refuses_it(gobrpc: str) -> None:
    request = b"GET /_goRPC_ HTTP/1.0\r\n\r\n"
    with go_plugin(gobrpc) as address, socket.create_connection(address, timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        theirs = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    server = Server(DEFAULT_LIMITS)
    server.feed(request)
    ours = server.data_to_send()

    assert ours.partition(b"\r\n\r\n")[2] == theirs.partition(b"\r\n\r\n")[2]
    assert ours.split(b" ")[1] == theirs.split(b" ")[1] == b"405"


# --- Go's host, our plugin ------------------------------------------------------------------------------------------


class Plugin:
    """A driver that answers with what it was given last, and now and then answers later calls first."""

    def __init__(self) -> None:
        self.random = Random(3)
        self.config = b""
        self.told = ""

    def serve(self, connection: socket.socket) -> Counter[str]:
        """Until the host hangs up; counts what was called."""
        server = Server(DEFAULT_LIMITS)
        called: Counter[str] = Counter()
        while data := connection.recv(1 << 16):
            calls = server.feed(data)
            self.random.shuffle(calls)
            for call in calls:
                called[call.method] += 1
                self._answer(server, call)
            connection.sendall(server.data_to_send())
        return called

    def _answer(self, server: Server, call: Call) -> None:
        service, dot, name = call.method.rpartition(".")
        text = self.config.decode("utf-8", "surrogateescape")
        if not dot:
            server.respond_error(call, ill_formed(call.method))
        elif service == "Recorder":
            server.respond(call, STRING, self.told)
        elif service != SERVICE:
            server.respond_error(call, no_service(call.method))
        elif name not in METHODS:
            server.respond_error(call, no_method(call.method))
        elif name == "GetIP":
            server.respond_error(call, text)
        else:
            reply = self._replies().get(name, lambda _: {})(call.argument)
            server.respond(call, METHODS[name].reply, reply)

    def _replies(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "GetVersion": lambda _: 1,
            "SetConfigRaw": self._set_config,
            "GetConfigRaw": lambda _: self.config,
            "GetMachineName": lambda _: self.config.decode("utf-8", "surrogateescape"),
            "GetSSHPort": lambda _: int(self.config),
            "SetConfigFromFlags": self._set_options,
            "GetCreateFlags": self._flags,
        }

    def _set_config(self, config: bytes) -> dict[str, Any]:
        self.config = config
        return {}

    def _set_options(self, options: Any) -> dict[str, Any]:
        self.told = render_value("options", options)
        return {}

    def _flags(self, _: Any) -> Any:
        flags = random_value(self.random, "flags")
        self.told = render_value("flags", flags)
        return flags


def test_a_go_host_understands_our_plugin_and_is_understood(gobrpc: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        host = subprocess.Popen(
            [gobrpc, "host", address, "1", str(ROUNDS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                called = Plugin().serve(connection)
            out, _ = host.communicate(timeout=PATIENCE_S)
        finally:
            host.kill()
            host.wait()

    assert (host.returncode, out) == (0, "")
    assert called["RPCServerDriver.SetConfigFromFlags"] == ROUNDS
    assert called["RPCServerDriver.GetSSHPort"] == ROUNDS * 10
