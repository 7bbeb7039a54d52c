"""The decoder: bytes to values, with limits on what a hostile peer can cost.

One value may span several messages, since a description inside an interface ends a message. So reading a value is a
generator that yields where it needs one more message: no byte is read twice, wherever messages are cut.

The cost of hostile bytes is bounded: every value takes at least one byte of input, is counted, and is made only when
its bytes are there; the messages of one value together, the values in it, their depth, and the described types with
their fields have limits.
"""

from __future__ import annotations

from windrow.protocols.gob.definitions import BUILTIN_IDS, FIRST_ID, WIRE_TYPE
from windrow.protocols.gob.numbers import BadGob, Cursor, find_uint
from windrow.protocols.gob.types import Basic, Interface, Slice, Struct, Type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Final

    Reading = Generator[None, None, Any]


class NotYet:
    """The type of NOT_YET, which `next` returns while the next value is incomplete."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOT_YET"


NOT_YET: Final = NotYet()

MAX_DEPTH = 100
"""Reading uses Python's own stack, so no limit of depth can be beyond this."""

MAX_NAME_LENGTH = 1024

DESCRIPTION_DEPTH = 8
"""A description is less deep than this by its own shape, so a limit of depth need not leave room for it."""


class Limits:
    """What one value may cost: `size` bytes in all its messages, `elements` values in it, `depth` of nesting; and what
    the stream may cost: `types` described, with `elements` fields together.
    """

    __slots__ = ("depth", "elements", "size", "types")

    def __init__(self, *, size: int, elements: int, depth: int, types: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"a depth of {depth} is beyond {MAX_DEPTH}, what this decoder can hold")
        self.size = size
        self.elements = elements
        self.depth = depth
        self.types = types


class Decoder:
    """The receiving end of one gob stream: `feed` it bytes, and call `next` for the values.

    Call `next` until NOT_YET after each feed; then at most one value's bytes are buffered. After BadGob the
    stream is lost: every later `next` raises the same.
    """

    __slots__ = (
        "_broken",
        "_buffer",
        "_cursor",
        "_elements",
        "_fields",
        "_in_progress",
        "_limits",
        "_previous_elements",
        "_size",
        "_types",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._cursor = Cursor(bytearray())
        self._types: dict[int, Shape] = {}
        self._in_progress: Reading | None = None
        self._broken: BadGob | None = None
        self._size = self._elements = self._previous_elements = self._fields = 0

    def feed(self, data: bytes) -> None:
        if self._broken is None:
            self._buffer += data

    @property
    def idle(self) -> bool:
        """Whether the stream is between two values, so that it may end here."""
        return not self._buffer and self._in_progress is None and self._broken is None

    @property
    def steps(self) -> int:
        """How many values, inner ones included, were read so far; each was paid for by a byte of input."""
        return self._previous_elements + self._elements

    def next(self) -> Any:
        """The next value, or NOT_YET; raises BadGob for anything malformed or beyond the limits."""
        if self._broken is not None:
            raise BadGob(*self._broken.args)
        try:
            return self._advance()
        except BadGob as error:
            self._fail(error)
            raise

    def _fail(self, error: BadGob) -> None:
        """Keep the error, and free all buffers."""
        self._broken = BadGob(*error.args)
        self._in_progress = None
        self._cursor = Cursor(bytearray())
        self._buffer.clear()
        self._types.clear()

    def _advance(self) -> Any:
        while self._next_message():
            if self._in_progress is None:
                self._in_progress = self._read_value()
            try:
                self._in_progress.send(None)
            except StopIteration as done:
                self._in_progress = None
                return done.value
        return NOT_YET

    def _next_message(self) -> bool:
        if self._in_progress is None:
            self._size = 0
        found = find_uint(self._buffer, 0)
        if found is None:
            return False
        size, start = found
        if not 0 < size <= self._limits.size - self._size:
            raise BadGob(f"a message of {size} bytes; a value may have 1 to {self._limits.size}")
        if len(self._buffer) < start + size:
            return False
        self._size += size
        self._cursor = Cursor(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return True

    # --- values ---

    def _read_value(self) -> Reading:
        self._previous_elements += self._elements
        self._elements = 0
        type_id = yield from self._read_type_id(in_interface=False)
        value = yield from self._read_framed(type_id, 0)
        if self._cursor.at != self._cursor.end:
            raise BadGob(f"{self._cursor.end - self._cursor.at} bytes are left over after a value")
        return value

    def _read_type_id(self, in_interface: bool) -> Generator[None, None, int]:
        """The number of the type that follows, after all descriptions that come before it."""
        while True:
            if self._cursor.at == self._cursor.end:
                yield
            type_id = self._cursor.int()
            if type_id >= 0:
                return type_id
            yield from self._read_description(-type_id)
            if self._cursor.at == self._cursor.end:
                continue
            if not in_interface:
                raise BadGob("bytes are left over after the description of a type")
            self._cursor.uint()  # the size of the chunk that follows; not needed, since values are self-delimiting

    def _read_framed(self, type_id: int, depth: int) -> Reading:
        if not isinstance(self._find_shape(type_id), StructShape) and self._cursor.uint() != 0:
            raise BadGob("a value that is no struct has a field number")
        return (yield from self.read(type_id, depth))

    def read(self, type_id: int, depth: int) -> Reading:
        """One value of that type. Yields when it needs another message."""
        self.count(1)
        scalar = SCALARS.get(type_id)
        if scalar is not None:
            return scalar(self._cursor)
        if depth >= self._limits.depth:
            raise BadGob(f"values nested deeper than {self._limits.depth}")
        if type_id == INTERFACE_ID:
            return (yield from self._read_interface(depth + 1))
        shape = self._find_shape(type_id)
        if shape is None:
            raise BadGob(
                f"a value of type {type_id}, which {UNSUPPORTED.get(type_id, 'was never described')}"
            )
        return (yield from shape.read(self, depth + 1))

    def _read_interface(self, depth: int) -> Reading:
        name = self._cursor.string()
        if not name:
            return None
        if len(name) > MAX_NAME_LENGTH:
            raise BadGob(f"the name of a type has {len(name)} characters")
        type_id = yield from self._read_type_id(in_interface=True)
        self._cursor.uint()  # the number of bytes up to the next description; not needed
        value = yield from self._read_framed(type_id, depth)
        return Interface(name, value)

    def count(self, elements: int) -> None:
        """Count values before they are read. Raises BadGob beyond the limit."""
        self._elements += elements
        if self._elements > self._limits.elements:
            raise BadGob(f"more than {self._limits.elements} values in one")

    def uint(self) -> int:
        return self._cursor.uint()

    def scalars(self, scalar: Callable[[Cursor], Any], count: int) -> list[Any]:
        """That many scalars in a row."""
        cursor = self._cursor
        if count > cursor.end - cursor.at:
            raise BadGob(f"{count} elements are announced and {cursor.end - cursor.at} bytes are there")
        self.count(count)
        return [scalar(cursor) for _ in range(count)]

    # --- types ---

    def _find_shape(self, type_id: int) -> Shape | None:
        return self._types.get(type_id) or BUILTIN_SHAPES.get(type_id)

    def _read_description(self, type_id: int) -> Reading:
        if type_id < FIRST_ID or type_id in self._types:
            raise BadGob(f"type {type_id} is described again")
        if len(self._types) >= self._limits.types:
            raise BadGob(f"more than {self._limits.types} types are described")
        raw = yield from self.read(BUILTIN_IDS[WIRE_TYPE], self._limits.depth - DESCRIPTION_DEPTH)
        shape = _shape_of(type_id, raw)
        if isinstance(shape, StructShape):
            self._fields += len(shape.fields)
        if self._fields > self._limits.elements:
            raise BadGob(f"more than {self._limits.elements} fields are described")
        self._types[type_id] = shape


# --- the shapes of described types ----------------------------------------------------------------------------------

INTERFACE_ID = 8
UNSUPPORTED = {7: "is complex: not understood here"}

SCALARS: dict[int, Callable[[Cursor], Any]] = {
    1: Cursor.bool,
    2: Cursor.int,
    3: Cursor.uint,
    4: Cursor.float,
    5: Cursor.bytes,
    6: Cursor.string,
}


class SliceShape:
    """A slice; with `length` an array."""

    __slots__ = ("elem", "length")

    def __init__(self, elem: int, length: int | None = None) -> None:
        self.elem = elem
        self.length = length

    def read(self, decoder: Decoder, depth: int) -> Reading:
        count = decoder.uint()
        if self.length is not None and count != self.length:
            raise BadGob(f"an array of {self.length} has {count} elements")
        scalar = SCALARS.get(self.elem)
        if scalar is not None:
            return decoder.scalars(scalar, count)
        found = []
        for _ in range(count):
            found.append((yield from decoder.read(self.elem, depth)))
        return found


class MapShape:
    __slots__ = ("elem", "key")

    def __init__(self, key: int, elem: int) -> None:
        self.key = key
        self.elem = elem

    def read(self, decoder: Decoder, depth: int) -> Reading:
        count = decoder.uint()
        if self.key not in SCALARS:
            raise BadGob(f"a map with keys of type {self.key}; only plain values can be keys")
        found = {}
        for _ in range(count):
            key = yield from decoder.read(self.key, depth)
            found[key] = yield from decoder.read(self.elem, depth)
        return found


class StructShape:
    __slots__ = ("fields",)

    def __init__(self, fields: tuple[tuple[str, int], ...]) -> None:
        self.fields = fields

    def read(self, decoder: Decoder, depth: int) -> Reading:
        found = {}
        number = -1
        while delta := decoder.uint():
            number += delta
            if number >= len(self.fields):
                raise BadGob(f"field {number} of a struct that has {len(self.fields)}")
            name, type_id = self.fields[number]
            found[name] = yield from decoder.read(type_id, depth)
        return found


Shape = SliceShape | MapShape | StructShape
"""How values of one described type are read."""


def _shape_of(type_id: int, raw: dict[str, Any]) -> Shape:
    if len(raw) != 1:
        raise BadGob(f"type {type_id} is described as {len(raw)} kinds of type")
    ((kind, detail),) = raw.items()
    if detail.get("CommonType", {}).get("Id", 0) != type_id:
        raise BadGob(f"the description of type {type_id} is that of another")
    make = _SHAPES.get(kind)
    if make is None:
        raise BadGob(f"type {type_id} encodes itself ({kind}), which is not understood here")
    return make(detail)


def _struct_shape(raw: dict[str, Any]) -> Shape:
    fields = tuple((field.get("Name", ""), field.get("Id", 0)) for field in raw.get("Field", ()))
    if len({name for name, _ in fields}) != len(fields):
        raise BadGob("a struct has two fields of one name")
    return StructShape(fields)


_SHAPES: dict[str, Callable[[dict[str, Any]], Shape]] = {
    "ArrayT": lambda raw: SliceShape(raw.get("Elem", 0), raw.get("Len", 0)),
    "SliceT": lambda raw: SliceShape(raw.get("Elem", 0)),
    "MapT": lambda raw: MapShape(raw.get("Key", 0), raw.get("Elem", 0)),
    "StructT": _struct_shape,
}


def _builtin_shape(type: Type) -> Shape:
    if isinstance(type, Struct):
        return StructShape(tuple((name, _builtin_id(field)) for name, field in type.fields))
    assert isinstance(type, Slice)
    return SliceShape(_builtin_id(type.elem))


def _builtin_id(type: Type) -> int:
    return type.id if isinstance(type, Basic) else BUILTIN_IDS[type]


BUILTIN_SHAPES = {type_id: _builtin_shape(type) for type, type_id in BUILTIN_IDS.items()}
