"""When a Node of the guest cluster is tainted as out of service, and when our taint is removed. Pure.

The Go driver does so for every Node that is not Ready while its VM does not print Running. That taints Nodes whose VM migrates or
is paused, needs no volume of the driver there, and removes taints that a person has set. Here:

| The Node                         | Its VM, by live reads                          | Then                    |
|----------------------------------|------------------------------------------------|-------------------------|
| NotReady, no taint, has a volume | no VM or no instance, and no launcher pod      | tainted                 |
| NotReady, no taint, has a volume | anything else                                  | asked again             |
| NotReady, no taint, no volume    | -                                              | asked again, rarely     |
| Ready, our taint                 | its instance runs                              | the taint is removed    |
| anything, another's taint        | -                                              | nothing                 |

A VM that is not found proves nothing where the credential leads to another namespace. So a volume of the Node has to be found in
it: the claim that this driver once plugged into that VM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from windrow.harvester.identity import vm_uid_of
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import annotations_of, name_of, nested, objects_at, uid_of

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
# Which program has set the taint: the annotation of the cluster manager, with another value.
OUT_OF_SERVICE_BY = "windrow.io/out-of-service-by"
THIS_DRIVER = "harvester-csi-driver"


@dataclass(frozen=True, slots=True)
class FencedNode:
    """A Node of the guest cluster. `vm_uid` is "" where its providerID does not tell."""

    name: str
    uid: str
    is_ready: bool
    vm_uid: str = ""
    is_of_another_cloud: bool = False
    is_out_of_service: bool = False
    is_fenced_by_us: bool = False


def read_node(raw: Mapping[str, Any]) -> FencedNode:
    provider_id = str(nested(raw, "spec", "providerID", default=""))
    taints = objects_at(raw, "spec", "taints")
    is_out = any(taint.get("key") == OUT_OF_SERVICE for taint in taints)
    return FencedNode(
        name_of(raw),
        uid_of(raw),
        is_true(nested(raw, "status", "conditions"), "Ready"),
        vm_uid_of(provider_id),
        bool(provider_id) and not vm_uid_of(provider_id),
        is_out,
        is_out and annotations_of(raw).get(OUT_OF_SERVICE_BY) == THIS_DRIVER,
    )


def plan_reads(node: FencedNode) -> Literal["shutdown", "running", ""]:
    """What has to be proven of the VM of this Node before anything is changed; "" where nothing is to be changed."""
    if node.is_of_another_cloud:
        return ""
    if not node.is_ready and not node.is_out_of_service:
        return "shutdown"
    return "running" if node.is_ready and node.is_fenced_by_us else ""


def is_vm_of(node: FencedNode, vm: Mapping[str, Any] | None) -> bool:
    """Whether a VM of the Node's name may be its own; one with another uid is not."""
    return vm is None or not node.vm_uid or uid_of(vm) == node.vm_uid


def render_node(raw: Mapping[str, Any], *, fenced: bool, now: str) -> dict[str, Any] | None:
    """The whole Node with or without the taint, to be written with its resourceVersion; None where it is so already, or the taint
    is another's."""
    node = read_node(raw)
    if fenced == node.is_out_of_service or (not fenced and not node.is_fenced_by_us):
        return None
    metadata, spec = dict(raw["metadata"]), dict(raw.get("spec") or {})
    annotations = dict(annotations_of(raw))
    taints = [taint for taint in objects_at(raw, "spec", "taints") if taint.get("key") != OUT_OF_SERVICE]
    if fenced:
        annotations[OUT_OF_SERVICE_BY] = THIS_DRIVER
        taints.append({**TAINT, "timeAdded": now})
    else:
        del annotations[OUT_OF_SERVICE_BY]
    return {**raw, "metadata": {**metadata, "annotations": annotations}, "spec": {**spec, "taints": taints}}
