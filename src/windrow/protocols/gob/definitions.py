"""Gob's type descriptions: each is itself a gob value, of the predefined struct `wireType`."""

from __future__ import annotations

from windrow.protocols.gob.types import INT, STRING, Slice, Struct, Type

FIRST_ID = 64
"""Where the numbers of described types begin; those below are Go's own."""

COMMON = Struct("CommonType", (("Name", STRING), ("Id", INT)))
ARRAY = Struct("arrayType", (("CommonType", COMMON), ("Elem", INT), ("Len", INT)))
SLICE = Struct("sliceType", (("CommonType", COMMON), ("Elem", INT)))
FIELD = Struct("fieldType", (("Name", STRING), ("Id", INT)))
FIELDS = Slice(FIELD)
STRUCT = Struct("structType", (("CommonType", COMMON), ("Field", FIELDS)))
MAP = Struct("mapType", (("CommonType", COMMON), ("Key", INT), ("Elem", INT)))
GOB_ENCODER = Struct("gobEncoderType", (("CommonType", COMMON),))

WIRE_TYPE = Struct(
    "wireType",
    (
        ("ArrayT", ARRAY),
        ("SliceT", SLICE),
        ("StructT", STRUCT),
        ("MapT", MAP),
        ("GobEncoderT", GOB_ENCODER),
        ("BinaryMarshalerT", GOB_ENCODER),
        ("TextMarshalerT", GOB_ENCODER),
    ),
)

BUILTIN_IDS: dict[Type, int] = {
    WIRE_TYPE: 16,
    ARRAY: 17,
    COMMON: 18,
    SLICE: 19,
    STRUCT: 20,
    FIELD: 21,
    FIELDS: 22,
    MAP: 23,
    GOB_ENCODER: 24,
}
