"""A few streams that Go wrote, so that no change of a byte goes unseen even where the vector file is not at hand."""

from __future__ import annotations

from windrow.protocols.dockermachine import DEFAULT_LIMITS, FLAGS, REGISTRY, Flag, write_flags, write_options
from windrow.protocols.gob import EMPTY, INT, INTERFACE, Encoder
from windrow.protocols.netrpc import CONNECT_REQUEST, CONNECTED, Call, Client, Server

# A message a line; the bytes are told apart in reference/01 §2.8.
ONE_FLAG = """
0b 7f020102ff80000110 0000
58 ff800001132a6d636e666c61672e537472696e67466c6167ff810301010a537472696e67466c616701ff8200010401044e616d65010c0001
   055573616765010c000106456e76566172010c00010556616c7565010c000000
24 ff82210106782d6e616d6501086120737472696e670106585f4e414d45010464666c7400
"""

OPTIONS_CALL = """
2e 7f030101075265717565737401ff80000102010d536572766963654d6574686f64010c0001035365710106000000
27 ff8001225250435365727665724472697665722e536574436f6e66696746726f6d466c61677300
38 1000132a7270636472697665722e525043466c616773ff8103010108525043466c61677301ff82000101010656616c75657301ff84000000
27 ff83040101176d61705b737472696e675d696e74657266616365207b7d01ff8400010c01100000
4f ff82410104017306737472696e670c06000474657874016e03696e74040400fe0258016204626f6f6c02020001016c085b5d737472696e67
   ff85020102ff8600010c00000aff860600020161016200
"""

REFUSAL = """
39 7f03010108526573706f6e736501ff80000103010d536572766963654d6574686f64010c00010353657101060001054572726f72010c000000
2f ff8001155250435365727665724472697665722e47657449500213486f7374206973206e6f742072756e6e696e6700
0a ff81030102ff82000000
03 ff8200
"""

VERSION = """
39 7f03010108526573706f6e736501ff80000103010d536572766963654d6574686f64010c00010353657101060001054572726f72010c000000
1f ff80011a5250435365727665724472697665722e47657456657273696f6e00
03 040002
"""


def answering() -> Server:
    server = Server(DEFAULT_LIMITS)
    server.feed(CONNECT_REQUEST)
    server.data_to_send()
    return server


def test_the_greeting_and_its_answer() -> None:
    assert CONNECT_REQUEST == b"CONNECT /_goRPC_ HTTP/1.0\n\n"
    assert CONNECTED == b"HTTP/1.0 200 Connected to Go RPC\n\n"


def test_a_create_flag() -> None:
    flags = write_flags([Flag("string", "x-name", "a string", "X_NAME", "dflt")])

    assert Encoder(REGISTRY).encode(FLAGS, flags) == bytes.fromhex(ONE_FLAG)


def test_a_call_with_options() -> None:
    client = Client(DEFAULT_LIMITS)
    client.data_to_send()
    client.feed(CONNECTED)
    options = write_options({"s": "text", "n": 300, "b": True, "l": ["a", "b"]})

    client.call("RPCServerDriver.SetConfigFromFlags", INTERFACE, options)

    assert client.data_to_send() == bytes.fromhex(OPTIONS_CALL)


def test_a_refusal() -> None:
    server = answering()

    server.respond_error(Call("RPCServerDriver.GetIP", 0, {}), "Host is not running")

    assert server.data_to_send() == bytes.fromhex(REFUSAL)


def test_an_answer() -> None:
    server = answering()

    server.respond(Call("RPCServerDriver.GetVersion", 0, {}), INT, 1)

    assert server.data_to_send() == bytes.fromhex(VERSION)


def test_a_type_is_described_once() -> None:
    encoder = Encoder({})

    assert [encoder.encode(EMPTY, {}).hex() for _ in range(2)] == ["097f030102ff8000000003ff8000", "03ff8000"]
