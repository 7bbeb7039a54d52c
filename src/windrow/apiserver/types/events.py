"""Conversion of Events between `v1`, in which they are stored, and `events.k8s.io/v1`."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]

# field of events.k8s.io/v1 -> field of v1
_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {old: new for new, old in _NAMES.items()}


def to_core(raw: Raw) -> Raw:
    """The stored form of an `events.k8s.io/v1` Event."""
    return {_NAMES.get(name, name): value for name, value in raw.items()}


def from_core(raw: Raw) -> Raw:
    """A stored Event as `events.k8s.io/v1` shows it."""
    return {_BACK.get(name, name): value for name, value in raw.items()}
