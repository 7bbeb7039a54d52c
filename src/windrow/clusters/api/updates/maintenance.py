"""`status.hostMaintenance` of a Machine: its host on Harvester is in maintenance, or was until a moment ago.

Recorded before anything is done for it. It ends with the machine well again, on that host or on another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from windrow.core.clock import format_time
from windrow.harvester.hosts.maintenance import describe_maintenance
from windrow.kubernetes.objects import time_of

HOST_MAINTENANCE = "hostMaintenance"


@dataclass(frozen=True, slots=True)
class RecordedMaintenance:
    """`shutdown`: why the VM does not run on elsewhere, "" where it migrates. `cordoned`: the Node was schedulable, and is again
    afterwards. `ended`: when the host was found to be back."""

    host: str
    because: str
    since: datetime | None = None
    shutdown: str = ""
    cordoned: bool = False
    ended: datetime | None = None

    def __str__(self) -> str:
        return describe_maintenance(self.host, self.because)


def read_maintenance(status: Mapping[str, Any]) -> RecordedMaintenance | None:
    """What is recorded in a Machine's status."""
    raw = status.get(HOST_MAINTENANCE)
    if not isinstance(raw, Mapping) or not raw.get("host"):
        return None
    return RecordedMaintenance(
        host=str(raw["host"]),
        because=str(raw.get("because") or ""),
        since=time_of(raw, "since"),
        shutdown=str(raw.get("shutdown") or ""),
        cordoned=raw.get("cordoned") is True,
        ended=time_of(raw, "ended"),
    )


def render_maintenance(maintenance: RecordedMaintenance) -> dict[str, Any]:
    """The whole value, for a merge patch: what is not set is removed."""
    return {
        "host": maintenance.host,
        "because": maintenance.because,
        "since": None if maintenance.since is None else format_time(maintenance.since),
        "shutdown": maintenance.shutdown or None,
        "cordoned": maintenance.cordoned,
        "ended": None if maintenance.ended is None else format_time(maintenance.ended),
    }
