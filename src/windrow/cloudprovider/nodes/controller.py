"""The node controller: keeps guest Nodes in step with their VirtualMachines, by three watches and one work queue.

Rights in the guest: nodes list, watch, patch, delete; nodes/status patch; events create, patch. On Harvester, in one
namespace: virtualmachines and virtualmachineinstances list, watch; virtualmachines list when a node's VM seems to be
gone; guestosinfo get when no other evidence says which VM a node runs in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import assert_never

from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.cloudprovider import names
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.nodes.addresses import VirtualAddresses
from windrow.cloudprovider.nodes.execute import execute
from windrow.cloudprovider.nodes.identity import (
    Candidates,
    OtherCloud,
    VmFound,
    VmMatch,
    VmMissing,
    VmUnknown,
    can_belong_to_cluster,
    match_vm,
)
from windrow.cloudprovider.nodes.planning import (
    EmitEvent,
    NodeState,
    Plan,
    RemoveTaint,
    needs_initialisation,
    plan_node,
)
from windrow.cloudprovider.nodes.readings import (
    GuestNode,
    GuestVm,
    Instance,
    read_instance,
    read_node,
    read_vm,
)
from windrow.cloudprovider.nodes.vms import GuestHostnames, VmInventory
from windrow.controller.outcomes import SETTLED, Outcome, Waiting
from windrow.core.logs import with_values
from windrow.harvester.resources import VM, VMI
from windrow.kubernetes.errors import Conflict, Forbidden
from windrow.kubernetes.resources import NODE
from windrow.kubernetes.taints import UNINITIALIZED

# A host name in a guest cannot be watched, only asked for.
HOSTNAME_RETRY = timedelta(seconds=10)
# How soon a node whose VM is missing is checked again when no watch event comes before.
MISSING_VM_RETRY = timedelta(seconds=30)
# Both back off up to this.
MAX_RETRY = timedelta(minutes=5)
# After a conflict: by then the watch has brought the newer node.
CONFLICT_RETRY = timedelta(milliseconds=200)
# After a 403: an administrator has to grant the right first.
FORBIDDEN_RETRY = timedelta(minutes=5)

QUEUE = "Nodes"
# A namespace may hold a thousand VMs, of 10 KB each, and ten times that while they are read.
PAGE = 100


class NodeController:
    """Keeps the nodes of one guest cluster in step with their VMs, while it runs.

    `nodes`, `vms` and `instances` are its informers; others may read them. `virtual` is kept current by its owner.
    """

    def __init__(self, context: ControllerContext, virtual: VirtualAddresses) -> None:
        self._guest = Client(context.guest)
        self._namespace = context.namespace
        self._options = context.options
        self._clock = context.clock
        self._log = context.log
        self._metrics = context.metrics
        self._virtual = virtual
        host, namespace = context.host, context.namespace
        self.nodes = context.informer(context.guest, NODE, "", read_node, page_size=PAGE)
        host_informer = partial(context.informer, host, page_size=PAGE, on_state=self._on_host_state)
        self.vms: Informer[GuestVm] = host_informer(VM, namespace, read_vm)
        self.instances: Informer[Instance] = host_informer(VMI, namespace, read_instance)
        self._was_synced = False
        self._recorders = {
            source: context.recorder(source) for source in (names.NODE_CONTROLLER, names.LIFECYCLE_CONTROLLER)
        }
        self._controller = context.controller("nodes", self._reconcile, QUEUE, context.options.node_workers)
        self._vm_inventory = VmInventory(Client(host), namespace, context.clock)
        self._hostnames = GuestHostnames(Client(host), namespace, context.clock)
        # The name of the VM that each node runs in; "" while it is not known: a change of any VM may concern it.
        self._vm_of: dict[str, str] = {}
        # What each node waits for, and since when; the log has it once.
        self._waiting: dict[str, tuple[str, timedelta]] = {}
        # Uninitialised nodes that were reconciled once.
        self._synced_once: set[str] = set()
        # The instance that each node runs in, and since when we know it.
        self._instance_since: dict[str, tuple[str, timedelta]] = {}

    async def run(self) -> None:
        caches = (self.nodes, self.vms, self.instances)
        async with asyncio.TaskGroup() as group:
            for cache in caches:
                group.create_task(cache.run())
            # No node can be matched with its VM before all three informers have synced.
            for cache in caches:
                await cache.wait_for_sync()
            group.create_task(self._follow_nodes())
            group.create_task(self._follow_vms(self.vms))
            group.create_task(self._follow_vms(self.instances))
            for recorder in self._recorders.values():
                group.create_task(recorder.run())
            group.create_task(self._controller.run())

    def list_without_macvlan(self) -> tuple[str, ...]:
        """The nodes on which kube-vip may run and whose kernel is known to lack the module."""
        return tuple(sorted(node.name for node in self.nodes.values() if node.cannot_ask_dhcp))

    def enqueue_all(self) -> None:
        for node in self.nodes.values():
            self._enqueue(node.name)

    def enqueue_with_addresses(self, addresses: Collection[str]) -> None:
        """Enqueue the nodes that have one of these addresses in their status."""
        if not addresses:
            return
        for node in self.nodes.values():
            if any(one.address in addresses for one in node.addresses):
                self._enqueue(node.name)

    # --- events -> work queue -------------------------------------------------------------------------------------

    async def _follow_nodes(self) -> None:
        async for before, after in self.nodes.changes():
            node = after or before
            assert node is not None
            self._enqueue(node.name)
            if after is None:
                self._forget(node.name)

    async def _follow_vms(self, cache: Informer[GuestVm] | Informer[Instance]) -> None:
        async for before, after in cache.changes():
            vm = after or before
            assert vm is not None
            self._enqueue_for_vm(vm.name)

    def _enqueue_for_vm(self, vm_name: str) -> None:
        """After a change of a VM: enqueue its nodes, and every node whose VM is not known."""
        for node, vm in sorted(self._vm_of.items()):
            if vm in ("", vm_name):
                self._enqueue(node)

    def _on_host_state(self) -> None:
        """Nodes that came or waited while Harvester was not watched are not named by the changes of any VM."""
        is_synced = self._host_is_synced()
        if is_synced and not self._was_synced:
            self.enqueue_all()
        self._was_synced = is_synced

    def _enqueue(self, node_name: str) -> None:
        self._controller.queue.add(node_name)

    def _forget(self, node_name: str) -> None:
        self._vm_of.pop(node_name, None)
        self._synced_once.discard(node_name)
        self._waiting.pop(node_name, None)
        self._instance_since.pop(node_name, None)

    # --- one node -------------------------------------------------------------------------------------------------

    async def _reconcile(self, name: str) -> Outcome:
        node = self.nodes.get(NODE.ref(name))
        if node is None:
            self._forget(name)  # it may have been deleted during its last reconcile
            return SETTLED
        if needs_initialisation(node) and node.created and name not in self._synced_once:
            self._synced_once.add(name)
            self._metrics.first_sync_delay.observe((self._clock.now() - node.created).total_seconds())
        if self._host_is_synced():
            identity = await self._match_vm(node)
            self._remember(
                node, identity
            )  # before the next await: a VM that appears then must enqueue the node
        else:
            identity = VmUnknown("Harvester cannot be watched now")
        state = await self._observe(node, identity)
        plan = plan_node(state, self._options)
        try:
            await execute(self._guest, self._recorders, node, plan.changes)
        except Conflict:
            return Waiting(
                "the newer Node", self._clock.now(), "reconcile again", self._clock.now() + CONFLICT_RETRY
            )
        except Forbidden as error:
            # The original chart's role lacks `delete` on nodes. A missing right is not worth a tight loop.
            return self._waiting_outcome(name, str(error), FORBIDDEN_RETRY)
        self._log_changes(node, plan)
        if not self._host_is_synced():
            # The watch error is logged once, not for each node.
            return self._waiting_outcome(name, "Harvester", MISSING_VM_RETRY, log=False)
        if not plan.waits_for and isinstance(state.identity, VmMissing) and not node.is_ready:
            # Its deletion would be logged; a VM that may be in another namespace is not worth a line each time.
            return self._waiting_outcome(name, "its VM", self._retry_after(state, plan), log=False)
        return self._waiting_outcome(name, plan.waits_for, self._retry_after(state, plan))

    def _log_changes(self, node: GuestNode, plan: Plan) -> None:
        for change in plan.changes:
            if not isinstance(change, EmitEvent):
                with_values(self._log, node=node.name).info("%s", change)
            if isinstance(change, RemoveTaint) and change.key == UNINITIALIZED and node.created:
                self._metrics.taint_removal_delay.observe((self._clock.now() - node.created).total_seconds())

    def _retry_after(self, state: NodeState, plan: Plan) -> timedelta | None:
        now = self._clock.monotonic()
        _, since = self._waiting.get(state.node.name, ("", now))
        waited = now - since
        match state.identity:
            case VmUnknown() if needs_initialisation(state.node):
                return min(max(HOSTNAME_RETRY, waited / 2), MAX_RETRY)
            case VmMissing() if not state.node.is_ready:
                return min(max(MISSING_VM_RETRY, waited / 2), MAX_RETRY)
            case _:
                return plan.requeue_after

    def _waiting_outcome(
        self, name: str, waits_for: str, retry_after: timedelta | None, *, log: bool = True
    ) -> Outcome:
        """Remember what the node waits for, and since when; log it once."""
        now, elapsed = self._clock.now(), self._clock.monotonic()
        if not waits_for:
            self._waiting.pop(name, None)
            return (
                SETTLED
                if retry_after is None
                else Waiting("its VM", now, "reconcile again", now + retry_after)
            )
        sentence, since = self._waiting.get(name, ("", elapsed))
        if sentence != waits_for:
            since = elapsed
            if log:
                with_values(self._log, node=name).info("waiting: %s", waits_for)
        self._waiting[name] = (waits_for, since)
        until = now + retry_after if retry_after else None
        return Waiting(waits_for, now - (elapsed - since), "reconcile again", until)

    def _host_is_synced(self) -> bool:
        return self.vms.is_watching and self.instances.is_watching

    def _remember(self, node: GuestNode, identity: VmMatch) -> None:
        """Which VM the node runs in, so that changes of the VM enqueue it, and since when we know its instance."""
        match identity:
            case VmFound(vm):
                self._vm_of[node.name] = vm.name
                instance = self._find_instance(vm)
                known, _ = self._instance_since.get(node.name, ("", None))
                if instance is not None and instance.uid != known:
                    self._instance_since[node.name] = (instance.uid, self._clock.monotonic())
            case VmMissing() | VmUnknown():
                self._vm_of[node.name] = ""
            case OtherCloud():
                self._vm_of.pop(node.name, None)
            case _:
                assert_never(identity)

    async def _observe(self, node: GuestNode, identity: VmMatch) -> NodeState:
        if not isinstance(identity, VmFound):
            tainted_at = node.out_of_service_since
            tainted_for = None if tainted_at is None else self._clock.now() - tainted_at
            is_gone = await self._is_gone(node, identity)
            return NodeState(node, identity, is_gone=is_gone, out_of_service_for=tainted_for)
        now = self._clock.monotonic()
        _, since = self._instance_since.get(node.name, ("", now))
        instance = self._find_instance(identity.vm)
        return NodeState(node, identity, instance, known_for=now - since, virtual=self._virtual.all)

    def _find_instance(self, vm: GuestVm) -> Instance | None:
        return self.instances.get(VMI.ref(vm.name, self._namespace))

    async def _is_gone(self, node: GuestNode, identity: VmMatch) -> bool:
        if not isinstance(identity, VmMissing) or node.is_ready:
            return False
        if names.LIFECYCLE_CONTROLLER not in self._options.controllers:
            return False
        return await self._vm_inventory.is_missing(
            identity.vm_uid, (one.vm_uid for one in self.nodes.values())
        )

    # --- the VM of a node -----------------------------------------------------------------------------------------

    async def _match_vm(self, node: GuestNode) -> VmMatch:
        vm = self._find_vm_by_uid(node)
        if vm is not None:
            return VmFound(vm)
        claimed = {one.vm_uid for one in self.nodes.values() if one.is_ready and one.name != node.name}
        candidates = Candidates(list(self.vms.values()), list(self.instances.values()), claimed=claimed)
        identity = match_vm(node, candidates, self._options)
        if not isinstance(identity, VmUnknown) or not needs_initialisation(node):
            return identity
        never = self._options.disable_vmi_controller or self._options.disable_hostname_lookup
        may_ask = names.NODE_CONTROLLER in self._options.controllers and not never
        hostnames = await self._fetch_hostnames(candidates) if may_ask else {}
        return match_vm(node, replace(candidates, hostnames=hostnames), self._options)

    def _find_vm_by_uid(self, node: GuestNode) -> GuestVm | None:
        """The VM of the providerID, where the index or the node's name finds it: nearly always."""
        for name in (self._vm_of.get(node.name, ""), node.name):
            vm = self.vms.get(VM.ref(name, self._namespace))
            if vm is not None and node.vm_uid and vm.uid == node.vm_uid:
                return vm
        return None

    async def _fetch_hostnames(self, candidates: Candidates) -> dict[str, str]:
        """The host names of the guests that could be a node without a VM."""
        free = {
            vm.name
            for vm in candidates.vms
            if vm.uid not in candidates.claimed and can_belong_to_cluster(vm.guest_cluster, self._options)
        }
        return await self._hostnames.fetch([one for one in candidates.instances if one.name in free])
