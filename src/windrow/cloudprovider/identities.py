"""Which VM a node runs in. Pure.

The providerID decides where there is one: it holds the VM's uid, and a VM made anew under the same name has another.
Without one, the VM of the node's name is taken, or else the only VM whose guest calls itself by the node's name.
VMs that carry another guest cluster's label are never taken: a Harvester namespace may hold many clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.readings import GuestNode, GuestVm


@dataclass(frozen=True, slots=True)
class Found:
    vm: GuestVm


@dataclass(frozen=True, slots=True)
class Missing:
    """The node says in which VM it ran, and the VMs we know are others. Whether it is gone must be asked live."""

    vm_uid: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """The node belongs to another cloud; it is left alone."""

    provider_id: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No VM is known to be this node's. That proves nothing."""

    because: str


Identity = Found | Missing | Foreign | Unknown


def identify(
    node: GuestNode, vms: Iterable[GuestVm], hostnames: Mapping[str, str], options: Options
) -> Identity:
    """Which of `vms` the node runs in. `hostnames` tells how guests call themselves, by VM name."""
    if node.vm_uid:
        by_uid = next((vm for vm in vms if vm.uid == node.vm_uid), None)
        return Found(by_uid) if by_uid else Missing(node.vm_uid)
    if node.provider_id:
        return Foreign(node.provider_id)
    ours = [vm for vm in vms if may_be_ours(vm.guest_cluster, options)]
    for vm in ours:
        if vm.name == node.name:
            return Found(vm)
    named = [vm for vm in ours if calls_itself(hostnames.get(vm.name, ""), node.name)]
    if len(named) == 1:
        return Found(named[0])
    if named:
        several = ", ".join(sorted(vm.name for vm in named))
        return Unknown(
            f"several VMs call themselves {node.name!r}: {several}; give them different host names"
        )
    return Unknown(f"no VM is called {node.name!r}, and no guest agent reports this host name")


def may_be_ours(label: str, options: Options) -> bool:
    """Whether a VM with this guest cluster label can belong to our cluster; VMs made by hand have no label."""
    return not label or not options.names_cluster or label == options.cluster_name


def calls_itself(hostname: str, node_name: str) -> bool:
    """Whether a guest's host name is the node's name. Kubelets lower it; some guests report a full domain name."""
    hostname = hostname.lower().rstrip(".")
    return bool(hostname) and (hostname == node_name or hostname.partition(".")[0] == node_name)
