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
from dataclasses import dataclass
from typing import Any, Literal

from windrow.csi.harvester.attachments.records import record_key
from windrow.csi.nodes import NodeVm
from windrow.harvester.identity import vm_uid_of
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import name_of, nested, objects_at, uid_of

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# The value tells which program has set the taint. Kubernetes acts on the key alone.
VALUE = "nodeshutdown-by-harvester-csi-driver"
TAINT = {"key": OUT_OF_SERVICE, "value": VALUE, "effect": "NoExecute"}


@dataclass(frozen=True, slots=True)
class FencedNode:
    """A Node of the guest cluster. `vm_uid` is "" where its providerID does not tell."""

    name: str
    uid: str
    is_ready: bool
    vm_uid: str = ""
    # The providerID where it is not Harvester's.
    other_provider: str = ""
    is_out_of_service: bool = False
    is_fenced_by_us: bool = False


def read_node(raw: Mapping[str, Any]) -> FencedNode:
    provider_id = str(nested(raw, "spec", "providerID", default=""))
    taints = objects_at(raw, "spec", "taints")
    values = [taint.get("value") for taint in taints if taint.get("key") == OUT_OF_SERVICE]
    return FencedNode(
        name_of(raw),
        uid_of(raw),
        is_true(nested(raw, "status", "conditions"), "Ready"),
        vm_uid_of(provider_id),
        "" if vm_uid_of(provider_id) else provider_id,
        bool(values),
        VALUE in values,
    )


def plan_reads(node: FencedNode) -> Literal["shutdown", "running", ""]:
    """What has to be proven of the VM of this Node before anything is changed; "" where nothing is to be changed."""
    if node.other_provider:
        return ""
    if not node.is_ready and not node.is_out_of_service:
        return "shutdown"
    return "running" if node.is_ready and node.is_fenced_by_us else ""


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


def render_node(raw: Mapping[str, Any], *, fenced: bool, now: str) -> dict[str, Any] | None:
    """The whole Node with or without the taint, to be written with its resourceVersion; None where it is so already, or the taint
    is another's."""
    node = read_node(raw)
    if fenced == node.is_out_of_service or (not fenced and not node.is_fenced_by_us):
        return None
    taints = [taint for taint in objects_at(raw, "spec", "taints") if taint.get("key") != OUT_OF_SERVICE]
    if fenced:
        taints.append({**TAINT, "timeAdded": now})
    return {**raw, "spec": {**(raw.get("spec") or {}), "taints": taints}}
