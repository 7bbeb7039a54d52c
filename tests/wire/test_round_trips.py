"""What is written is read again, whatever the types and wherever the bytes are cut."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.shapes import as_received, random_registry, random_type, random_value

from windrow.protocols.gob import NOT_YET, Decoder, Encoder, Interface, Limits, fits

LIMITS = Limits(size=1 << 20, elements=100_000, depth=50, types=500)


def read_in_chunks(stream: bytes, random: Random) -> list[Any]:
    decoder = Decoder(LIMITS)
    found = []
    at = 0
    while at < len(stream):
        size = random.choice((1, 2, 10, 1000))
        decoder.feed(stream[at : at + size])
        at += size
        while (value := decoder.next()) is not NOT_YET:
            found.append(value)
    assert decoder.idle
    return found


@settings(max_examples=400)
@given(seed=st.integers(0, 1 << 64))
def test_values_of_any_types_arrive_as_they_were_sent(seed: int) -> None:
    random = Random(seed)
    registry = random_registry(random, 4)
    types = [random_type(random, 3) for _ in range(3)]
    sent = [(type, random_value(random, type, registry)) for type in types * 2]
    encoder = Encoder(registry)

    stream = b"".join(encoder.encode(type, value) for type, value in sent)

    received = read_in_chunks(stream, random)
    assert received == [as_received(type, value, registry) for type, value in sent]
    assert all(fits(type, value) for (type, _), value in zip(sent, received, strict=True))


@settings(max_examples=200)
@given(seed=st.integers(0, 1 << 64))
def test_what_was_read_is_written_as_the_same_bytes(seed: int) -> None:
    random = Random(seed)
    registry = random_registry(random, 3)
    type = random_type(random, 3)
    first, again = Encoder(registry), Encoder(registry)

    stream = first.encode(type, random_value(random, type, registry))

    (value,) = read_in_chunks(stream, random)
    assert again.encode(type, value) == stream


@settings(max_examples=200)
@given(seed=st.integers(0, 1 << 64))
def test_a_value_that_does_not_fit_leaves_the_stream_as_it_was(seed: int) -> None:
    random = Random(seed)
    registry = random_registry(random, 3)
    type = random_type(random, 3)
    value = random_value(random, type, registry)
    plain, disturbed = Encoder(registry), Encoder(registry)
    try:
        disturbed.encode_all([(type, value), (type, Interface("no such type", object()))])
    except ValueError:
        pass
    else:
        raise AssertionError("a value of no type was written")

    assert disturbed.encode(type, value) == plain.encode(type, value)
