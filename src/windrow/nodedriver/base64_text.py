"""Values that may come as base64 of a text, or as the text itself."""

from __future__ import annotations

import base64
import binascii

_LAYOUT = frozenset("\n\r\t")


def decode_if_base64(value: str) -> str:
    """The text that `value` encodes, else `value` as it is.

    The Go driver decodes whatever its base64 decoder accepts, and so turns the plain word `null` into three bytes
    of garbage. We decode only when readable text comes out.
    """
    # Go's decoder ignores line ends anywhere; it wants the standard alphabet and exact padding.
    packed = value.replace("\r", "").replace("\n", "")
    if len(packed) % 4:
        return value
    try:
        text = base64.b64decode(packed, validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        return value
    return text if all(character.isprintable() or character in _LAYOUT for character in text) else value
