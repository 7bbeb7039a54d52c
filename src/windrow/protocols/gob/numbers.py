"""How gob writes single values, and a cursor that reads them again."""

from __future__ import annotations

import struct


class BadGob(ValueError):
    """What was read is no gob, or more than the limits allow; or what was to be written does not fit its type."""


# --- writing --------------------------------------------------------------------------------------------------------


def write_uint(out: bytearray, value: int) -> None:
    """0 to 127 is one byte; anything else is its bytes, big endian, after their negated count."""
    if value < 128:
        out.append(value)
        return
    size = (value.bit_length() + 7) // 8
    out.append(256 - size)
    out += value.to_bytes(size, "big")


def write_int(out: bytearray, value: int) -> None:
    """The sign is the lowest bit, so that small numbers are short on both sides of zero."""
    write_uint(out, value << 1 if value >= 0 else ~value << 1 | 1)


def write_float(out: bytearray, value: float) -> None:
    """The bytes are reversed: a round number then ends in its exponent, and its leading zeros are not sent."""
    write_uint(out, int.from_bytes(struct.pack("<d", value), "big"))


def write_bytes(out: bytearray, value: bytes | bytearray) -> None:
    write_uint(out, len(value))
    out += value


# --- reading --------------------------------------------------------------------------------------------------------


def find_uint(data: bytearray, at: int) -> tuple[int, int] | None:
    """The number that begins there and where it ends; None where the data stops before its end."""
    if at >= len(data):
        return None
    first = data[at]
    if first < 128:
        return first, at + 1
    size = 256 - first
    if size > 8:
        raise BadGob(f"a number of {size} bytes; the longest has 8")
    end = at + 1 + size
    if end > len(data):
        return None
    return int.from_bytes(data[at + 1 : end], "big"), end


class Cursor:
    """Reads one message from front to back; what reaches beyond its end is BadGob."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    def uint(self) -> int:
        at = self.at
        if at < self.end and (first := self.data[at]) < 128:
            self.at = at + 1
            return first
        found = find_uint(self.data, at)
        if found is None:
            raise BadGob("a message ends in the middle of a number")
        value, self.at = found
        return value

    def int(self) -> int:
        value = self.uint()
        return ~(value >> 1) if value & 1 else value >> 1

    def bool(self) -> bool:
        value = self.uint()
        if value > 1:
            raise BadGob(f"a boolean is 0 or 1, not {value}")
        return value == 1

    def float(self) -> float:
        (value,) = struct.unpack("<d", self.uint().to_bytes(8, "big"))
        return float(value)

    def bytes(self) -> bytes:
        size = self.uint()
        start = self.at
        if size > self.end - start:
            raise BadGob(f"{size} bytes are announced and {self.end - start} are there")
        self.at = start + size
        return bytes(self.data[start : self.at])

    def string(self) -> str:
        return self.bytes().decode("utf-8", "surrogateescape")
