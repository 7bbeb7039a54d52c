"""The Ready condition as wrangler writes it: `lastUpdateTime` instead of a transition time, empty fields left out."""

from __future__ import annotations

from datetime import datetime

from windrow.core.clock import format_time
from windrow.emulator.load_balancers import names
from windrow.kubernetes.objects import Raw


def set_ready(raw: Raw, state: str, message: str, now: datetime) -> None:
    """Write it into the object's status; `lastUpdateTime` changes only with status or message."""
    status = raw.setdefault("status", {})
    condition: Raw = {"type": names.READY, "status": state}
    if message:
        condition["message"] = message
    conditions = status.get("conditions") or []
    before: Raw = next((one for one in conditions if one.get("type") == names.READY), {})
    if {key: before.get(key) for key in ("status", "message")} == {
        "status": state,
        "message": message or None,
    }:
        return
    others = [one for one in conditions if one.get("type") != names.READY]
    status["conditions"] = [*others, {**condition, "lastUpdateTime": format_time(now)}]
