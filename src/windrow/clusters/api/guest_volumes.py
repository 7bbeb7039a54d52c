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


def read_recorded_volumes(status: Mapping[str, Any]) -> GuestVolumes | None:
    """What was recorded in the status of a Cluster; None where nothing was."""
    recorded = status.get("volumes")
    if not isinstance(recorded, Mapping):
        return None
    delete, retain = (tuple(map(str, recorded.get(key) or ())) for key in ("delete", "retain"))
    return GuestVolumes(delete, retain)


def render_recorded_volumes(volumes: GuestVolumes) -> dict[str, list[str]]:
    return {"delete": list(volumes.delete), "retain": list(volumes.retain)}
