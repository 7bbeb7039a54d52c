"""Values to bytes, in the order in which Go itself would write them."""

from __future__ import annotations

from windrow.protocols.gob.definitions import FIRST_ID, WIRE_TYPE
from windrow.protocols.gob.numbers import BadGob, write_bytes, write_float, write_int, write_uint
from windrow.protocols.gob.types import INTERFACE, Basic, Interface, MapOf, Slice, Struct, Type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

MAX_NAME_LENGTH = 1024
"""Go refuses the name of an interface's type beyond this."""


class Encoder:
    """The sending end of one gob stream. `registry` maps the names of interfaces' types to the types.

    The bytes are those of Go's encoder for the same values, type numbers and cuts of messages included; only maps,
    which Go sends in random order, are sent in the order of the dict.
    """

    __slots__ = ("_described", "_ids", "_named", "_registry")

    def __init__(self, registry: Mapping[str, Type]) -> None:
        self._registry = registry
        self._ids: dict[Type, int] = {}
        self._named: dict[Type, Type] = {}
        self._described: set[Type] = set()

    def encode(self, type: Type, value: Any) -> bytes:
        """The messages that carry the value, with the descriptions of types that are new to this stream.

        In a struct, what the dict lacks (or has as None) is left out, and so are zeros as Go leaves them out; an empty
        map or struct that is there is sent. Raises BadGob where the value does not fit; the stream is then as before.
        """
        return self.encode_all(((type, value),))

    def encode_all(self, values: Iterable[tuple[Type, Any]]) -> bytes:
        """Several values in a row: all or, where one does not fit its type, none."""
        before = dict(self._ids), dict(self._named), set(self._described)
        try:
            return b"".join([self._encode(type, value) for type, value in values])
        except BaseException:
            self._ids, self._named, self._described = before
            raise

    def _encode(self, type: Type, value: Any) -> bytes:
        stream, message = bytearray(), bytearray()
        self._describe(type, message, stream)
        write_int(message, self._id(type))
        self._write_framed(type, value, message, stream)
        write_bytes(stream, message)
        return bytes(stream)

    # `out` is what is being written; `sink` is where Go sends `out`, counted, when a description ends it: the stream
    # itself or, for an interface in an interface, the buffer of the outer one. That is why a description inside an
    # interface cuts a message in two, and inside two of them cuts a value into counted chunks.

    def _write_framed(self, type: Type, value: Any, out: bytearray, sink: bytearray) -> None:
        if not isinstance(type, Struct):
            out.append(0)  # in place of the field number that only structs have
        self._write(type, value, out, sink)

    def _write(self, type: Type, value: Any, out: bytearray, sink: bytearray) -> None:
        if isinstance(type, Struct):
            self._write_struct(type, value, out, sink)
        elif isinstance(type, Slice):
            self._write_slice(type, value, out, sink)
        elif isinstance(type, MapOf):
            self._write_map(type, value, out, sink)
        elif type == INTERFACE:
            self._write_interface(value, out, sink)
        else:
            assert isinstance(type, Basic)
            _SCALARS[type.name](out, value)

    def _write_struct(self, type: Struct, value: Any, out: bytearray, sink: bytearray) -> None:
        _require(isinstance(value, dict), type, value)
        unknown = value.keys() - {name for name, _ in type.fields}
        if unknown:
            raise BadGob(f"{type.name or 'the struct'} has no field {sorted(map(str, unknown))[0]!r}")
        last = -1
        for number, (name, field) in enumerate(type.fields):
            each = value.get(name)
            if _is_omitted(field, each):
                continue
            write_uint(out, number - last)
            last = number
            self._write(field, each, out, sink)
        out.append(0)

    def _write_slice(self, type: Slice, value: Any, out: bytearray, sink: bytearray) -> None:
        _require(isinstance(value, list | tuple), type, value)
        write_uint(out, len(value))
        for each in value:
            self._write(type.elem, each, out, sink)

    def _write_map(self, type: MapOf, value: Any, out: bytearray, sink: bytearray) -> None:
        _require(isinstance(value, dict), type, value)
        write_uint(out, len(value))
        for key, each in value.items():
            self._write(type.key_type, key, out, sink)
            self._write(type.elem, each, out, sink)

    def _write_interface(self, value: Any, out: bytearray, sink: bytearray) -> None:
        if value is None:
            out.append(0)
            return
        _require(isinstance(value, Interface), INTERFACE, value)
        type = self._registry.get(value.name)
        name = value.name.encode()
        if type is None or not 0 < len(name) <= MAX_NAME_LENGTH:
            raise BadGob(f"no type is registered as {value.name!r}")
        write_bytes(out, name)
        self._describe(type, out, sink)
        write_int(out, self._id(type))
        inner = bytearray()
        self._write_framed(type, value.value, inner, out)
        write_bytes(out, inner)

    # --- types ---

    def _id(self, type: Type) -> int:
        return type.id if isinstance(type, Basic) else self._ids[type]

    def _describe(self, type: Type, out: bytearray, sink: bytearray) -> None:
        """Write the descriptions of the type and of each type in it: each ends the message `out` and begins a new one."""
        if isinstance(type, Basic) or type in self._described:
            return
        self._assign_ids(type)
        self._described.add(type)
        write_int(out, -self._ids[type])
        self._write(WIRE_TYPE, self._description(self._named[type]), out, sink)
        write_bytes(sink, out)
        out.clear()
        for part in _parts(type):
            self._describe(part, out, sink)

    def _assign_ids(self, type: Type) -> None:
        """Gives numbers in Go's order: a struct before what it holds, a slice or map after. The first name stays."""
        if isinstance(type, Basic) or type in self._ids:
            return
        if isinstance(type, Struct):
            self._assign_id(type)
        for part in _parts(type):
            self._assign_ids(part)
        if not isinstance(type, Struct):
            self._assign_id(type)

    def _assign_id(self, type: Type) -> None:
        self._ids[type] = FIRST_ID + len(self._ids)
        self._named[type] = type

    def _description(self, type: Type) -> dict[str, Any]:
        if isinstance(type, Struct):
            fields = [{"Name": name, "Id": self._id(field)} for name, field in type.fields]
            return {"StructT": {"CommonType": self._common(type, type.name), "Field": fields}}
        if isinstance(type, MapOf):
            ids = {"Key": self._id(type.key_type), "Elem": self._id(type.elem)}
            return {"MapT": {"CommonType": self._common(type, type.name), **ids}}
        assert isinstance(type, Slice)
        return {"SliceT": {"CommonType": self._common(type, type.name), "Elem": self._id(type.elem)}}

    def _common(self, type: Type, name: str) -> dict[str, Any]:
        return {"Name": name, "Id": self._ids[type]}


def _parts(type: Type) -> tuple[Type, ...]:
    if isinstance(type, Struct):
        return tuple(field for _, field in type.fields)
    if isinstance(type, MapOf):
        return type.key_type, type.elem
    return (type.elem,) if isinstance(type, Slice) else ()


def _is_omitted(type: Type, value: Any) -> bool:
    """Whether Go omits the field: a zero value, but never a struct, and no map but nil."""
    return value is None or (not value and not isinstance(type, Struct | MapOf))


# --- scalars --------------------------------------------------------------------------------------------------------


def _require(fits: bool, type: Type, value: object) -> None:
    if not fits:
        raise BadGob(f"{value.__class__.__name__} does not fit {type!r}")


def _write_bool(out: bytearray, value: Any) -> None:
    if value is not True and value is not False:
        raise BadGob(f"{value.__class__.__name__} is no bool")
    out.append(value)


def _write_int(out: bytearray, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise BadGob(f"{value.__class__.__name__} is no int of 64 bits")
    write_int(out, value)


def _write_uint(out: bytearray, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise BadGob(f"{value.__class__.__name__} is no unsigned int of 64 bits")
    write_uint(out, value)


def _write_float(out: bytearray, value: Any) -> None:
    if not isinstance(value, float):
        raise BadGob(f"{value.__class__.__name__} is no float")
    write_float(out, value)


def _write_bytes(out: bytearray, value: Any) -> None:
    if not isinstance(value, bytes | bytearray):
        raise BadGob(f"{value.__class__.__name__} is no bytes")
    write_bytes(out, value)


def _write_string(out: bytearray, value: Any) -> None:
    if not isinstance(value, str):
        raise BadGob(f"{value.__class__.__name__} is no string")
    try:
        write_bytes(out, value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise BadGob(f"a string that is no Unicode: {error.reason}") from None


_SCALARS: dict[str, Callable[[bytearray, Any], None]] = {
    "bool": _write_bool,
    "int": _write_int,
    "uint": _write_uint,
    "float": _write_float,
    "bytes": _write_bytes,
    "string": _write_string,
}
