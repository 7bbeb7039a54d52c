"""NetworkAttachmentDefinition: the VLANs that machines are attached to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.core.json import NotJson, loads
from windrow.harvester.names import CLUSTER_NETWORK, NETWORK_READY, NETWORK_TYPE, STORAGE_NETWORK
from windrow.harvester.resources import NETWORK
from windrow.kubernetes.objects import annotations_of, labels_of, nested
from windrow.kubernetes.resources import ObjectRef, ref_of


@dataclass(frozen=True, slots=True)
class Network:
    """One network. `is_ready` is None where the label is missing."""

    ref: ObjectRef
    type: str
    cluster_network: str
    vlan: int | None
    is_ready: bool | None
    is_for_storage: bool


def read_network(raw: Mapping[str, Any]) -> Network:
    labels = labels_of(raw)
    return Network(
        ref=ref_of(NETWORK, dict(raw)),
        type=labels.get(NETWORK_TYPE, ""),
        cluster_network=labels.get(CLUSTER_NETWORK, ""),
        vlan=_vlan(nested(raw, "spec", "config", default="")),
        is_ready={"true": True, "false": False}.get(labels.get(NETWORK_READY, "")),
        is_for_storage=annotations_of(raw).get(STORAGE_NETWORK) == "true",
    )


def _vlan(config: str) -> int | None:
    try:
        vlan = nested(loads(config), "vlan")
    except NotJson:
        return None
    return vlan if isinstance(vlan, int) else None
