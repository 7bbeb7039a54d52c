"""The conditions of an object, in the order that a person reads them: what is wrong first, then the others by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from windrow.kubernetes.conditions import Condition, find_condition
from windrow.kubernetes.objects import mappings_at

Raw = Mapping[str, Any]
MAX_CONDITIONS = 100  # of one object, which are shown

Health = Literal["good", "busy", "bad"]

# What True and False of a condition say, where it is not that True is good and False bad.
_POLARITY: Mapping[str, tuple[Health, Health]] = {
    **dict.fromkeys(
        ("Updating", "RollingOut", "Reconciling", "InProgress", "Provisioning"), ("busy", "good")
    ),
    **dict.fromkeys(("Paused", "RestartRequired"), ("busy", "good")),
    **dict.fromkeys(("Stalled", "Failed", "Failure", "NetworkUnavailable"), ("bad", "good")),
    **dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure"), ("bad", "good")),
    # A property of a VM: one with a device of its host cannot migrate.
    **dict.fromkeys(("LiveMigratable", "StorageLiveMigratable"), ("good", "good")),
}
# Reasons for which a change is not under way though it is asked for.
_REASONS: Mapping[tuple[str, str], Health] = {
    ("Updating", "UpdateFailed"): "bad",
    ("RollingOut", "UpdateFailed"): "bad",
    ("RollingOut", "Paused"): "busy",
    ("RollingOut", "Canary"): "busy",
    ("RollingOut", "Held"): "busy",
}


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


def condition_health(one: Condition) -> Health:
    """How much it deserves attention."""
    if one.status not in ("True", "False"):
        return "busy"
    when_true, when_false = _POLARITY.get(one.type, ("good", "bad"))
    return when_true if one.status == "True" else _REASONS.get((one.type, one.reason), when_false)


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
