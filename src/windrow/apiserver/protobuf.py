"""Kubernetes protobuf bodies, decoded into the same dicts that their JSON form gives (reference/05 §7.4).

A body is four magic bytes and a message `Unknown {typeMeta, raw}`, whose `raw` is the object. Field numbers, names and
kinds are in `kubernetes_fields.json`; each field there is `"number": "name kind"`, where kind is a scalar, the name
of a message, `[]kind`, `{}kind` (a map from strings), and `!` marks a field that JSON shows even when it is zero. A
field without a name is inlined into its message, as in Go.

Only decoding: answering JSON to a client that prefers protobuf works for every client known.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from windrow.apiserver.types.field_types import read_table
from windrow.core.formats.json import NotJson, loads

MAGIC = b"k8s\x00"

Raw = dict[str, Any]
Value = int | bytes


class NotProtobuf(ValueError):
    """The bytes are not a Kubernetes protobuf body; the message says why."""


class UnknownMessage(NotProtobuf):
    """A well-formed body of a kind that is not in `kubernetes_fields.json`."""


# --- wire format -------------------------------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise NotProtobuf("a number is cut off or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def read_fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """`(number, value)` of each field: an int for numbers, bytes for everything of a length. Raises NotProtobuf."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, form = tag >> 3, tag & 7
        match form:
            case 0:
                value, at = _varint(data, at)
                yield number, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(data, at)
            case 5:
                size = 4
            case _:
                raise NotProtobuf(f"field {number} has the unknown wire type {form}")
        if at + size > len(data):
            raise NotProtobuf(f"field {number} wants {size} bytes, {len(data) - at} are left")
        yield number, data[at : at + size]
        at += size


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


# --- values with a form of their own --------------------------------------------------------------------------------


def _numbered(data: bytes) -> dict[int, Value]:
    return dict(read_fields(data))


def _instant(data: bytes) -> datetime | None:
    found = _numbered(data)
    if not found:
        return None
    seconds, nanos = found.get(1, 0), found.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise NotProtobuf("a time holds text where numbers belong")
    try:
        return datetime.fromtimestamp(_signed(seconds), UTC) + timedelta(microseconds=nanos // 1000)
    except (OverflowError, ValueError, OSError) as error:
        raise NotProtobuf(f"a time is out of range: {error}") from error


def _time(data: bytes) -> str | None:
    instant = _instant(data)
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ") if instant else None


def _microtime(data: bytes) -> str | None:
    instant = _instant(data)
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if instant else None


def _quantity(data: bytes) -> str | None:
    return _text(_numbered(data).get(1, b"")) or None


def _int_or_string(data: bytes) -> int | str:
    found = _numbered(data)
    if found.get(1, 0) == 1:
        return _text(found.get(3, b""))
    number = found.get(2, 0)
    return _signed(number) if isinstance(number, int) else 0


def _duration(data: bytes) -> str:
    number = _numbered(data).get(1, 0)
    nanos = _signed(number) if isinstance(number, int) else 0
    return f"{nanos / 1e9:g}s"


def _json(data: bytes) -> Any:
    inner = _numbered(data).get(1, b"")
    try:
        return loads(inner) if isinstance(inner, bytes) and inner else None
    except NotJson as error:
        raise NotProtobuf(f"an embedded JSON value cannot be read: {error}") from error


def _text(value: Value) -> str:
    if not isinstance(value, bytes):
        raise NotProtobuf("expected a string, found a number")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise NotProtobuf(f"a text is not UTF-8: {error}") from error


_FORMS = {
    "time": _time,
    "microtime": _microtime,
    "quantity": _quantity,
    "intorstring": _int_or_string,
    "duration": _duration,
    "json": _json,
}


# --- messages -------------------------------------------------------------------------------------------------------


def _decode(kind: str, value: Value) -> Any:
    match kind:
        case "string":
            return _text(value)
        case "int":
            return _number(value)
        case "bool":
            return bool(value)
        case "bytes":
            return b64encode(_bytes(value)).decode()
    if kind in _FORMS:
        return _FORMS[kind](_bytes(value))
    return decode_message(kind, _bytes(value))


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise NotProtobuf("expected a number, found a message")
    return _signed(value)


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise NotProtobuf("expected a message, found a number")
    return value


def _map_entry(kind: str, data: bytes) -> tuple[str, Any]:
    found = _numbered(data)
    if kind.startswith("[]"):  # a list as the value of a map is a message with repeated items
        items = [
            _decode(kind[2:], item) for number, item in read_fields(_bytes(found.get(2, b""))) if number == 1
        ]
        return _text(found.get(1, b"")), items
    empty: Value = 0 if kind in ("int", "bool") else b""
    return _text(found.get(1, b"")), _decode(kind, found.get(2, empty))


def decode_message(name: str, data: bytes) -> Raw:
    """The message `name` as a dict. Unknown fields are skipped. Raises NotProtobuf."""
    fields = read_table()[1][name]
    made: Raw = {}
    for number, value in read_fields(data):
        field = fields.get(number)
        if field is None:
            continue
        label, kind, always = field
        if kind.startswith("[]"):
            made.setdefault(label, []).append(_decode(kind[2:], value))
        elif kind.startswith("{}"):
            key, item = _map_entry(kind[2:], _bytes(value))
            made.setdefault(label, {})[key] = item
        else:
            decoded = _decode(kind, value)
            if label == "":
                made.update(decoded)
            elif always or decoded not in (None, "", 0):
                made[label] = decoded
    return made


def decode_object(body: bytes) -> Raw:
    """The object in a request body, with its apiVersion and kind. Raises NotProtobuf, UnknownMessage."""
    if not body.startswith(MAGIC):
        raise NotProtobuf("the body does not start with the four bytes of Kubernetes protobuf")
    envelope = _numbered(body[len(MAGIC) :])
    meta = _numbered(_bytes(envelope.get(1, b"")))
    version, kind = _text(meta.get(1, b"")), _text(meta.get(2, b""))
    kinds, _ = read_table()
    # DeleteOptions belongs to every group version, with one form.
    message = kinds.get(f"{version} {kind}") or (
        kinds["v1 DeleteOptions"] if kind == "DeleteOptions" else None
    )
    if message is None:
        raise UnknownMessage(
            f"the fields of {kind or 'an unnamed kind'} in {version or 'no version'} are not known"
        )
    return {"apiVersion": version, "kind": kind, **decode_message(message, _bytes(envelope.get(2, b"")))}
