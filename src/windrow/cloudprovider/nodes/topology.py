"""Where a node is: its labels for zone and region follow the host of its VM, under present and old keys. Pure.

Harvester writes the zone and region of the physical host as annotations of the instance, and takes them away when the
host has none. We write them to the node, and beside them a record of what we wrote. So, for each of zone and region:

| The host has | The record has | The node's labels                                              |
|--------------|----------------|----------------------------------------------------------------|
| one          | anything       | both keys are set to it; the record says it                    |
| none         | one            | those keys that still have the recorded value go; so does the record |
| none         | none           | are a user's, and stay                                         |

An instance that has just been started has no annotations until Harvester has seen where it runs. So nothing is taken
away before an instance has been known for `SETTLING`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from windrow.cloudprovider import names
from windrow.cloudprovider.nodes.readings import GuestNode, Instance
from windrow.core.json import dumps

TOPOLOGY_GRACE = timedelta(seconds=30)

Labels = tuple[tuple[str, str | None], ...]

_KEYS = {"zone": (names.ZONE_BETA, names.ZONE), "region": (names.REGION_BETA, names.REGION)}


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """Labels to write (None takes one away), the record to write (None: as it is, "": away), when to look again."""

    labels: Labels = ()
    record: str | None = None
    requeue_after: timedelta | None = None


def plan_topology(node: GuestNode, instance: Instance, known_for: timedelta) -> TopologyPlan:
    on_host = {"zone": instance.zone, "region": instance.region}
    before = node.topology_record or {}
    labels: dict[str, str | None] = {}
    record: dict[str, str] = {}
    requeue_after = None
    for what, keys in _KEYS.items():
        if on_host[what]:
            record[what] = on_host[what]
            labels |= {key: on_host[what] for key in keys if node.topology.get(key) != on_host[what]}
        elif before.get(what) and known_for < TOPOLOGY_GRACE:
            record[what] = before[what]
            requeue_after = TOPOLOGY_GRACE - known_for
        elif before.get(what):
            labels |= {key: None for key in keys if node.topology.get(key) == before[what]}
    if labels:
        after = {**node.topology, **labels}
        labels |= dict(missing_successors({key: value for key, value in after.items() if value is not None}))
    return TopologyPlan(tuple(labels.items()), _changed(node.topology_record, record), requeue_after)


def _changed(before: Mapping[str, str] | None, after: Mapping[str, str]) -> str | None:
    if after == (before or {}):
        return None
    return dumps(dict(after)).decode() if after else ""


def missing_successors(labels: Mapping[str, str]) -> Labels:
    """Present keys that are missing beside their old ones. A present key that differs is a user's choice."""
    return tuple(
        (present, labels[old]) for old, present in names.SUCCESSORS if old in labels and present not in labels
    )
