"""The conditions of an object, in the order that a person reads them: what is wrong first, then the others by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.objects import mappings_at

Raw = Mapping[str, Any]
MAX_CONDITIONS = 100  # of one object, which are shown

# True says that something is out of order, or goes on; of all others False does.
_ABNORMAL_WHEN_TRUE = frozenset({"Updating", "Reconciling", "Stalled"})


def list_conditions(raw: Raw) -> tuple[Condition, ...]:
    """Ready first, then what is not as it should be, then the rest, each by name."""
    entries = mappings_at(raw, "status", "conditions")[:MAX_CONDITIONS]
    types = dict.fromkeys(str(one.get("type")) for one in entries if one.get("type"))
    found = [one for type in types if (one := _read(entries, type)) is not None]
    return tuple(
        sorted(found, key=lambda one: (one.type != "Ready", condition_health(one) == "good", one.type))
    )


def condition_of(raw: Raw | None, type: str) -> Condition | None:
    """The condition of that type; None where there is none, or where it cannot be read."""
    return _read(mappings_at(raw, "status", "conditions"), type)


def condition_health(one: Condition) -> Literal["good", "busy", "bad"]:
    """How much it deserves attention."""
    is_true = one.status == "True"
    if one.type in _ABNORMAL_WHEN_TRUE:
        return "busy" if is_true else "good"
    return "good" if is_true else "busy" if one.status == "Unknown" else "bad"


def condition_since(one: Condition) -> datetime | None:
    """When its status changed last; None where that cannot be read."""
    try:
        return one.since
    except ValueError:
        return None


def _read(entries: list[Raw], type: str) -> Condition | None:
    try:
        return find_condition(entries, type)
    except TypeError:
        return None
