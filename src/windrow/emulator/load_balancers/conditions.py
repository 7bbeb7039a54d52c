"""The Ready condition as wrangler writes it: `lastUpdateTime` instead of a transition time, empty words left out."""

from __future__ import annotations

from datetime import datetime

from windrow.core.clock import format_time
from windrow.emulator.load_balancers import names
from windrow.kubernetes.objects import Raw


def say_ready(raw: Raw, truth: str, message: str, now: datetime) -> None:
    """Write it into the object's status; its date moves only when it says something new."""
    status = raw.setdefault("status", {})
    said: Raw = {"type": names.READY, "status": truth}
    if message:
        said["message"] = message
    conditions = status.get("conditions") or []
    before: Raw = next((one for one in conditions if one.get("type") == names.READY), {})
    if {key: before.get(key) for key in ("status", "message")} == {
        "status": truth,
        "message": message or None,
    }:
        return
    kept = [one for one in conditions if one.get("type") != names.READY]
    status["conditions"] = [*kept, {**said, "lastUpdateTime": format_time(now)}]
