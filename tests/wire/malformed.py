"""Malformed streams: correct ones with a changed byte, and ones of an encoder that writes wrong numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.wire.shapes import random_registry, random_type, random_value

from windrow.protocols.dockermachine import DEFAULT_LIMITS, FLAGS, SERVICE, Flag, write_flags, write_options
from windrow.protocols.gob import BYTES, INTERFACE, Encoder
from windrow.protocols.gob.numbers import write_int, write_uint
from windrow.protocols.netrpc import CONNECT_REQUEST, CONNECTED, Call, Client, Server

EVIL = (
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    63,
    64,
    65,
    66,
    127,
    128,
    255,
    256,
    1 << 16,
    1 << 31,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
)

# --- what was right once --------------------------------------------------------------------------------------------


def honest_stream(random: Random) -> bytes:
    """A right stream of random types."""
    registry = random_registry(random, 3)
    encoder = Encoder(registry)
    types = [random_type(random, 3) for _ in range(2)]
    return b"".join(encoder.encode(type, random_value(random, type, registry)) for type in types)


def honest_call(random: Random) -> bytes:
    """One direction of a right net/rpc connection, after the greeting."""
    client = Client(DEFAULT_LIMITS)
    client.data_to_send()
    client.feed(CONNECTED)
    for _ in range(random.randrange(1, 4)):
        client.call(f"{SERVICE}.SetConfigRaw", BYTES, random.randbytes(random.randrange(30)))
        client.call(
            f"{SERVICE}.SetConfigFromFlags", INTERFACE, write_options({"n": 1, "l": ["a", "b"], "s": "text"})
        )
    return client.data_to_send()


def honest_answer(random: Random) -> bytes:
    server = Server(DEFAULT_LIMITS)
    server.feed(CONNECT_REQUEST)
    server.data_to_send()
    for seq in range(random.randrange(1, 4)):
        call = Call(f"{SERVICE}.GetCreateFlags", seq, {})
        flags = [Flag("strings", "x-list", "a list", "X", ["a"]), Flag("int", "x-n", "a number", "", seq)]
        server.respond(call, FLAGS, write_flags(flags))
        server.respond_error(Call(f"{SERVICE}.GetIP", seq, {}), "Host is not running")
    return server.data_to_send()


def cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def flip(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def overwrite(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + random.randbytes(random.randrange(1, 5)) + data[at + random.randrange(5) :]


def renumber(random: Random, data: bytes) -> bytes:
    """Puts a number that means harm where some number may stand."""
    at = random.randrange(len(data))
    number = bytearray()
    random.choice((write_uint, write_int))(number, random.choice(EVIL))
    return data[:at] + bytes(number) + data[at + 1 :]


def repeat(random: Random, data: bytes) -> bytes:
    start, end = sorted((random.randrange(len(data)), random.randrange(len(data))))
    return data[:end] + data[start:end] * random.randrange(1, 4) + data[end:]


def drop(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + data[at + random.randrange(1, 20) :]


def noise(random: Random, data: bytes) -> bytes:
    return random.randbytes(random.randrange(1, 60))


def framed_noise(random: Random, data: bytes) -> bytes:
    """Noise that says how long it is, so that it is looked at."""
    body = random.randbytes(random.randrange(1, 40))
    out = bytearray()
    write_uint(out, len(body))
    return bytes(out + body)


BREAKS: tuple[Callable[[Random, bytes], bytes], ...] = (
    cut,
    flip,
    overwrite,
    renumber,
    repeat,
    drop,
    noise,
    framed_noise,
)

# --- what was never right -------------------------------------------------------------------------------------------


class MalformedStream:
    """Writes streams as Go would, of types that may hold themselves, but any number may be another than the truth."""

    def __init__(self, random: Random, lying: float) -> None:
        self.random = random
        self.lying = lying
        self.types = {64 + number: self.made_type(64 + number) for number in range(random.randrange(1, 6))}
        self.untold = sorted(self.types)

    def made_type(self, id: int) -> tuple[int, list[int]]:
        """Its kind, as numbered in `wireType`, and the types that it holds: known ones, itself, or later ones."""
        kind = self.random.choice((0, 1, 1, 2, 2, 2, 3, 3))
        count = {0: 1, 1: 1, 2: self.random.randrange(4), 3: 2}[kind]
        ids = [self.random.choice((1, 2, 3, 4, 5, 6, 8, 8, id - 1, id, id + 1)) for _ in range(count)]
        return kind, [self.random.choice((2, 6)), ids[1]] if kind == 3 and self.random.random() < 0.9 else ids

    def stream(self) -> bytes:
        out = bytearray()
        kept = self.random.randrange(3)
        while len(self.untold) > kept:
            self.message(out, self.definition())
        for _ in range(self.random.randrange(1, 4)):
            body = bytearray()
            self.framed(body, out, self.random.choice((*self.types, 2, 6, 8)), 5)
            self.message(out, body)
        return bytes(out)

    def message(self, out: bytearray, body: bytearray) -> None:
        self.uint(out, len(body))
        out += body

    def uint(self, out: bytearray, truth: int) -> None:
        write_uint(out, self.random.choice(EVIL) if self.random.random() < self.lying else truth)

    def int(self, out: bytearray, truth: int) -> None:
        lie = self.random.choice(EVIL) * self.random.choice((1, -1))
        write_int(out, lie if self.random.random() < self.lying and abs(lie) < 1 << 63 else truth)

    # --- descriptions ---

    def definition(self) -> bytearray:
        id = self.untold.pop(0)
        kind, held = self.types[id]
        out = bytearray()
        self.int(out, -id)
        for number in (kind + 1, 1, 2):
            self.uint(out, number)
        self.int(out, id)
        out.append(0)
        if kind == 2:
            self.fields(out, held)
        else:
            for each in [*held, 2] if kind == 0 else held:
                self.uint(out, 1)
                self.int(out, each)
        out += b"\0\0"
        return out

    def fields(self, out: bytearray, held: list[int]) -> None:
        if not held:
            return
        self.uint(out, 1)
        self.uint(out, len(held))
        for number, each in enumerate(held):
            out += b"\1\1" + bytes([65 + number])
            self.uint(out, 1)
            self.int(out, each)
            out.append(0)

    # --- values ---

    def framed(self, out: bytearray, sink: bytearray, id: int, depth: int) -> None:
        self.int(out, id)
        self.unframed(out, sink, id, depth)

    def unframed(self, out: bytearray, sink: bytearray, id: int, depth: int) -> None:
        if id not in self.types or self.types[id][0] != 2:
            self.uint(out, 0)
        self.value(out, sink, id, depth)

    def value(self, out: bytearray, sink: bytearray, id: int, depth: int) -> None:
        kind, held = self.types.get(id, (None, []))
        if kind == 2:
            self.struct(out, sink, held, depth)
        elif kind is not None:
            self.elements(
                out, sink, held, 2 if kind == 0 else self.random.randrange(4) if depth > 0 else 0, depth
            )
        elif id == 8:
            self.interface(out, sink, depth)
        elif id in (5, 6):
            self.uint(out, 3)
            out += b"abc"
        elif id == 1:
            self.uint(out, 1)
        else:
            self.uint(out, self.random.choice(EVIL))

    def struct(self, out: bytearray, sink: bytearray, held: list[int], depth: int) -> None:
        last = -1
        for number, id in enumerate(held):
            if depth > 0 and self.random.random() < 0.7:
                self.uint(out, number - last)
                last = number
                self.value(out, sink, id, depth - 1)
        self.uint(out, 0)

    def elements(self, out: bytearray, sink: bytearray, held: list[int], count: int, depth: int) -> None:
        self.uint(out, count)
        for _ in range(count if depth > -2 else 0):
            for id in held:
                self.value(out, sink, id, depth - 1)

    def interface(self, out: bytearray, sink: bytearray, depth: int) -> None:
        if depth <= 0 or self.random.random() < 0.2:
            self.uint(out, 0)
            return
        self.uint(out, 4)
        out += b"name"
        id = self.random.choice((*self.types, 2, 6))
        while self.untold and self.random.random() < 0.7:
            id = self.untold[0]
            out += self.definition()
            self.message(sink, out)
            out.clear()
        self.int(out, id)
        inner = bytearray()
        self.unframed(inner, out, id, depth - 1)
        self.message(out, inner)
