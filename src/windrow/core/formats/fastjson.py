"""JSON for services, by msgspec: decodes a large list several times faster than the standard library."""

from __future__ import annotations

import msgspec

from windrow.core.formats.json import Json, NotJson


class _Parts(msgspec.Struct):
    """The members of a list of the Kubernetes API, not decoded. Its items are nearly all of it."""

    items: msgspec.Raw = msgspec.Raw(b"")
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    kind: msgspec.Raw = msgspec.Raw(b"null")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_parts_decoder = msgspec.json.Decoder(_Parts)
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def loads(text: str | bytes) -> Json:
    """The value that `text` encodes. Raises NotJson."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(str(error)) from error


def loads_list(text: str | bytes) -> Json:
    """The list of the Kubernetes API that `text` encodes, with items that are not decoded: each is a text for `loads`, whose
    own errors are found only then. Takes a tenth of the time of `loads`. Items that are no list are {}. Raises NotJson."""
    try:
        parts = _parts_decoder.decode(text)
        raw = {"kind": loads(bytes(parts.kind)), "metadata": loads(bytes(parts.metadata))}
        match bytes(parts.items)[:1]:
            case b"[":
                return raw | {"items": _items_decoder.decode(parts.items)}
            case b"n":
                return raw | {"items": None}
            case b"":
                return raw
            case _:
                return raw | {"items": {}}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(str(error)) from error


def dumps(value: Json) -> bytes:
    """Compact UTF-8 JSON, keys in the order given."""
    return _encoder.encode(value)
