"""What a guest cluster that is deleted said of its volumes, as the status of its Cluster records it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GuestVolumes:
    """Names of claims on Harvester, by what the reclaim policies of their PersistentVolumes say."""

    delete: tuple[str, ...] = ()
    retain: tuple[str, ...] = ()


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
    delete, retain = (tuple(map(str, recorded.get(key) or ())) for key in ("delete", "retain"))
    return GuestVolumes(delete, retain)


def render_recorded_volumes(volumes: GuestVolumes, deletion: str) -> dict[str, Any]:
    return {"deletion": deletion, "delete": list(volumes.delete), "retain": list(volumes.retain)}
