"""The hosts of a Harvester: the nodes on which VMs run. A namespaced credential cannot read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.harvester.names import REGION, ZONE
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import labels_of, name_of, nested


@dataclass(frozen=True, slots=True)
class Host:
    """One host. Heartbeats do not change this reading, so they cause no event."""

    name: str
    is_ready: bool
    zone: str
    region: str


def read_host(raw: Mapping[str, Any]) -> Host:
    labels = labels_of(raw)
    return Host(
        name=name_of(raw),
        is_ready=is_true(nested(raw, "status", "conditions"), "Ready"),
        zone=labels.get(ZONE, ""),
        region=labels.get(REGION, ""),
    )
