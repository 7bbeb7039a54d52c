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

from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.nodes.readings import GuestNode, GuestVm, Instance

# A node that was heard of so long after a VM was made is kept alive by that VM, also where the clocks of guest and
# host differ a little.
SURELY_LATER = timedelta(minutes=1)


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


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the VMs of the namespace when a node is looked at.

    `hostnames` tells how guests call themselves, by VM name; None when nobody was asked. `claimed` are the uids of
    VMs that other nodes name as theirs and keep Ready.
    """

    vms: Sequence[GuestVm]
    instances: Iterable[Instance] = ()
    hostnames: Mapping[str, str] | None = None
    claimed: Set[str] = field(default_factory=frozenset)


def identify(node: GuestNode, evidence: Evidence, options: Options) -> Identity:
    """Which VM the node runs in, as far as `evidence` shows."""
    if node.vm_uid:
        vm = next((vm for vm in evidence.vms if vm.uid == node.vm_uid), None) or _heir(
            node, evidence, options
        )
        return Found(vm) if vm else Missing(node.vm_uid)
    if node.provider_id:
        return Foreign(node.provider_id)
    free = {
        vm.name: vm
        for vm in evidence.vms
        if may_be_ours(vm.guest_cluster, options) and vm.uid not in evidence.claimed
    }
    return _recognise(node, free, evidence)


def _recognise(node: GuestNode, free: Mapping[str, GuestVm], evidence: Evidence) -> Identity:
    hardware = {one.name: one.system_uuid for one in evidence.instances if one.name in free}
    same = [name for name, uuid in hardware.items() if uuid and uuid == node.system_uuid]
    if len(same) == 1:
        return Found(free[same[0]])
    is_doubtful = bool(node.system_uuid and hardware.get(node.name) and node.name not in same)
    if node.name in free and not is_doubtful:
        return Found(free[node.name])
    hostnames = evidence.hostnames or {}
    named = [name for name in free if calls_itself(hostnames.get(name, ""), node.name)]
    exactly = [name for name in named if "." not in hostnames[name].rstrip(".") or "." in node.name]
    match exactly or named:
        case [name]:
            return Found(free[name])
        case [_, *_]:
            several = ", ".join(sorted(exactly or named))
            cure = "give them different host names"
            return Unknown(f"several VMs call themselves {node.name!r}: {several}; {cure}")
        case _:
            return _by_name_alone(node, free, evidence.hostnames)


def _by_name_alone(
    node: GuestNode, free: Mapping[str, GuestVm], hostnames: Mapping[str, str] | None
) -> Identity:
    if node.name not in free:
        return Unknown(f"no VM is called {node.name!r}, and no guest agent reports this host name")
    if hostnames is None:
        return Unknown(f"VM {node.name!r} has other hardware than the node; its guest agent is to be asked")
    other = hostnames.get(node.name, "")
    if other:
        return Unknown(
            f"VM {node.name!r} has other hardware than the node, and its guest calls itself {other!r}"
        )
    # Not every architecture lets the guest see what the firmware says.
    return Found(free[node.name])


def _heir(node: GuestNode, evidence: Evidence, options: Options) -> GuestVm | None:
    """The VM of the node's name that keeps it alive in place of the one it names.

    Somebody restored the guest's disks into a VM made anew. The node still names the old one, because a providerID
    cannot be changed, and its kubelet was heard of since: deleting the node would cost a living machine.
    """
    for vm in evidence.vms:
        if vm.name == node.name and may_be_ours(vm.guest_cluster, options) and vm.created and node.last_heard:
            return vm if node.last_heard - vm.created > SURELY_LATER else None
    return None


def may_be_ours(label: str, options: Options) -> bool:
    """Whether a VM with this guest cluster label can belong to our cluster; VMs made by hand have no label."""
    return not label or not options.names_cluster or label == options.cluster_name


def calls_itself(hostname: str, node_name: str) -> bool:
    """Whether a guest's host name is the node's name. Kubelets lower it; some guests report a full domain name."""
    hostname = hostname.lower().rstrip(".")
    return bool(hostname) and (hostname == node_name or hostname.partition(".")[0] == node_name)
