"""JSON by the standard library, for packages that the plugin process loads.

Services that decode large lists use `core.fastjson`, which gives the same values.
"""

from __future__ import annotations

import json
from typing import Any

Json = Any
Raw = dict[str, Any]


class NotJson(ValueError):
    """The text is not JSON; the message says where."""


def loads(text: str | bytes) -> Json:
    """The value that `text` encodes. Raises NotJson."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def loads_or_none(text: str | bytes) -> Json:
    """The value that `text` encodes; None where it is not JSON, as in an annotation that a user edited."""
    try:
        return loads(text)
    except NotJson:
        return None


def dumps(value: Json) -> bytes:
    """Compact UTF-8 JSON, keys in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def pretty(value: Json) -> str:
    """Indented JSON for people."""
    return json.dumps(value, indent=2, ensure_ascii=False)
