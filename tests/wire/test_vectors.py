"""Every byte that Go wrote is read as what it meant, and what it meant is written as those bytes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.wire.vectors import VECTORS, expected, names, needs_vectors, stream

from windrow.protocols import dockermachine, netrpc
from windrow.protocols.dockermachine import DEFAULT_LIMITS, REGISTRY
from windrow.protocols.gob import (
    BOOL,
    BYTES,
    EMPTY,
    FLOAT,
    INT,
    INTERFACE,
    NOT_YET,
    STRING,
    UINT,
    Decoder,
    Encoder,
    MapOf,
    Slice,
    Struct,
    Type,
)

pytestmark = needs_vectors

INNER = Struct("Inner", (("X", INT), ("Y", INT)))
OUTER = Struct("Outer", (("P", INNER), ("Q", INNER), ("R", Slice(INNER, "[]main.Inner"))))
T = Struct(
    "T",
    (
        ("A", INT),
        ("B", STRING),
        ("C", BOOL),
        ("D", UINT),
        ("E", BYTES),
        ("F", Slice(STRING, "[]string")),
        ("G", MapOf(STRING, STRING, "map[string]string")),
        ("H", INTERFACE),
        ("I", FLOAT),
        ("J", INT),
    ),
)

# The first prefix that fits tells the Go type that was encoded.
TYPES: dict[str, Type] = {
    "gob_bool": BOOL,
    "gob_bytes": BYTES,
    "gob_driveropts": INTERFACE,
    "gob_empty_struct": EMPTY,
    "gob_flags": Slice(INTERFACE),
    "gob_float": FLOAT,
    "gob_iface": INTERFACE,
    "gob_int_": INT,
    "gob_interface_slice": Slice(INTERFACE),
    "gob_map_si": MapOf(STRING, INTERFACE),
    "gob_map_ss": MapOf(STRING, STRING),
    "gob_rpc_request": netrpc.REQUEST,
    "gob_rpc_response": netrpc.RESPONSE,
    "gob_string_": STRING,
    "gob_strings": Slice(STRING),
    "gob_struct_nested": OUTER,
    "gob_struct": T,
    "gob_uint": UINT,
}


def decoded(data: bytes, chunk: int) -> list[Any]:
    decoder = Decoder(DEFAULT_LIMITS)
    found = []
    for at in range(0, len(data), chunk):
        decoder.feed(data[at : at + chunk])
        while (value := decoder.next()) is not NOT_YET:
            found.append(value)
    assert decoder.idle
    return found


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", names("gob_", "rpc_", "accepted_"))
def test_a_stream_from_go_is_read_as_what_it_means(name: str, chunk: int) -> None:
    assert decoded(stream(name), chunk) == expected(name)


@pytest.mark.parametrize("name", names("gob_"))
def test_a_value_is_written_as_go_writes_it(name: str) -> None:
    type = next(type for prefix, type in TYPES.items() if name.startswith(prefix))
    encoder = Encoder(REGISTRY)

    assert b"".join(encoder.encode(type, value) for value in expected(name)) == stream(name)


def pairs(name: str) -> list[tuple[dict[str, Any], Any]]:
    values = expected(name)
    return list(zip(values[::2], values[1::2], strict=True))


def method_of(header: dict[str, Any]) -> dockermachine.Method:
    none = dockermachine.Method(EMPTY, EMPTY)
    return dockermachine.METHODS.get(header["ServiceMethod"].partition(".")[2], none)


@pytest.mark.parametrize("name", names("rpc_"))
def test_a_connection_is_written_as_go_writes_it(name: str) -> None:
    sent = sent_by_client(name) if name.endswith("_client") else sent_by_server(name)

    assert b"".join(sent) == stream(name)
    assert sent == [bytes.fromhex(each) for each in VECTORS[name].get("segments", [stream(name).hex()])]


def sent_by_client(name: str) -> list[bytes]:
    client = netrpc.Client(DEFAULT_LIMITS)
    assert client.data_to_send() == stream("http_connect_request")
    client.feed(stream("http_connect_response"))
    sent = []
    for header, argument in pairs(name):
        seq = client.call(header["ServiceMethod"], method_of(header).argument, argument)
        assert seq == header.get("Seq", 0)
        sent.append(client.data_to_send())
    return sent


def sent_by_server(name: str) -> list[bytes]:
    server = netrpc.Server(DEFAULT_LIMITS)
    calls = server.feed(stream("http_connect_request") + stream(name.replace("_server", "_client")))
    assert server.data_to_send() == stream("http_connect_response")
    sent = []
    for call, (header, body) in zip(calls, pairs(name), strict=True):
        assert (call.method, call.seq) == (header["ServiceMethod"], header.get("Seq", 0))
        if "Error" in header:
            server.respond_error(call, header["Error"])
        else:
            server.respond(call, method_of(header).reply, body)
        sent.append(server.data_to_send())
    return sent


@pytest.mark.parametrize(
    "name", [name.removesuffix("_client") for name in names("rpc_") if "_client" in name]
)
def test_a_client_understands_go_s_server(name: str) -> None:
    client = netrpc.Client(DEFAULT_LIMITS)
    for header, argument in pairs(f"{name}_client"):
        client.call(header["ServiceMethod"], method_of(header).argument, argument)

    answers = client.feed(stream("http_connect_response") + stream(f"{name}_server"))

    for answer, (header, body) in zip(answers, pairs(f"{name}_server"), strict=True):
        error = header.get("Error", "")
        assert (answer.method, answer.error) == (header["ServiceMethod"], error)
        assert answer.value == (None if error else body)
