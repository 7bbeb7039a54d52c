"""Expected content of a guest cluster's ConfigMap `kube-system/harvester-nad-mapping` (reference 02 §2.7).

The cloud provider writes it; tests compare it with this value, which is derived from Harvester's objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windrow.core.json import dumps
from windrow.emulator.load_balancers import names
from windrow.kubernetes.objects import Raw, labels_of, namespace_of, nested

CONFIG_MAP = "harvester-nad-mapping"
KEY = "interface-nad-mapping"


def render_nad_mapping(instances: Iterable[Raw], namespace: str, cluster: str) -> str:
    """The value of the ConfigMap's one key: VM networks that every machine of the cluster has on the same interface,
    with that interface's name in Linux; "" where there are none."""
    maps = [
        _networks_of(one)
        for one in instances
        if namespace_of(one) == namespace
        and labels_of(one).get(names.MACHINE_CLUSTER) == cluster
        and _counts(one)
    ]
    if not maps:
        return ""
    common = {
        network: interface
        for network, interface in maps[0].items()
        if all(other.get(network) == interface for other in maps)
    }
    return dumps(dict(sorted(common.items()))).decode() if common else ""


def _counts(instance: Raw) -> bool:
    """Whether the instance is Running, not migrating, and has interfaces in its status."""
    migration = nested(instance, "status", "migrationState", default={})
    moves = bool(migration) and not migration.get("completed")
    return (
        nested(instance, "status", "phase") == "Running"
        and not moves
        and bool(nested(instance, "status", "interfaces"))
    )


def _networks_of(instance: Mapping[str, Any]) -> dict[str, str]:
    called = {
        one.get("name"): one.get("interfaceName")
        for one in nested(instance, "status", "interfaces", default=[])
    }
    found: dict[str, str] = {}
    for network in nested(instance, "spec", "networks", default=[]):
        target, interface = (
            nested(network, "multus", "networkName", default=""),
            called.get(network.get("name")),
        )
        if target and interface:
            found[target] = interface
    return found
