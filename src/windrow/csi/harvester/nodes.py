"""Which VM a node of the guest cluster runs in: by its Node there, and by what Harvester has.

Most nodes are named like their VM, and need not be: a guest may have another host name, and a namespace on Harvester may hold a
VM of that name which is another guest cluster's. The first of these decides:

1. the providerID of the Node: the uid of its VM. No VM is taken for it that has another uid;
2. the hardware: the systemUUID of the Node is the firmware uuid of one VM;
3. the name, where the Node says nothing of its hardware or the VM has the same.

A kubelet writes its systemUUID itself. So of two Nodes that say to be one VM only the one of its name is; a VM whose uid is in a
Node's providerID is no other Node's; and a VM with the marks of another cluster than those that are certain is not taken.

What was found is kept while the Node says the same of itself and no VM with another uid has taken the name.

The Go driver compares MAC addresses, for which each node needs a credential for Harvester. Here no node has one: what kubelet
tells of the hardware stands on the Node, and the controller compares.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from windrow.client.informer import Informer
from windrow.client.transport import Transport
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.csi.harvester.attachments.records import record_key
from windrow.csi.harvester.disks import InstanceDisks, VmDisks
from windrow.csi.harvester.state import HarvesterState
from windrow.csi.nodes import GuestNode, NodeVm, read_node
from windrow.csi.volumes import NodeNotFound
from windrow.csi.waits import waits_for
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.resources import NODE


@dataclass(slots=True)
class _Machine:
    """A VM, or an instance whose VM is gone (`uid` "")."""

    name: str
    uid: str
    system_uuids: set[str] = field(default_factory=set)
    cluster_marks: tuple[str, str] = ("", "")


def match_vms(
    nodes: Collection[GuestNode], vms: Iterable[VmDisks], instances: Iterable[InstanceDisks]
) -> dict[str, NodeVm]:
    """By node, its VM; without those of which no VM is known."""
    machines = _machines(vms, instances)
    by_uid = {one.uid: one for one in machines.values() if one.uid}
    claimed = {by_uid[node.vm_uid].name for node in nodes if node.vm_uid in by_uid}
    by_hardware: dict[str, list[_Machine]] = {}
    for one in machines.values():
        for system_uuid in one.system_uuids if one.name not in claimed else ():
            by_hardware.setdefault(system_uuid, []).append(one)
    found: dict[str, NodeVm] = {}
    for node in nodes:
        same, named = by_hardware.get(node.system_uuid, []), machines.get(node.name)
        if node.vm_uid:
            if node.vm_uid in by_uid:
                found[node.name] = NodeVm(by_uid[node.vm_uid].name, node.vm_uid, "providerID")
        elif len(same) == 1:  # VMs made by copying may share a uuid
            found[node.name] = NodeVm(same[0].name, same[0].uid, "hardware")
        elif named is not None and named.name not in claimed and _may_be(node, named):
            found[node.name] = NodeVm(named.name, named.uid, "name")
    return _without_others(_one_node_each(found), machines)


def _machines(vms: Iterable[VmDisks], instances: Iterable[InstanceDisks]) -> dict[str, _Machine]:
    found = {vm.vm: _Machine(vm.vm, vm.uid.lower(), {vm.system_uuid} - {""}, vm.cluster_marks) for vm in vms}
    for one in instances:
        found.setdefault(one.vm, _Machine(one.vm, "")).system_uuids |= {one.system_uuid} - {""}
    return found


def _may_be(node: GuestNode, machine: _Machine) -> bool:
    """Whether a VM of the Node's name may be its own."""
    return not node.system_uuid or node.system_uuid in machine.system_uuids


def _one_node_each(found: Mapping[str, NodeVm]) -> dict[str, NodeVm]:
    """Of several Nodes that say to be one VM the one of its name, or none."""
    nodes_of: dict[str, list[str]] = {}
    for node, vm in found.items():
        nodes_of.setdefault(vm.name, []).append(node)
    return {node: vm for node, vm in found.items() if node == vm.name or len(nodes_of[vm.name]) == 1}


def _without_others(found: Mapping[str, NodeVm], machines: Mapping[str, _Machine]) -> dict[str, NodeVm]:
    own = own_marks(found, {name: one.cluster_marks for name, one in machines.items()})
    return {
        node: vm
        for node, vm in found.items()
        if vm.by == "providerID" or not is_of_another(machines[vm.name].cluster_marks, own)
    }


def own_marks(
    found: Mapping[str, NodeVm], marks: Mapping[str, tuple[str, str]]
) -> tuple[frozenset[str], frozenset[str]]:
    """The marks of the VMs that are this guest cluster's for certain: by providerID, or, where none is, of VMs named like their
    Node."""
    certain = [vm.name for vm in found.values() if vm.by == "providerID"] or [
        vm.name for node, vm in found.items() if node == vm.name
    ]
    uids, names = ({marks[name][index] for name in certain if name in marks} for index in (0, 1))
    return frozenset(uids - {""}), frozenset(names - {""})


def is_of_another(marks: tuple[str, str], own: tuple[frozenset[str], frozenset[str]]) -> bool:
    """Whether a VM with these marks is another cluster's; unknown marks say nothing."""
    return any(mark and known and mark not in known for mark, known in zip(marks, own, strict=True))


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
        # What each node said of itself when its VM was last found, and that VM.
        self._known: dict[str, tuple[GuestNode, NodeVm]] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        """Each node's VM is found while it is there; where it is gone, the Node alone does not tell."""
        async for _, node in self._nodes.changes():
            if node is not None and self._known.get(node.name, (None,))[0] != node:
                await self._match()

    async def find_vm(self, node_id: str) -> NodeVm | None:
        """The VM that the node runs in, or ran in when it was last there; None where neither is known."""
        await self._match()
        known = self._known.get(node_id)
        return known[1] if known is not None else None

    async def get_vm(self, node_id: str) -> str:
        found = await self.find_vm(node_id)
        if found is not None:
            return found.name
        if not self._nodes.has_synced:
            return node_id
        node = self._nodes.get(NODE.ref(node_id))
        if node is None:
            raise NodeNotFound(node_id, f": the guest cluster has no Node {node_id[:128]}")
        says = f"uid {node.vm_uid}" if node.vm_uid else f"firmware uuid {node.system_uuid or '-'}"
        raise NodeNotFound(
            node_id, f" of {says} in namespace {self._state.namespace} that is no other Node's"
        )

    async def list_vms_to_free(self, node_id: str, volume_id: str) -> Sequence[str]:
        found = await self.find_vm(node_id)
        if found is not None or not self._nodes.has_synced:
            return [found.name if found is not None else node_id]
        sharing = set(await self._state.read_nodes_sharing(volume_id))
        having = {*self._state.nodes_with(volume_id), *sharing, node_id} - self._vms_of_nodes()
        free = {vm for vm in having if self._is_to_free(vm, node_id, volume_id, sharing)}
        if kept := sorted(having - free - {node_id}):
            self._log.warning(
                "volume %s stays in VirtualMachine %s, which no Node runs in: nothing there says that this guest cluster's "
                "driver attached it for Node %s",
                volume_id,
                ", ".join(kept),
                node_id,
            )
        return sorted(free)

    def _vms_of_nodes(self) -> set[str]:
        """The VMs in which a Node runs, or may: whose hardware one reports."""
        nodes = self._nodes.values()
        found = {self._known[node.name][1].name for node in nodes if node.name in self._known}
        reported = {node.system_uuid for node in nodes} - {""}
        found |= {vm.vm for vm in self._state.vms.values() if vm.system_uuid in reported}
        return found | {one.vm for one in self._state.instances.values() if one.system_uuid in reported}

    def _is_to_free(self, vm: str, node_id: str, volume_id: str, sharing: Collection[str]) -> bool:
        """Whether a VM that no Node runs in was given the volume by this guest cluster's driver."""
        own, found = self._own_marks(), self._state.vm(vm)
        marks = found.cluster_marks if found is not None else ("", "")
        if is_of_another(marks, own):
            return False
        claim = self._state.claim(volume_id)
        return (
            vm == node_id
            or vm in sharing
            or (claim is not None and record_key(vm) in claim.attach_records)
            or any(known.name == vm for _, known in self._known.values())
            or any(mark in known for mark, known in zip(marks, own, strict=True))
        )

    def _own_marks(self) -> tuple[frozenset[str], frozenset[str]]:
        marks = {vm.vm: vm.cluster_marks for vm in self._state.vms.values()}
        return own_marks({node: vm for node, (_, vm) in self._known.items()}, marks)

    async def list_ids(self) -> Mapping[str, str]:
        await self._match()
        return {
            self._known[node.name][1].name: node.name
            for node in self._nodes.values()
            if node.name in self._known and self._known[node.name][1].name != node.name
        }

    async def _match(self) -> None:
        if not self._is_settled.is_set():
            waits_for("the first list of Nodes of the guest cluster")
        await self._is_settled.wait()
        await self._state.wait_for_sync()
        nodes = {node.name: node for node in self._nodes.values()}
        found = match_vms(list(nodes.values()), self._state.vms.values(), self._state.instances.values())
        taken = {vm.name for vm in found.values()}
        kept = {
            name: known
            for name, known in self._known.items()
            if name not in found and self._is_kept(nodes.get(name), *known, taken)
        }
        self._known = kept | {name: (nodes[name], vm) for name, vm in found.items()}

    def _is_kept(
        self, node: GuestNode | None, said: GuestNode, known: NodeVm, taken: Collection[str]
    ) -> bool:
        """Whether what was found before holds yet, as far as anything is told."""
        vm = self._state.vm(known.name)
        if vm is not None and vm.uid.lower() != known.uid:
            return False
        if node is None:
            return vm is not None or self._state.instance(known.name) is not None
        if node.vm_uid:
            return node.vm_uid == known.uid
        return known.name not in taken and node.system_uuid in ("", said.system_uuid)

    def _on_state(self) -> None:
        is_forbidden = isinstance(self._nodes.error, Forbidden)
        if is_forbidden and not self._is_settled.is_set():
            self._log.warning(
                "cannot list Nodes of the guest cluster: %s; each node is taken to run in the VM of its name",
                self._nodes.error,
            )
        if is_forbidden or self._nodes.is_watching:  # what is watched is listed
            self._is_settled.set()
