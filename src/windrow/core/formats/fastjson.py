"""JSON for services, by msgspec: decodes a large list several times faster than the standard library."""

from __future__ import annotations

import msgspec

from windrow.core.formats.json import Json, NotJson

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def loads(text: str | bytes) -> Json:
    """The value that `text` encodes. Raises NotJson."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(str(error)) from error


def dumps(value: Json) -> bytes:
    """Compact UTF-8 JSON, keys in the order given."""
    return _encoder.encode(value)
