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


# Deeper than any CRD's schema, and far from the depth at which a recursive function fails.
MAX_DEPTH = 200


def loads(text: str | bytes) -> Json:
    """The value that `text` encodes, at most MAX_DEPTH levels deep. Raises NotJson."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error
    check_bounds(value)
    return value


def check_bounds(value: Json, max_values: int | None = None) -> None:
    """Raise NotJson for a value deeper than MAX_DEPTH, or of more than `max_values` values. Without recursion."""
    count, level = 1, [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        count += sum(map(len, level))
        if max_values is not None and count > max_values:
            raise NotJson(f"it has more than {max_values} values")
        children = (one.values() if isinstance(one, dict) else one for one in level)
        level = [inner for outer in children for inner in outer if isinstance(inner, dict | list)]
        if not level:
            return
    raise NotJson(f"it is nested more than {MAX_DEPTH} levels deep")


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
