"""net/rpc's rules: the greeting, the pairing of calls and answers, and what ends a connection."""

from __future__ import annotations

import pytest

from windrow.protocols.gob import BYTES, EMPTY, INT, STRING, BadGob, Encoder, Limits, Struct
from windrow.protocols.netrpc import (
    CONNECT_REQUEST,
    CONNECTED,
    REQUEST,
    RESPONSE,
    BadRpc,
    Client,
    Server,
    ill_formed,
    no_method,
    no_service,
)

LIMITS = Limits(size=1 << 16, elements=1000, depth=10, types=10)


def connected() -> tuple[Client, Server]:
    client, server = Client(LIMITS), Server(LIMITS)
    assert server.feed(client.data_to_send()) == []
    assert client.feed(server.data_to_send()) == []
    return client, server


# --- the greeting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "greeting",
    [
        CONNECT_REQUEST,
        CONNECT_REQUEST.replace(b"\n", b"\r\n"),
        b"CONNECT /_goRPC_ HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n",
        b"CONNECT /_goRPC_ HTTP/1.0\nHost: localhost\r\n\n",
    ],
)
@pytest.mark.parametrize("chunk", [1, 1000])
def test_a_greeting_is_accepted_with_either_end_of_line(greeting: bytes, chunk: int) -> None:
    server = Server(LIMITS)
    for at in range(0, len(greeting), chunk):
        assert server.data_to_send() == b""
        assert server.feed(greeting[at : at + chunk]) == []

    assert server.data_to_send() == CONNECTED
    assert not server.closing


@pytest.mark.parametrize(
    ("greeting", "status", "body"),
    [
        (b"GET /_goRPC_ HTTP/1.0\r\n\r\n", b"405 Method Not Allowed", b"405 must CONNECT\n"),
        (b"POST /_goRPC_ HTTP/1.1\nHost: a\n\n", b"405 Method Not Allowed", b"405 must CONNECT\n"),
        (b"GET / HTTP/1.0\n\n", b"404 Not Found", b"404 page not found\n"),
        (b"CONNECT example.org:443 HTTP/1.1\r\n\r\n", b"404 Not Found", b"404 page not found\n"),
        (b"\x16\x03\x01\n\n", b"400 Bad Request", b"400 Bad Request\n"),
        (b"\r\n\r\n", b"400 Bad Request", b"400 Bad Request\n"),
    ],
)
def test_another_greeting_is_refused_and_the_connection_closed(
    greeting: bytes, status: bytes, body: bytes
) -> None:
    server = Server(LIMITS)

    assert server.feed(greeting + b"more") == []

    reply = server.data_to_send()
    assert server.closing
    assert reply.startswith(b"HTTP/1.0 " + status + b"\r\n")
    assert reply.endswith(b"\r\n\r\n" + body)
    assert server.feed(b"more") == []
    assert server.data_to_send() == b""


@pytest.mark.parametrize("piece", [b"x", b"Header: y\n", b"x" * 5000])
def test_a_greeting_without_end_is_given_up(piece: bytes) -> None:
    server = Server(LIMITS)
    for _ in range(8192 // len(piece)):
        server.feed(piece)

    with pytest.raises(BadRpc, match="a greeting of more than"):
        server.feed(piece * 2)


def test_calls_wait_for_the_answer_to_connect() -> None:
    """Go's server loses what comes together with the greeting."""
    client = Client(LIMITS)
    client.call("S.M", EMPTY, {})

    assert client.data_to_send() == CONNECT_REQUEST
    client.feed(CONNECTED[:10])
    assert client.data_to_send() == b""
    client.feed(CONNECTED[10:])
    assert len(client.data_to_send()) > 10


def test_a_peer_that_is_no_server_is_named_by_its_first_line() -> None:
    client = Client(LIMITS)
    with pytest.raises(BadRpc, match="404 Not Found"):
        client.feed(b"HTTP/1.1 404 Not Found\r\n\r\n")


# --- calls and answers ----------------------------------------------------------------------------------------------


def test_answers_find_their_calls_in_any_order() -> None:
    client, server = connected()
    numbers = [client.call(f"S.M{number}", INT, number) for number in range(5)]
    calls = server.feed(client.data_to_send())
    assert [(call.seq, call.method, call.argument) for call in calls] == [(n, f"S.M{n}", n) for n in numbers]

    for call in reversed(calls):
        server.respond(call, STRING, f"answer {call.seq}")

    answers = client.feed(server.data_to_send())
    assert [(answer.seq, answer.method, answer.value) for answer in answers] == [
        (n, f"S.M{n}", f"answer {n}") for n in reversed(numbers)
    ]


def test_numbers_of_calls_begin_at_zero_and_go_on_through_errors() -> None:
    client, _ = connected()

    with pytest.raises(BadGob):
        client.call("S.M", INT, "text")

    assert [client.call("S.M", EMPTY, {}) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("text", ["Host is not running", "grün", "\udcff", ""])
def test_an_error_comes_without_a_value_and_never_without_a_text(text: str) -> None:
    client, server = connected()
    client.call("S.M", EMPTY, {})
    (call,) = server.feed(client.data_to_send())

    server.respond_error(call, text)

    (answer,) = client.feed(server.data_to_send())
    assert answer.value is None
    assert answer.error == (text or "the call failed without an error text")


def test_any_error_text_can_be_sent() -> None:
    client, server = connected()
    client.call("S.M", EMPTY, {})
    (call,) = server.feed(client.data_to_send())

    server.respond_error(call, "half a pair: \ud83d")

    (answer,) = client.feed(server.data_to_send())
    assert answer.error == "half a pair: ?"


def test_an_answer_that_does_not_fit_is_not_sent_in_part_and_can_be_refused() -> None:
    client, server = connected()
    client.call("S.M", EMPTY, {})
    (call,) = server.feed(client.data_to_send())

    with pytest.raises(BadGob):
        server.respond(call, INT, "text")

    assert server.data_to_send() == b""
    server.respond_error(call, "no")
    (answer,) = client.feed(server.data_to_send())
    assert answer.error == "no"


def test_calls_and_answers_arrive_whole_however_they_are_cut() -> None:
    client, server = connected()
    client.call("S.M", BYTES, bytes(1000))
    (call,) = [call for byte in client.data_to_send() for call in server.feed(bytes([byte]))]
    assert call.argument == bytes(1000)

    server.respond(call, BYTES, b"ok")

    (answer,) = [answer for byte in server.data_to_send() for answer in client.feed(bytes([byte]))]
    assert answer.value == b"ok"


# --- peers that break the rules -------------------------------------------------------------------------------------


def test_an_answer_to_no_call_ends_the_connection() -> None:
    client, _ = connected()
    stream = Encoder({}).encode_all([(RESPONSE, {"ServiceMethod": "S.M", "Seq": 7}), (EMPTY, {})])

    with pytest.raises(BadRpc, match="call 7"):
        client.feed(stream)


def test_a_second_answer_ends_the_connection() -> None:
    client, server = connected()
    client.call("S.M", EMPTY, {})
    (call,) = server.feed(client.data_to_send())
    server.respond(call, EMPTY, {})
    server.respond(call, EMPTY, {})

    with pytest.raises(BadRpc, match="call 0"):
        client.feed(server.data_to_send())


@pytest.mark.parametrize(
    ("type", "value", "words"),
    [
        (STRING, "hello", "wanted a Request, found a str"),
        (
            Struct("Request", (("ServiceMethod", INT),)),
            {"ServiceMethod": 1},
            "the ServiceMethod of a Request is a int",
        ),
        (Struct("Request", (("Seq", STRING),)), {"Seq": "1"}, "the Seq of a Request is a str"),
        (Struct("Request", (("Seq", INT),)), {"Seq": -1}, "the Seq of a Request"),
    ],
)
def test_a_request_of_another_form_ends_the_connection(type: Struct, value: object, words: str) -> None:
    _, server = connected()
    with pytest.raises(BadRpc, match=words):
        server.feed(Encoder({}).encode(type, value))


def test_unknown_fields_of_a_request_do_not_count() -> None:
    _, server = connected()
    wider = Struct("Request", (("More", STRING), *REQUEST.fields))
    stream = Encoder({}).encode_all([(wider, {"More": "x", "ServiceMethod": "S.M", "Seq": 3}), (INT, 1)])

    (call,) = server.feed(stream)

    assert (call.method, call.seq, call.argument) == ("S.M", 3, 1)


def test_errors_are_those_of_go() -> None:
    assert no_service("X.Y") == "rpc: can't find service X.Y"
    assert no_method("RPCServerDriver.Upgrade") == "rpc: can't find method RPCServerDriver.Upgrade"
    assert ill_formed("XY") == "rpc: service/method request ill-formed: XY"
