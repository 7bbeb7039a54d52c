"""Guest clusters' LoadBalancers: deletion together with the VMs, and the expected network mapping (reference 02 §2.7, §4.8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windrow.core.json import dumps
from windrow.emulator import kinds
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.release import Release
from windrow.emulator.load_balancers.validation import is_being_removed, is_for_cluster, is_guest_of
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, namespace_of, nested


class GuestClusterCleanup:
    """Handler of the load balancer finalizer on VirtualMachines."""

    def __init__(self, client: AdminClient, release: Release) -> None:
        self._client = client
        self._release = release

    async def on_vm_removed(self, vm: Raw) -> None:
        """Delete the LoadBalancers of the VM's guest cluster if the whole cluster is removed. May be repeated."""
        cluster = labels_of(vm).get(names.MACHINE_CLUSTER, "")
        if (
            not self._release.deletes_with_guest_cluster
            or not cluster
            or not is_guest_of(vm, cluster)
            or not is_being_removed(vm)
        ):
            return
        found = await self._client.list(kinds.LOAD_BALANCER)
        for balancer in found:
            if (
                namespace_of(balancer) == namespace_of(vm)
                and labels_of(balancer).get(names.BALANCER_CLUSTER) == cluster
                and is_for_cluster(balancer)
                and not is_deleting(balancer)
            ):
                await self._client.delete(kinds.LOAD_BALANCER, balancer)


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
