"""Durations and ages for people."""

from __future__ import annotations

from datetime import datetime, timedelta


def format_duration(duration: timedelta) -> str:
    """`45 s`, `3 min 20 s`, `2 h 5 min`, `4 days`: two units at most, never negative."""
    seconds = max(int(duration.total_seconds()), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} days"


def format_age(since: datetime | None, now: datetime) -> str:
    """How long ago `since` was; "" where it is None."""
    return "" if since is None else format_duration(now - since)
