"""Which VM a node runs in. Pure.

The providerID decides where there is one: it holds the VM's uid, and a VM made anew under the same name has another.
Without one the evidence is weighed, the best first:

1. the hardware: the firmware of one VM says what the node's own firmware says;
2. the name: a VM is called like the node, and its hardware does not say otherwise;
3. the guest: the guest agent of one VM says that its host name is the node's name;
4. the name again, where hardware and name differ but the guest does not contradict.

VMs that carry another guest cluster's label are never taken: a Harvester namespace may hold many clusters. Nor is a VM
that a Ready node already names as its own: whoever asks for it now is somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta

from windrow.cloudprovider.nodes.readings import GuestNode, GuestVm, Instance
from windrow.cloudprovider.options import Options

# A node that was heard of so long after a VM was made is kept alive by that VM, also where the clocks of guest and
# host differ a little.
SUCCESSOR_MARGIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class VmFound:
    vm: GuestVm


@dataclass(frozen=True, slots=True)
class VmMissing:
    """The node says in which VM it ran, and the VMs we know are others. Whether it is gone must be asked live."""

    vm_uid: str


@dataclass(frozen=True, slots=True)
class OtherCloud:
    """The node belongs to another cloud; it is left alone."""

    provider_id: str


@dataclass(frozen=True, slots=True)
class VmUnknown:
    """No VM is known to be this node's. That proves nothing."""

    because: str


VmMatch = VmFound | VmMissing | OtherCloud | VmUnknown


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is known of the VMs of the namespace when a node is looked at.

    `hostnames` tells how guests call themselves, by VM name; None when nobody was asked. `claimed` are the uids of
    VMs that other nodes name as theirs and keep Ready.
    """

    vms: Sequence[GuestVm]
    instances: Iterable[Instance] = ()
    hostnames: Mapping[str, str] | None = None
    claimed: Set[str] = field(default_factory=frozenset)


def match_vm(node: GuestNode, candidates: Candidates, options: Options) -> VmMatch:
    """Which VM the node runs in, as far as `evidence` shows."""
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
            return VmUnknown(f"several VMs call themselves {node.name!r}: {several}; {hint}")
        case _:
            return _match_by_name(node, free, candidates.hostnames)


def _match_by_name(
    node: GuestNode, free: Mapping[str, GuestVm], hostnames: Mapping[str, str] | None
) -> VmMatch:
    if node.name not in free:
        return VmUnknown(f"no VM is called {node.name!r}, and no guest agent reports this host name")
    if hostnames is None:
        return VmUnknown(f"VM {node.name!r} has other hardware than the node; its guest agent is to be asked")
    other = hostnames.get(node.name, "")
    if other:
        return VmUnknown(
            f"VM {node.name!r} has other hardware than the node, and its guest calls itself {other!r}"
        )
    # Not every architecture lets the guest see what the firmware says.
    return VmFound(free[node.name])


def _find_successor(node: GuestNode, candidates: Candidates, options: Options) -> GuestVm | None:
    """The VM of the node's name that keeps it alive in place of the one it names.

    Somebody restored the guest's disks into a VM made anew. The node still names the old one, because a providerID
    cannot be changed, and its kubelet was heard of since: deleting the node would cost a living machine.
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
