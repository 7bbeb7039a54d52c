"""Conditions of an object's status: find and set them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from windrow.core.clock import format_time, parse_time
from windrow.kubernetes.objects import text_at

ConditionStatus = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. `last_transition_time` is when `status` changed, "" where the writer left it out."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""

    @property
    def since(self) -> datetime | None:
        return parse_time(self.last_transition_time) if self.last_transition_time else None


def find_condition(conditions: Sequence[Mapping[str, Any]] | None, type: str) -> Condition | None:
    """The condition of that type, or None. Accepts the `null` times that KubeVirt writes."""
    for raw in conditions or ():
        if raw.get("type") == type:
            return Condition(
                type,
                _status(text_at(raw, "status")),
                text_at(raw, "reason"),
                text_at(raw, "message"),
                text_at(raw, "lastTransitionTime"),
            )
    return None


def _status(text: str) -> ConditionStatus:
    return "True" if text == "True" else "False" if text == "False" else "Unknown"


def is_true(conditions: Sequence[Mapping[str, Any]] | None, type: str) -> bool:
    raw = next((raw for raw in conditions or () if raw.get("type") == type), None)
    return raw is not None and text_at(raw, "status") == "True"


def set_condition(
    conditions: Sequence[Mapping[str, Any]] | None, wanted: Condition, now: datetime
) -> list[dict[str, Any]]:
    """A new list with the condition `wanted`; its lastTransitionTime changes only with its status."""
    before = find_condition(conditions, wanted.type)
    since = (
        before.last_transition_time
        if before is not None and before.status == wanted.status and before.last_transition_time
        else format_time(now)
    )
    written = {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "lastTransitionTime": since,
    }
    kept = [written if raw.get("type") == wanted.type else dict(raw) for raw in conditions or ()]
    return kept if before is not None else [*kept, written]
