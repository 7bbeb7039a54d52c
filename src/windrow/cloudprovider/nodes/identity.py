"""Which VM a Node runs in. Pure.

The providerID decides where there is one: it holds the VM's uid, and a VM recreated under the same name has another.
Without one the first of these decides:

1. the hardware: the firmware uuid of one VM is the node's systemUUID;
2. the name: a VM has the name of the node, and its hardware is not another;
3. the guest: the guest agent of one VM reports the node's name as its host name;
4. the name again, where hardware and name differ but the guest does not contradict.

VMs with the label of another guest cluster are never matched: a Harvester namespace may hold many clusters. Nor is a VM
that is in the providerID of another node which is Ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta

from windrow.cloudprovider.nodes.readings import GuestNode, GuestVm, Instance
from windrow.cloudprovider.options import Options

# A node with a heartbeat so long after the creation of a VM runs in that VM, also where the clocks of guest and host
# differ a little.
SUCCESSOR_MARGIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class VmFound:
    vm: GuestVm


@dataclass(frozen=True, slots=True)
class VmMissing:
    """The providerID names a VM that is not among the known ones. Whether it is gone must be asked live."""

    vm_uid: str


@dataclass(frozen=True, slots=True)
class OtherCloud:
    """The node belongs to another cloud provider, and is left as it is."""

    provider_id: str


@dataclass(frozen=True, slots=True)
class VmUnknown:
    """No VM is known to be this node's, which does not mean that it has none."""

    because: str


VmMatch = VmFound | VmMissing | OtherCloud | VmUnknown


@dataclass(frozen=True, slots=True)
class Candidates:
    """The VMs of the namespace that a node may run in.

    `hostnames` are those that guests report, by VM name; None when none was asked. `claimed` are the uids in the
    providerIDs of other nodes that are Ready.
    """

    vms: Sequence[GuestVm]
    instances: Iterable[Instance] = ()
    hostnames: Mapping[str, str] | None = None
    claimed: Set[str] = field(default_factory=frozenset)


def match_vm(node: GuestNode, candidates: Candidates, options: Options) -> VmMatch:
    """Which VM the node runs in, as far as the candidates show."""
    if node.vm_uid:
        vm = next((vm for vm in candidates.vms if vm.uid == node.vm_uid), None) or _find_successor(
            node, candidates, options
        )
        return VmFound(vm) if vm else VmMissing(node.vm_uid)
    if node.provider_id:
        return OtherCloud(node.provider_id)
    free = {
        vm.name: vm
        for vm in candidates.vms
        if can_belong_to_cluster(vm.guest_cluster, options) and vm.uid not in candidates.claimed
    }
    return _match_without_provider_id(node, free, candidates)


def _match_without_provider_id(
    node: GuestNode, free: Mapping[str, GuestVm], candidates: Candidates
) -> VmMatch:
    hardware = {one.name: one.system_uuid for one in candidates.instances if one.name in free}
    same = [name for name, uuid in hardware.items() if uuid and uuid == node.system_uuid]
    if len(same) == 1:
        return VmFound(free[same[0]])
    has_other_hardware = bool(node.system_uuid and hardware.get(node.name) and node.name not in same)
    if node.name in free and not has_other_hardware:
        return VmFound(free[node.name])
    hostnames = candidates.hostnames or {}
    named = [name for name in free if hostname_matches(hostnames.get(name, ""), node.name)]
    exactly = [name for name in named if "." not in hostnames[name].rstrip(".") or "." in node.name]
    match exactly or named:
        case [name]:
            return VmFound(free[name])
        case [_, *_]:
            several = ", ".join(sorted(exactly or named))
            hint = "give them different host names"
            return VmUnknown(
                f"the guests of several VMs report the host name {node.name!r}: {several}; {hint}"
            )
        case _:
            return _match_by_name(node, free, candidates.hostnames)


def _match_by_name(
    node: GuestNode, free: Mapping[str, GuestVm], hostnames: Mapping[str, str] | None
) -> VmMatch:
    if node.name not in free:
        return VmUnknown(f"no VM is named {node.name!r}, and no guest agent reports this host name")
    if hostnames is None:
        return VmUnknown(f"VM {node.name!r} has other hardware than the node; its guest agent is to be asked")
    other = hostnames.get(node.name, "")
    if other:
        return VmUnknown(
            f"VM {node.name!r} has other hardware than the node, and its guest reports the host name {other!r}"
        )
    # Not every architecture lets the guest see what the firmware says.
    return VmFound(free[node.name])


def _find_successor(node: GuestNode, candidates: Candidates, options: Options) -> GuestVm | None:
    """The VM of the node's name that runs it in place of the one in its providerID.

    The disks of the guest were restored into a new VM. The node still has the old providerID, because it cannot be
    changed, and a heartbeat since: deleting the node would cost a running machine.
    """
    for vm in candidates.vms:
        if (
            vm.name == node.name
            and can_belong_to_cluster(vm.guest_cluster, options)
            and vm.created
            and node.last_heartbeat
        ):
            return vm if node.last_heartbeat - vm.created > SUCCESSOR_MARGIN else None
    return None


def can_belong_to_cluster(label: str, options: Options) -> bool:
    """Whether a VM with this guest cluster label can belong to our cluster; VMs made by hand have no label."""
    return not label or not options.has_cluster_name or label == options.cluster_name


def hostname_matches(hostname: str, node_name: str) -> bool:
    """Whether a guest's host name is the node's name. Kubelets lower it; some guests report a full domain name."""
    hostname = hostname.lower().rstrip(".")
    return bool(hostname) and (hostname == node_name or hostname.partition(".")[0] == node_name)
