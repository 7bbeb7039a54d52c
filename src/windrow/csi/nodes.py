"""What a node is called by the side-cars, and by `Volumes`: its id, and the name of the VM that it runs in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from windrow.harvester.identity import vm_uid_of
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import name_of, objects_at, text_at
from windrow.kubernetes.taints import list_out_of_service


@dataclass(frozen=True, slots=True)
class NodeVm:
    """The VM that a node runs in, or ran in when both were last seen; `uid` in lower case, "" where only an instance was there."""

    name: str
    uid: str
    by: Literal["providerID", "hardware", "name"]


@dataclass(frozen=True, slots=True)
class GuestNode:
    """A Node of the guest cluster, and what it says of its VM; "" for nothing."""

    name: str
    vm_uid: str = ""
    system_uuid: str = ""
    # The providerID where it is not Harvester's.
    other_provider: str = ""
    is_ready: bool = False
    # The values of its taints out-of-service, by which it is told who has set them.
    out_of_service: tuple[str, ...] = ()


def read_node(raw: Mapping[str, Any]) -> GuestNode:
    provider_id = text_at(raw, "spec", "providerID")
    vm_uid = vm_uid_of(provider_id)
    return GuestNode(
        name=name_of(raw),
        vm_uid=vm_uid,
        system_uuid=text_at(raw, "status", "nodeInfo", "systemUUID").lower(),
        other_provider="" if vm_uid else provider_id,
        is_ready=is_true(objects_at(raw, "status", "conditions"), "Ready"),
        out_of_service=tuple(text_at(taint, "value") for taint in list_out_of_service(raw)),
    )


class NodeIds(Protocol):
    """Which VM each node runs in. A node's id is its name in the guest cluster, which its VM need not have."""

    async def get_vm(self, node_id: str) -> str:
        """The VM of the node. Raises NodeNotFound where nodes are known, and none of a VM is this one."""
        ...

    async def list_vms_to_free(self, node_id: str, volume_id: str) -> Sequence[str]:
        """The VMs that a volume has to leave so that the node does not have it. A node that is no longer in the guest cluster may
        have run in any VM of this guest cluster of which no node is known."""
        ...

    async def list_ids(self) -> Mapping[str, str]:
        """By VM, the id of the node that runs in it, where that is not the VM's name."""
        ...


class VmNames:
    """Implements NodeIds where nothing is known of nodes: each is named like its VM."""

    async def get_vm(self, node_id: str) -> str:
        return node_id

    async def list_vms_to_free(self, node_id: str, volume_id: str) -> Sequence[str]:
        return [node_id]

    async def list_ids(self) -> Mapping[str, str]:
        return {}
