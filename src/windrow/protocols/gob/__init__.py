"""Go's encoding/gob: types and values, to bytes and back, without any I/O (reference/01 §2).

Each direction of a connection is one stream with one `Encoder` at its start and one `Decoder` at its end; both live as
long as the connection, because a type is described once, before its first value.

    Go                     here
    bool, int, uint, ...   bool, int, float, str, bytes
    []T                    list
    map[K]V                dict
    struct                 dict of the fields that are sent: Go leaves zero fields out, so a missing field is zero
    interface              `Interface(registered name, value)`, or None for nil

A Go string may hold any bytes. Those that are no UTF-8 are kept as lone surrogates (`surrogateescape`), so nothing is
lost either way.

Not supported, since no docker-machine type uses them: complex numbers, and types that encode themselves. They are refused
by name.
"""

from windrow.protocols.gob.decoder import NOT_YET, Decoder, Limits
from windrow.protocols.gob.encoder import Encoder
from windrow.protocols.gob.numbers import BadGob
from windrow.protocols.gob.types import (
    BOOL,
    BYTES,
    EMPTY,
    FLOAT,
    INT,
    INTERFACE,
    STRING,
    UINT,
    Interface,
    MapOf,
    Slice,
    Struct,
    Type,
    fits,
)

__all__ = [
    "BOOL",
    "BYTES",
    "EMPTY",
    "FLOAT",
    "INT",
    "INTERFACE",
    "NOT_YET",
    "STRING",
    "UINT",
    "BadGob",
    "Decoder",
    "Encoder",
    "Interface",
    "Limits",
    "MapOf",
    "Slice",
    "Struct",
    "Type",
    "fits",
]
