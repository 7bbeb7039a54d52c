"""Readiness of a LoadBalancer: reasons why it is not Ready, each with its retry, and the Ready condition (reference 02 §4.3)."""

from __future__ import annotations

from datetime import datetime

from windrow.core.clock import format_time
from windrow.kubernetes.objects import Raw

FIRST_RETRY_S, LAST_RETRY_S = 0.005, 30.0  # of a failure


class NotReady(Exception):
    """The LoadBalancer is not Ready; the message is that of its Ready condition."""


class RetrySoon(NotReady):
    """Retried every second."""


class AwaitChange(NotReady):
    """Not retried until a VM or its health changes."""


class Failed(NotReady):
    """Retried with exponential back-off: 5 ms doubling to 30 s."""


def set_ready(raw: Raw, state: str, message: str, now: datetime) -> None:
    """Write the Ready condition; `lastUpdateTime` changes only with its status or message."""
    status = raw.setdefault("status", {})
    wanted: Raw = {"type": "Ready", "status": state} | ({"message": message} if message else {})
    conditions = status.get("conditions") or []
    if any({**one, "lastUpdateTime": ""} == {**wanted, "lastUpdateTime": ""} for one in conditions):
        return
    others = [one for one in conditions if one.get("type") != "Ready"]
    status["conditions"] = [*others, {**wanted, "lastUpdateTime": format_time(now)}]
