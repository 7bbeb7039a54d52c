"""Gob's rules that the random tests cannot name: what is refused, what a limit stops, what order Go numbers types in."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

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
    BadGob,
    Decoder,
    Encoder,
    Interface,
    Limits,
    MapOf,
    Slice,
    Struct,
    Type,
    fits,
)
from windrow.protocols.gob.numbers import write_uint

LIMITS = Limits(size=1 << 20, elements=1000, depth=10, types=10)


def message(body: str) -> str:
    """A message of these bytes (hex), with its length before it."""
    data = bytes.fromhex(body)
    out = bytearray()
    write_uint(out, len(data))
    return (out + data).hex()


# Type 64 in the notation of reference/01 §2.4: struct{}, []itself, and struct{Next *itself}.
EMPTY_STRUCT = message("7f 03 01 02ff8000 00 00")
SLICE_OF_ITSELF = message("7f 02 01 02ff8000 01ff80 00 00")
STRUCT_OF_ITSELF = message("7f 03 01 02ff8000 01 01 01044e657874 01ff8000 00 00")
STRINGS = message("7f 02 01 02ff8000 010c 00 00")


def decode(*streams: str, limits: Limits = LIMITS) -> list[Any]:
    decoder = Decoder(limits)
    decoder.feed(bytes.fromhex("".join(streams)))
    values = []
    while (value := decoder.next()) is not NOT_YET:
        values.append(value)
    return values


# --- refused --------------------------------------------------------------------------------------------------------

REFUSED = {
    "an empty message": ("00", "a message of 0 bytes"),
    "a number of more than 8 bytes": ("f7" + "00" * 9, "9 bytes"),
    "a length beyond the limit": ("f8ffffffffffffffff", "a message of 18446744073709551615 bytes"),
    "a message that ends in a number": (message("0c 00 fc7fff"), "a message ends"),
    "a message that ends before its value": (message("04 00"), "a message ends"),
    "bytes that are announced and not there": (message("0c 00 05 616263"), "5 bytes are announced and 3"),
    "elements that are announced and not there": (
        STRINGS + message("ff80 00 03 00"),
        "3 elements are announced",
    ),
    "a boolean of 2": (message("02 00 02"), "a boolean is 0 or 1"),
    "a field number before a plain value": (message("04 01 02"), "field number"),
    "bytes after a value": (message("04 00 02 02"), "1 bytes are left over after a value"),
    "a type that was never described": (message("ff80 00"), "type 64, which was never described"),
    "a complex number": (message("0e 00 00"), "complex"),
    "a type described twice": (EMPTY_STRUCT * 2, "described again"),
    "the description of a built-in type": (message("03 03 01 0204 00 00"), "type 2 is described again"),
    "bytes after a description": (message("7f 03 01 02ff8000 00 00 00"), "left over after the description"),
    "the description of another type": (message("7f 03 01 02ff8200 00 00"), "that of another"),
    "a description of nothing": (message("7f 00"), "described as 0 kinds"),
    "a description of two types": (
        message("7f 02 01 02ff8000 00 01 01 02ff8000 00 00"),
        "described as 2 kinds",
    ),
    "a type that encodes itself": (message("7f 05 01 02ff8000 00 00"), "encodes itself"),
    "two fields of one name": (
        message("7f 03 01 02ff8000 01 02 010141 0104 00 010141 0104 00 00 00"),
        "one name",
    ),
    "a field beyond the struct": (EMPTY_STRUCT + message("ff80 01 00"), "field 0 of a struct that has 0"),
    "an array of another length": (
        message("7f 01 01 02ff8000 0104 0106 00 00") + message("ff80 00 02 00 00"),
        "array of 3",
    ),
    "a map with structs as keys": (
        EMPTY_STRUCT + message("ff81 04 01 02ff8200 01ff80 0104 00 00") + message("ff82 00 00"),
        "keys of type 64",
    ),
    "the name of a type that is too long": (message("10 00 fe0401" + "61" * 1025), "1025 characters"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_malformed_is_refused_by_name(case: str) -> None:
    stream, words = REFUSED[case]
    with pytest.raises(BadGob, match=words):
        decode(stream)


def test_after_an_error_the_stream_stays_lost() -> None:
    decoder = Decoder(LIMITS)
    decoder.feed(bytes.fromhex("00"))
    with pytest.raises(BadGob) as first:
        decoder.next()

    decoder.feed(bytes.fromhex("03040002"))

    with pytest.raises(BadGob) as second:
        decoder.next()
    assert str(first.value) == str(second.value)
    assert not decoder.idle


def test_after_an_error_nothing_is_kept_and_nothing_more_is_taken() -> None:
    long = Interface("long", {"A": bytes(100_000)})
    stream = Encoder({"long": Struct("L", (("A", BYTES),)), "other": EMPTY}).encode(
        Slice(INTERFACE), [long, Interface("other", {})]
    )
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        decoder = Decoder(LIMITS)
        decoder.feed(stream[:-5])  # the long value is read, and the next message has not come
        assert decoder.next() is NOT_YET
        decoder.feed(bytes(1))
        with pytest.raises(BadGob):
            decoder.next()
        decoder.feed(bytes(100_000))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < 50_000


# --- limits ---------------------------------------------------------------------------------------------------------


def encoded(type: Type, value: Any, **registry: Type) -> str:
    return Encoder(registry).encode(type, value).hex()


def nested(depth: int) -> Interface | None:
    return Interface("box", [nested(depth - 1)]) if depth else None


def limits(**changed: int) -> Limits:
    return Limits(**{"size": 1 << 20, "elements": 1000, "depth": 10, "types": 10, **changed})


LIMITED = {
    "bytes": (encoded(BYTES, bytes(5000)), {"size": 5000}, "a message of 5"),
    "elements": (encoded(Slice(BOOL), [True] * 20), {"elements": 20}, "more than 20 values"),
    "elements of maps": (
        encoded(MapOf(INT, INT), {n: n for n in range(10)}),
        {"elements": 20},
        "more than 20",
    ),
    "depth": (encoded(INTERFACE, nested(6), box=Slice(INTERFACE)), {"depth": 12}, "nested deeper than 12"),
    "types": (encoded(Slice(Slice(Slice(INT))), []), {"types": 2}, "more than 2 types"),
}


@pytest.mark.parametrize("what", LIMITED)
def test_a_limit_stops_what_goes_beyond_it_and_nothing_else(what: str) -> None:
    stream, changed, words = LIMITED[what]
    ((name, limit),) = changed.items()

    with pytest.raises(BadGob, match=words):
        decode(stream, limits=limits(**changed))

    decode(stream, limits=limits(**{name: limit + 20}))


def test_a_limit_of_depth_leaves_room_for_descriptions() -> None:
    assert decode(encoded(Struct("S", (("A", INT),)), {"A": 1}), limits=limits(depth=1)) == [{"A": 1}]


def test_descriptions_of_many_fields_count_against_the_limit_of_elements() -> None:
    wide = [Struct(f"S{n}", tuple((f"F{m}", INT) for m in range(30))) for n in range(5)]
    encoder = Encoder({})
    stream = "".join(encoder.encode(type, {}).hex() for type in wide)

    with pytest.raises(BadGob, match="more than 120 fields"):
        decode(stream, limits=limits(elements=120))
    assert decode(stream, limits=limits(elements=150)) == [{}] * 5


def test_the_messages_of_one_value_count_together() -> None:
    parts = {f"t{n}": Struct(f"T{n}", (("A", BYTES),)) for n in range(5)}
    value = [Interface(name, {"A": bytes(1000)}) for name in parts]
    stream = encoded(Slice(INTERFACE), value, **parts)

    with pytest.raises(BadGob, match="a value may have"):
        decode(stream, limits=limits(size=5000))
    assert decode(stream, limits=limits(size=6000)) == [value]


@pytest.mark.parametrize("size", ["fc7fffffff", "f87fffffffffffffff", "f8ffffffffffffffff"])
@pytest.mark.parametrize(
    ("definition", "value"),
    [("", "0c 00"), ("", "0a 00"), (SLICE_OF_ITSELF, "ff80 00"), (STRINGS, "ff80 00"), ("", "10 00")],
    ids=["string", "bytes", "slices", "strings", "interface"],
)
def test_a_huge_count_takes_no_room(definition: str, value: str, size: str) -> None:
    decoder = Decoder(Limits(size=1 << 40, elements=1 << 60, depth=10, types=10))
    decoder.feed(bytes.fromhex(definition + message(value + size)))
    tracemalloc.start()
    try:
        with pytest.raises(BadGob):
            decoder.next()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50_000


def test_an_announced_message_is_waited_for_and_takes_no_room() -> None:
    decoder = Decoder(Limits(size=1 << 40, elements=10, depth=10, types=10))
    decoder.feed(bytes.fromhex("fb0fffffffff"))

    assert decoder.next() is NOT_YET
    assert not decoder.idle


def test_types_that_hold_themselves_are_read_as_deep_as_the_limit() -> None:
    assert decode(SLICE_OF_ITSELF, message("ff80 00 02 01 00 00")) == [[[[]], []]]
    assert decode(STRUCT_OF_ITSELF, message("ff80 01 01 00 00 00")) == [{"Next": {"Next": {}}}]
    with pytest.raises(BadGob, match="nested deeper than 10"):
        decode(STRUCT_OF_ITSELF, message("ff80" + "01" * 20 + "00" * 21))


def test_no_limit_of_depth_goes_beyond_python_s_stack() -> None:
    with pytest.raises(ValueError, match="beyond 100"):
        Limits(size=1, elements=1, depth=101, types=1)
    deep = Limits(size=1 << 20, elements=1000, depth=100, types=10)
    with pytest.raises(BadGob, match="nested deeper than 100"):
        decode(encoded(INTERFACE, nested(60), box=Slice(INTERFACE)), limits=deep)
    decode(encoded(INTERFACE, nested(49), box=Slice(INTERFACE)), limits=deep)


# --- Go's order -----------------------------------------------------------------------------------------------------


def test_a_struct_is_numbered_before_what_it_holds_and_a_slice_after() -> None:
    inner = Struct("Inner", (("A", INT),))

    struct_first = encoded(Struct("Outer", (("L", Slice(inner)),)), {})
    slice_first = encoded(Slice(Slice(inner)), [])

    assert [definition[2:6] for definition in messages(struct_first)] == ["7f03", "ff83", "ff81", "ff80"]
    assert [definition[2:6] for definition in messages(slice_first)] == ["ff83", "ff81", "7f03", "ff84"]


def test_elements_of_an_array_are_a_list() -> None:
    assert decode(message("7f 01 01 02ff8000 0104 0106 00 00"), message("ff80 00 03 02 04 06")) == [[1, 2, 3]]


def messages(stream: str) -> list[str]:
    data = bytes.fromhex(stream)
    found = []
    while data:
        found.append(data[: 1 + data[0]].hex())
        data = data[1 + data[0] :]
    return found


def test_the_printed_form_of_a_slice_makes_it_no_other_type() -> None:
    assert Slice(STRING) == Slice(STRING, "[]string")
    assert Slice(STRING) != Slice(STRING, "Names")
    assert MapOf(STRING, INT) == MapOf(STRING, INT, "map[string]int")
    assert Struct("A", ()) != Struct("B", ())


# --- what does not fit ----------------------------------------------------------------------------------------------

MISFITS: list[tuple[Type, Any]] = [
    (BOOL, 1),
    (INT, True),
    (INT, 1.0),
    (UINT, -1),
    (FLOAT, 1),
    (BYTES, "text"),
    (STRING, b"bytes"),
    (Slice(INT), "text"),
    (Slice(INT), [None]),
    (MapOf(STRING, INT), []),
    (MapOf(STRING, INT), {1: 1}),
    (EMPTY, None),
    (INTERFACE, "text"),
    (Struct("S", (("A", INT),)), {"A": "text"}),
]

UNWRITABLE: list[tuple[Type, Any]] = [
    (INT, 1 << 63),
    (INT, -(1 << 63) - 1),
    (UINT, 1 << 64),
    (STRING, "\ud800"),
    (EMPTY, {"A": 1}),
    (INTERFACE, Interface("unknown", 1)),
    (INTERFACE, Interface("", 1)),
]


@pytest.mark.parametrize(("type", "value"), MISFITS + UNWRITABLE)
def test_what_does_not_fit_its_type_is_not_written(type: Type, value: Any) -> None:
    with pytest.raises(BadGob):
        Encoder({"": INT}).encode(type, value)


@pytest.mark.parametrize(("type", "value"), MISFITS)
def test_fits_is_false_for_a_value_of_another_type(type: Type, value: Any) -> None:
    assert not fits(type, value)


def test_fields_are_matched_by_name() -> None:
    known = Struct("S", (("A", INT), ("B", STRING)))

    assert fits(known, {})
    assert fits(known, {"B": "b", "Unknown": 1})
    assert not fits(known, {"B": 1})
