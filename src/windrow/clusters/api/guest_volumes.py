"""What a guest cluster that is deleted said of its volumes, as the status of its Cluster records it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.core.clock import format_time, parse_time


@dataclass(frozen=True, slots=True)
class GuestVolumes:
    """Names of claims on Harvester, by what the reclaim policies of their PersistentVolumes say, and the handles of the `snapshots` that
    their VolumeSnapshotContents say are to be deleted. `at` is when they were recorded; None where the record does not say."""

    delete: tuple[str, ...] = ()
    retain: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    at: datetime | None = field(default=None, compare=False)


def describe_deletion(raw: Mapping[str, Any]) -> str:
    """Which deletion of which Cluster it is: its uid and when it was deleted; "" for one that is not deleted."""
    metadata = raw["metadata"]
    deleted = metadata.get("deletionTimestamp")
    return f"{metadata.get('uid', '')}/{deleted}" if deleted else ""


def read_recorded_volumes(status: Mapping[str, Any], deletion: str) -> GuestVolumes | None:
    """What was recorded in the status of a Cluster for this deletion; None where nothing was. A record of another one, such as in a
    status that was restored, is none."""
    recorded = status.get("volumes")
    if not isinstance(recorded, Mapping) or not deletion or recorded.get("deletion") != deletion:
        return None
    keys = "delete", "retain", "deleteSnapshots"
    delete, retain, snapshots = (tuple(map(str, recorded.get(key) or ())) for key in keys)
    return GuestVolumes(delete, retain, snapshots, _read_time(recorded.get("at")))


def _read_time(found: object) -> datetime | None:
    try:
        return parse_time(str(found))
    except ValueError:
        return None


def render_recorded_volumes(volumes: GuestVolumes, deletion: str, now: datetime) -> dict[str, Any]:
    return {
        "deletion": deletion,
        "at": format_time(now),
        "delete": list(volumes.delete),
        "retain": list(volumes.retain),
        "deleteSnapshots": list(volumes.snapshots),
    }
