"""Which VM a node of the guest cluster runs in: by its Node there, and by what Harvester has.

Most nodes are named like their VM, and need not be: a guest may have another host name, and a namespace on Harvester may hold a
VM of that name which is another guest cluster's. The first of these decides:

1. the providerID of the Node: the uid of its VM;
2. the hardware: the systemUUID of the Node is the firmware uuid of one instance;
3. the name.

The Go driver compares MAC addresses, for which each node needs a credential for Harvester. Here no node has one: what kubelet
tells of the hardware stands on the Node, and the controller compares.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.csi.harvester.disks import InstanceDisks, VmDisks
from windrow.csi.harvester.state import HarvesterState
from windrow.csi.waits import waits_for
from windrow.harvester.identity import vm_uid_of
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import name_of, nested
from windrow.kubernetes.resources import NODE


@dataclass(frozen=True, slots=True)
class GuestNode:
    """A Node of the guest cluster, and what it says of its VM; "" for nothing."""

    name: str
    vm_uid: str = ""
    system_uuid: str = ""


def read_node(raw: Mapping[str, Any]) -> GuestNode:
    return GuestNode(
        name=name_of(raw),
        vm_uid=vm_uid_of(str(nested(raw, "spec", "providerID", default=""))),
        system_uuid=str(nested(raw, "status", "nodeInfo", "systemUUID", default="")).lower(),
    )


def match_vms(
    nodes: Iterable[GuestNode], vms: Collection[VmDisks], instances: Iterable[InstanceDisks]
) -> dict[str, str]:
    """By node, its VM; without those of which no VM is known."""
    names = {vm.vm for vm in vms}
    by_uid = {vm.uid.lower(): vm.vm for vm in vms}
    by_hardware: dict[str, list[str]] = {}
    for one in instances:
        by_hardware.setdefault(one.system_uuid, []).append(one.vm)
    found = {}
    for node in nodes:
        same = by_hardware.get(node.system_uuid, []) if node.system_uuid else []
        if vm := by_uid.get(node.vm_uid):
            found[node.name] = vm
        elif len(same) == 1:  # VMs made by copying may share a uuid
            found[node.name] = same[0]
        elif node.name in names:
            found[node.name] = node.name
    return found


class GuestNodes:
    """Implements NodeIds. Its owner runs it while it is used.

    Where the guest cluster forbids the list of its Nodes, each node is taken to run in the VM of its name.
    """

    def __init__(
        self, guest: Transport, state: HarvesterState, clock: Clock, rng: Rng, log: logging.Logger
    ) -> None:
        self._state, self._log = state, log
        self._nodes = Informer(guest, NODE, "", read_node, clock, rng, on_state=self._on_state)
        self._is_settled = asyncio.Event()
        # Which VM each node was last known to run in, also of those that are no longer in the guest cluster.
        self._known: dict[str, str] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._nodes.run()

    async def get_vm(self, node_id: str) -> str:
        await self._match()
        return self._known.get(node_id, node_id)

    async def list_vms_to_free(self, node_id: str, volume_id: str) -> Sequence[str]:
        found = await self._match()
        if node_id in self._known or not self._nodes.has_synced:
            return [self._known.get(node_id, node_id)]
        of_nodes = set(found.values())
        having = {*self._state.nodes_with(volume_id), *self._state.nodes_sharing(volume_id)}
        return sorted({node_id, *(having - of_nodes)})

    async def list_ids(self) -> Mapping[str, str]:
        return {vm: node for node, vm in (await self._match()).items() if node != vm}

    async def _match(self) -> dict[str, str]:
        if not self._is_settled.is_set():
            waits_for("the first list of Nodes of the guest cluster")
        await self._is_settled.wait()
        await self._state.wait_for_sync()
        found = match_vms(self._nodes.values(), self._state.vms.values(), self._state.instances.values())
        self._known |= found
        return found

    def _on_state(self) -> None:
        is_forbidden = isinstance(self._nodes.error, Forbidden)
        if is_forbidden and not self._is_settled.is_set():
            self._log.warning(
                "cannot list Nodes of the guest cluster: %s; each node is taken to run in the VM of its name",
                self._nodes.error,
            )
        if is_forbidden or self._nodes.is_watching:  # what is watched is listed
            self._is_settled.set()
