"""How two cloud-config documents become one: the driver's rules (mergo, "map, append slices"), as a table.

`left` wins over `right`: the user's data is left of the bootstrap's, so the user's
`hostname` wins, and the user's `runcmd` entries run before the installer's. A `false` on the left never wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal

from windrow.cloudinit.document import BadUserData, Document


class Rule(Enum):
    LEFT = "left stays"
    RIGHT = "right replaces it"
    DEEPER = "both maps are merged"
    JOIN = "right's entries follow left's"
    CLASH = "a list meets something else"


LeftForm = Literal["nothing", "map", "empty map", "list", "empty list", "value", "empty value"]
RightForm = Literal["nothing", "map", "list", "value"]

_L, _R, _D, _J, _X = Rule.LEFT, Rule.RIGHT, Rule.DEEPER, Rule.JOIN, Rule.CLASH

RULES: dict[LeftForm, dict[RightForm, Rule]] = {
    "nothing": {"nothing": _L, "map": _R, "list": _R, "value": _R},
    "map": {"nothing": _L, "map": _D, "list": _X, "value": _L},
    "empty map": {"nothing": _L, "map": _D, "list": _X, "value": _R},
    "list": {"nothing": _L, "map": _L, "list": _J, "value": _L},
    "empty list": {"nothing": _L, "map": _R, "list": _J, "value": _R},
    "value": {"nothing": _L, "map": _L, "list": _X, "value": _L},
    "empty value": {"nothing": _L, "map": _R, "list": _X, "value": _R},
}


def merge(left: Document, right: Document) -> Document:
    """Both documents as one. Raises BadUserData where a list meets something that is not one.

    A jinja header on either side stays: without it the other side's template would reach the machine unfilled.
    """
    return Document(_merged(left.data, right.data, ()), left.jinja or right.jinja)


def _merged(left: Mapping[Any, Any], right: Mapping[Any, Any], path: tuple[str, ...]) -> dict[Any, Any]:
    result = dict(left)
    for key, value in right.items():
        before: Any = left.get(key)
        match RULES[_left_form(before)][_right_form(value)]:
            case Rule.LEFT:
                result.setdefault(key, value)  # a key that is null on both sides stays a key
            case Rule.RIGHT:
                result[key] = value
            case Rule.DEEPER:
                result[key] = _merged(before, value, (*path, str(key)))
            case Rule.JOIN:
                result[key] = [*before, *value]
            case Rule.CLASH:
                raise BadUserData(
                    f"{'.'.join((*path, str(key)))} is a list in the machine's set-up and not in the user data",
                    "write it as a list in the user data, or leave it out",
                )
    return result


def _left_form(value: Any) -> LeftForm:
    match value:
        case None:
            return "nothing"
        case dict():
            return "map" if value else "empty map"
        case list():
            return "list" if value else "empty list"
        case _:
            return "value" if value else "empty value"


def _right_form(value: Any) -> RightForm:
    match value:
        case None:
            return "nothing"
        case dict():
            return "map"
        case list():
            return "list"
        case _:
            return "value"
