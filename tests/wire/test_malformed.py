"""Whatever a peer sends ends in values or in a clean error, in few steps and little room."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.support.seeds import sampled
from tests.wire.malformed import BREAKS, MalformedStream, cut, honest_answer, honest_call, honest_stream
from tests.wire.vectors import names, stream

from windrow.protocols.dockermachine import read_flags, read_options
from windrow.protocols.gob import (
    EMPTY,
    INT,
    INTERFACE,
    NOT_YET,
    STRING,
    BadGob,
    Decoder,
    Encoder,
    Interface,
    Limits,
    MapOf,
    Slice,
    Struct,
)
from windrow.protocols.netrpc import CONNECT_REQUEST, CONNECTED, BadRpc, Client, Server

LIMITS = Limits(size=1 << 16, elements=2000, depth=20, types=20)

HONEST = [honest_stream(Random(seed)) for seed in range(60)]
PLAIN = [stream(name) for name in names("gob_", "accepted_")] + HONEST
RPC = [
    *(stream(name) for name in names("rpc_")),
    *(make(Random(seed)) for seed in range(5) for make in (honest_call, honest_answer)),
]


def outcome(data: bytes) -> tuple[list[Any], str | None]:
    """The values and the error that these bytes give, having checked what the way there cost."""
    decoder = Decoder(LIMITS)
    decoder.feed(data)
    values: list[Any] = []
    error = None
    try:
        while (value := decoder.next()) is not NOT_YET:
            values.append(value)
    except BadGob as bad:
        error = str(bad)
        assert error
    assert decoder.steps <= len(data) + 1, "a step must be paid for by a byte"
    return values, error


def broken_streams(seed: int, count: int) -> Iterator[bytes]:
    random = Random(seed)
    sources = PLAIN + RPC
    for _ in range(count):
        broken = random.choice(BREAKS)(random, random.choice(sources))
        yield random.choice(BREAKS)(random, broken) if broken and random.random() < 0.2 else broken


def described_streams(seed: int, count: int) -> Iterator[bytes]:
    random = Random(seed)
    for _ in range(count):
        yield MalformedStream(random, random.choice((0.0, 0.02, 0.1, 0.3))).stream()


@pytest.mark.parametrize("seed", sampled(range(8), 2))
def test_a_broken_stream_ends_in_values_or_a_clean_error(seed: int) -> None:
    errors = {outcome(data)[1] for data in broken_streams(seed, 12_000)}

    assert len(errors) > 100, "these streams go wrong in few ways, so they test little"


@pytest.mark.parametrize("seed", sampled(range(6), 2))
def test_a_lying_stream_ends_in_values_or_a_clean_error(seed: int) -> None:
    outcomes = [outcome(data) for data in described_streams(seed, 10_000)]

    assert len({error for _, error in outcomes}) > 100
    assert sum(1 for values, _ in outcomes if values) > 2000, (
        "hardly any of these streams gets as far as a value"
    )


@pytest.mark.parametrize("data", PLAIN + RPC)
def test_a_stream_cut_anywhere_is_no_error(data: bytes) -> None:
    """It gives what is complete, and knows whether it may end there."""
    whole, _ = outcome(data)
    for end in range(0, len(data), 1 + len(data) // 100):
        decoder = Decoder(LIMITS)
        decoder.feed(data[:end])
        values = []
        while (value := decoder.next()) is not NOT_YET:
            values.append(value)
        assert values == whole[: len(values)]
        if decoder.idle:
            decoder.feed(data[end:])
        assert decoder.idle == (end == 0) or decoder.next() == whole[len(values)]


@pytest.mark.parametrize("seed", range(2))
def test_the_outcome_does_not_depend_on_where_the_bytes_are_cut(seed: int) -> None:
    random = Random(seed)
    for data in (*broken_streams(seed, 1500), *described_streams(seed, 1500)):
        decoder = Decoder(LIMITS)
        values = []
        error = None
        at = 0
        try:
            while at < len(data):
                size = random.choice((1, 3, 50))
                decoder.feed(data[at : at + size])
                at += size
                while (value := decoder.next()) is not NOT_YET:
                    values.append(value)
        except BadGob as bad:
            error = str(bad)
        expected = outcome(data)
        assert (str(values), error) == (str(expected[0]), expected[1])


def serve(data: bytes) -> None:
    server = Server(LIMITS)
    calls = server.feed(CONNECT_REQUEST + data)
    for call in calls:
        server.respond_error(call, "no")
    assert server.data_to_send()


def ask(data: bytes) -> None:
    client = Client(LIMITS)
    for _ in range(3):
        client.call("RPCServerDriver.GetCreateFlags", EMPTY, {})
    for answer in client.feed(CONNECTED + data):
        read_answer(answer.value)


def read_answer(value: Any) -> None:
    for read in (read_flags, read_options):
        try:
            read(value)
        except BadGob:
            continue


@pytest.mark.parametrize("seed", range(3))
def test_a_connection_with_a_broken_peer_ends_in_answers_or_a_clean_error(seed: int) -> None:
    random = Random(seed)
    sources = RPC + HONEST
    ends: set[str] = set()
    for _ in range(2000):
        data = random.choice(BREAKS)(random, random.choice(sources))
        for end in (serve, ask):
            try:
                end(data)
            except (BadGob, BadRpc) as bad:
                ends.add(str(bad))

    assert len(ends) > 50


@pytest.mark.parametrize("seed", range(2))
def test_a_broken_greeting_ends_in_a_refusal_or_a_clean_error(seed: int) -> None:
    random = Random(seed)
    for _ in range(3000):
        greeting = random.choice(BREAKS)(
            random, random.choice((CONNECT_REQUEST, CONNECT_REQUEST.replace(b"\n", b"\r\n")))
        )
        server = Server(LIMITS)
        try:
            server.feed(greeting + cut(random, b"GET / HTTP/1.1\r\n\r\n"))
        except (BadGob, BadRpc):
            continue
        assert not server.closing or server.data_to_send().startswith(b"HTTP/1.0 4")


def test_no_stream_takes_more_room_than_its_bytes_pay_for() -> None:
    samples = [*broken_streams(99, 1500), *described_streams(99, 1500)]
    worst = 0.0
    tracemalloc.start()
    try:
        for data in samples:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            outcome(data)
            _, peak = tracemalloc.get_traced_memory()
            worst = max(worst, (peak - before - 20_000) / (len(data) + 1))
    finally:
        tracemalloc.stop()

    assert worst < 300, "bytes for each byte of input"


EMPTY_MAPS = Slice(MapOf(INT, INT))
COSTLY = {
    "empty maps": (EMPTY_MAPS, [{}] * 900),
    "maps of one": (EMPTY_MAPS, [{0: 0}] * 300),
    "structs of one field": (Slice(Struct("S", (("A", EMPTY),))), [{"A": {}}] * 400),
    "lists in lists": (Slice(Slice(Slice(INT))), [[[]] * 5] * 100),
    "boxes": (Slice(INTERFACE), [Interface("i", 1)] * 450),
    "short texts": (Slice(STRING), ["ab"] * 900),
    "one text of wide letters": (STRING, "a" * 50_000 + "\U0001f600"),
}


@pytest.mark.parametrize("what", COSTLY)
def test_the_dearest_values_stay_within_the_limits(what: str) -> None:
    type, value = COSTLY[what]
    data = Encoder({"i": INT}).encode(type, value)
    decoder = Decoder(Limits(size=1 << 16, elements=1000, depth=20, types=20))
    tracemalloc.start()
    try:
        decoder.feed(data)
        assert decoder.next() == value
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 10 * (1 << 16) + 400 * 1000
