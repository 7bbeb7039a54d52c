"""What a Harvester holds, read from the JSON of its Kubernetes API. Nothing here imports Windrow's product.

`read_inventory` makes an immutable `Inventory` of lists of raw objects; the invariants are functions over it. The keys
below are written a second time on purpose: a run compares what the product promises, not what it believes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Raw = Mapping[str, Any]
# Kind, namespace ("" for cluster-wide), name.
Item = tuple[str, str, str]

CLUSTER_UID = "windrow.io/cluster-uid"
MACHINE_UID = "windrow.io/machine-uid"
CLUSTER_OF_BALANCER = "cloudprovider.harvesterhci.io/cluster"

# The lists that an inventory is made of, by kind.
PATHS: dict[str, str] = {
    "VirtualMachine": "/apis/kubevirt.io/v1/virtualmachines",
    "VirtualMachineInstance": "/apis/kubevirt.io/v1/virtualmachineinstances",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "LoadBalancer": "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers",
    "IPPool": "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools",
    "Secret": "/api/v1/secrets",
    "ServiceAccount": "/api/v1/serviceaccounts",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
# Kept by Harvester itself in every namespace.
_SYSTEM_NAMESPACES = ("kube-", "harvester-", "longhorn-", "cattle-", "fleet-")
_SYSTEM_NAMES = ("system:", "cluster-admin")


@dataclass(frozen=True, slots=True)
class Vm:
    """A VirtualMachine; `cluster_uid` and `machine_uid` are "" on one that no manager made."""

    namespace: str
    name: str
    uid: str
    cluster_uid: str = ""
    machine_uid: str = ""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Instance:
    """A VirtualMachineInstance, the running VM, and the addresses that it shows."""

    namespace: str
    name: str
    uid: str
    addresses: frozenset[str] = frozenset()
    running: bool = True


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    uid: str
    machine_uid: str = ""


@dataclass(frozen=True, slots=True)
class Balancer:
    """A LoadBalancer and its address; `cluster` is the guest cluster's name."""

    namespace: str
    name: str
    address: str = ""
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """A Harvester at one moment. `items` has every object that is counted, `allocated` the addresses of IP pools by
    owner (`namespace/name` of a LoadBalancer)."""

    vms: tuple[Vm, ...] = ()
    instances: tuple[Instance, ...] = ()
    volumes: tuple[Volume, ...] = ()
    balancers: tuple[Balancer, ...] = ()
    allocated: tuple[tuple[str, str], ...] = ()
    items: frozenset[Item] = frozenset()

    def of_pool(self, cluster: str, pool: str) -> list[Vm]:
        """The VMs of a pool that a manager made and that are not being deleted: names are CLUSTER-POOL-…"""
        stem = f"{cluster}-{pool}-"
        return [vm for vm in self.vms if vm.cluster_uid and not vm.deleting and vm.name.startswith(stem)]


def read_inventory(lists: Mapping[str, Sequence[Raw]]) -> Inventory:
    """The inventory of objects by kind, as the lists of `PATHS` answer them."""
    return Inventory(
        tuple(map(read_vm, lists.get("VirtualMachine", ()))),
        tuple(map(read_instance, lists.get("VirtualMachineInstance", ()))),
        tuple(map(read_volume, lists.get("PersistentVolumeClaim", ()))),
        tuple(map(read_balancer, lists.get("LoadBalancer", ()))),
        tuple(_allocated(lists.get("IPPool", ()))),
        frozenset(_items(lists)),
    )


def read_vm(raw: Raw) -> Vm:
    notes = raw["metadata"].get("annotations") or {}
    return Vm(
        *_identity(raw),
        notes.get(CLUSTER_UID, ""),
        notes.get(MACHINE_UID, ""),
        bool(raw["metadata"].get("deletionTimestamp")),
    )


def read_instance(raw: Raw) -> Instance:
    status = raw.get("status") or {}
    addresses = {
        address
        for nic in status.get("interfaces") or ()
        for address in nic.get("ipAddresses") or ()
        if not address.startswith(("fe80:", "10.42.", "10.52."))  # link-local, or of pods inside of the guest
    }
    running = status.get("phase") == "Running" and not raw["metadata"].get("deletionTimestamp")
    return Instance(*_identity(raw), frozenset(addresses), running)


def read_volume(raw: Raw) -> Volume:
    notes = raw["metadata"].get("annotations") or {}
    return Volume(*_identity(raw), notes.get(MACHINE_UID, ""))


def read_balancer(raw: Raw) -> Balancer:
    namespace, name, _ = _identity(raw)
    labels = raw["metadata"].get("labels") or {}
    address = (raw.get("status") or {}).get("address") or ""
    return Balancer(namespace, name, str(address), str(labels.get(CLUSTER_OF_BALANCER, "")))


def _identity(raw: Raw) -> tuple[str, str, str]:
    head = raw["metadata"]
    return head.get("namespace", ""), head["name"], head.get("uid", "")


def _allocated(pools: Iterable[Raw]) -> Iterable[tuple[str, str]]:
    for pool in pools:
        yield from ((pool.get("status") or {}).get("allocated") or {}).items()


def _items(lists: Mapping[str, Sequence[Raw]]) -> Iterable[Item]:
    for kind, raws in lists.items():
        for raw in raws:
            namespace, name, _ = _identity(raw)
            if namespace.startswith(_SYSTEM_NAMESPACES) or name.startswith(_SYSTEM_NAMES):
                continue
            if (kind, name) != ("ServiceAccount", "default"):
                yield kind, namespace, name
