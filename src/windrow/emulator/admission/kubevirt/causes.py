"""Causes of KubeVirt's refusals: a text, the field, and a machine's word for the fault.

A rule is a small function of the spec and the path it stands at; it yields every cause that it finds. All rules of a
spec are applied, and KubeVirt answers with the first ten texts (reference 05 §3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from windrow.emulator.quantities import Quantity
from windrow.kubernetes.objects import Raw, nested

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
NOT_FOUND = "FieldValueNotFound"
FORBIDDEN = "FieldValueForbidden"

MOST_TOLD = 10


class Cause(NamedTuple):
    message: str
    field: str = ""
    reason: str = INVALID

    def render(self) -> Raw:
        """Without what is empty, as Go writes it."""
        fields = {"reason": self.reason, "message": self.message, "field": self.field}
        return {key: value for key, value in fields.items() if value}


Rule = Callable[[Raw, str], Iterator[Cause]]


def apply(rules: Iterable[Rule], spec: Raw, at: str) -> list[Cause]:
    return [cause for rule in rules for cause in rule(spec, at)]


def join_messages(causes: list[Cause]) -> str:
    """The text of the whole refusal."""
    text = ", ".join(cause.message for cause in causes[:MOST_TOLD])
    more = len(causes) - MOST_TOLD
    return f"{text}, and {more} more validation errors" if more > 0 else text


# --- readings: a value of another shape counts as absent, and the schema refuses it after the mutators ----------------


def objects(raw: Any, *path: str) -> list[Raw]:
    """The objects of a list, in order."""
    found = nested(raw, *path, default=[])
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def section(raw: Any, *path: str) -> Raw:
    found = nested(raw, *path, default={})
    return found if isinstance(found, dict) else {}


def text(raw: Any, *path: str) -> str:
    found = nested(raw, *path, default="")
    return found if isinstance(found, str) else ""


def whole(raw: Any, *path: str) -> int:
    found = nested(raw, *path, default=0)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def flag(raw: Any, *path: str) -> bool:
    return nested(raw, *path) is True


def texts(raw: Any, *path: str) -> list[str]:
    found = nested(raw, *path, default=[])
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def quantity(raw: Any, *path: str) -> Quantity:
    """Zero where it is missing or unreadable."""
    found = nested(raw, *path)
    return Quantity.read(found.strip() if isinstance(found, str) else found)


def has(raw: Mapping[str, Any], *keys: str) -> list[str]:
    """Those of `keys` that are set."""
    return [key for key in keys if raw.get(key) is not None]
