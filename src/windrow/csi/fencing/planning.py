"""When a Node of the guest cluster is tainted as out of service, and when our taint is removed. Pure.

The Go driver does so for every Node that is not Ready while its VM does not print Running. That taints Nodes whose VM migrates or
is paused, needs no volume of the driver there, and removes taints that a person has set. Here:

| The Node                         | Its VM, by live reads                          | Then                    |
|----------------------------------|------------------------------------------------|-------------------------|
| NotReady, no taint, has a volume | no VM or no instance, and no launcher pod      | tainted                 |
| NotReady, no taint, has a volume | anything else, or it is not known which VM     | asked again             |
| NotReady, no taint, no volume    | -                                              | asked again, rarely     |
| Ready, our taint                 | its instance runs                              | the taint is removed    |
| anything, another's taint        | -                                              | nothing                 |

Its VM is the one in which the driver attaches volumes of the Node: a VM of the Node's name may be another one. A VM that is not found
proves nothing where the credential leads to another namespace, so it has to be known: from its uid in the Node's providerID, which was
seen there, or from what a volume of the Node has recorded, that it was attached to a VM of that name. Where neither is so, such
as after a start behind the VM's deletion, the Node is not tainted.

Our taint is told by its value, which no kubelet can set; annotations of a Node are its kubelet's to write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal

from windrow.csi.harvester.attachments.records import record_key
from windrow.csi.nodes import GuestNode, NodeVm, read_node
from windrow.kubernetes.objects import nested, objects_at, uid_of
from windrow.kubernetes.taints import render_out_of_service, without_out_of_service

# By it our taint is told from those of other programs.
VALUE = "nodeshutdown-by-harvester-csi-driver"


def plan_reads(node: GuestNode) -> Literal["shutdown", "running", ""]:
    """What has to be proven of the VM of this Node before anything is changed; "" where nothing is to be changed."""
    if node.other_provider:
        return ""
    if not node.is_ready and not node.out_of_service:
        return "shutdown"
    return "running" if node.is_ready and VALUE in node.out_of_service else ""


def describe_doubt(known: NodeVm | None, vm: Mapping[str, Any] | None, attached_to: Collection[str]) -> str:
    """Why what is found of a VM says nothing about the Node; "" where it does. `vm` is read live; `attached_to` are the keys of
    the VMs to which the volumes of the Node have recorded an attachment."""
    if known is None:
        return "it is not known which VirtualMachine it runs in"
    if vm is not None and uid_of(vm).lower() != known.uid:
        return f"VirtualMachine {known.name} is another one by now (uid {uid_of(vm)}, not {known.uid or '-'})"
    if known.by != "providerID" and record_key(known.name) not in attached_to:
        return f"it is told by its {known.by} alone that it runs in VirtualMachine {known.name}"
    return ""


def is_running(known: NodeVm | None, vmi: Mapping[str, Any] | None) -> bool:
    """Whether the instance is the VM's, and runs."""
    if known is None or vmi is None or nested(vmi, "status", "phase") != "Running":
        return False
    return any(owner.get("uid") == known.uid for owner in objects_at(vmi, "metadata", "ownerReferences"))


def render_node(raw: Mapping[str, Any], *, fenced: bool, now: datetime) -> dict[str, Any] | None:
    """The whole Node with or without the taint, to be written with its resourceVersion; None where it is so already, or the taint
    is another's."""
    values = read_node(raw).out_of_service
    if fenced == bool(values) or (not fenced and VALUE not in values):
        return None
    taints = without_out_of_service(raw, VALUE)
    if fenced:
        taints.append(render_out_of_service(VALUE, now))
    return {**raw, "spec": {**(raw.get("spec") or {}), "taints": taints}}
