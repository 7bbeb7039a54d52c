"""The nodes: three watches, and one queue of nodes, each of which is looked at as a whole.

What it asks of the guest: nodes list, watch, patch, delete; nodes/status patch; events create, patch. Of Harvester, in
one namespace: virtualmachines and virtualmachineinstances list, watch; virtualmachines list when a node's VM seems to
be gone; guestosinfo get when nobody knows whose a node is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta

from windrow.client.client import Client
from windrow.client.recording import Recorder
from windrow.client.transport import Transport
from windrow.client.watching import WatchedCache
from windrow.cloudprovider import names
from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.measures import Measures
from windrow.cloudprovider.nodes.carrying import carry_out
from windrow.cloudprovider.nodes.deeds import tell_change
from windrow.cloudprovider.nodes.homes import Homes
from windrow.cloudprovider.nodes.hostnames import Hostnames
from windrow.cloudprovider.nodes.identities import (
    Evidence,
    Foreign,
    Found,
    Identity,
    Missing,
    Unknown,
    identify,
    may_be_ours,
)
from windrow.cloudprovider.nodes.planning import Plan, RemoveTaint, Seen, needs_initialisation, plan_node
from windrow.cloudprovider.nodes.readings import (
    GuestNode,
    GuestVm,
    Instance,
    read_instance,
    read_node,
    read_vm,
)
from windrow.cloudprovider.nodes.roll import Roll
from windrow.cloudprovider.nodes.virtual import VirtualAddresses
from windrow.harvester.kinds import VM, VMI
from windrow.kube.errors import Conflict, Forbidden, KubeError
from windrow.kube.refs import NODE
from windrow.reconcile.controller import Controller
from windrow.reconcile.outcomes import SETTLED, Failed, Outcome, Waiting
from windrow.values.chance import Chance
from windrow.values.clock import Clock

# A guest that calls itself otherwise than its VM can only be asked; nothing tells when its answer changes.
ASK_AGAIN = timedelta(seconds=10)
# How soon a node whose VM is nowhere to be found is looked into, should no watch bring news of it.
LOOK_AGAIN = timedelta(seconds=30)
# Both are asked more and more rarely the longer it lasts, but not more rarely than this.
AT_LEAST_EVERY = timedelta(minutes=5)
# Soon after a conflict: by then the watch has brought the newer node.
AFTER_CONFLICT = timedelta(milliseconds=200)
# After a refusal: somebody has to grant the right first.
AFTER_REFUSAL = timedelta(minutes=5)

QUEUE = "Nodes"
# A namespace may hold a thousand VMs, of 10 KB each, and ten times that while they are read.
PAGE = 100

Say = Callable[[str], None]


class NodeController:
    """Keeps the nodes of one guest cluster in step with their VMs, while it runs.

    `nodes`, `vms` and `instances` are its caches; others may read them. `virtual` is told by others which addresses are
    those of services.
    """

    def __init__(
        self,
        guest: Transport,
        host: Transport,
        namespace: str,
        options: Options,
        virtual: VirtualAddresses,
        clock: Clock,
        chance: Chance,
        say: Say,
        measures: Measures,
    ) -> None:
        self._guest = Client(guest)
        self._namespace = namespace
        self._options = options
        self._virtual = virtual
        self._clock = clock
        self._say = say
        self._measures = measures
        self.nodes = WatchedCache(
            guest, NODE, "", read_node, clock, chance, heard=self._hearer("nodes"), page=PAGE
        )
        self.vms = WatchedCache(
            host, VM, namespace, read_vm, clock, chance, heard=self._hearer("VMs"), page=PAGE
        )
        self.instances = WatchedCache(
            host, VMI, namespace, read_instance, clock, chance, heard=self._hearer("VM instances"), page=PAGE
        )
        sources = (names.NODE_CONTROLLER, names.LIFECYCLE_CONTROLLER)
        self._recorders = {source: Recorder(self._guest, source, clock, chance) for source in sources}
        self._controller: Controller[str] = Controller(
            "nodes",
            self._reconcile,
            clock,
            chance,
            workers=options.node_workers,
            heard=self._count,
            added=lambda name: measures.queue_added(QUEUE),
        )
        queue = self._controller.queue
        measures.queue(QUEUE, lambda: len(queue))
        self._roll = Roll(Client(host), namespace, clock)
        self._hostnames = Hostnames(Client(host), namespace, clock)
        self._homes = Homes()
        # Nodes whose VM is not known: any news of a VM may be news of theirs.
        self._homeless: set[str] = set()
        # What each node waits for, and since when.
        self._waits: dict[str, tuple[str, datetime]] = {}
        # Fresh nodes that were looked at.
        self._met_first: set[str] = set()
        # The instance that each node runs in, and since when we know it.
        self._met: dict[str, tuple[str, datetime]] = {}

    async def run(self) -> None:
        caches = (self.nodes, self.vms, self.instances)
        async with asyncio.TaskGroup() as group:
            for cache in caches:
                group.create_task(cache.run())
            # Who a node is cannot be said before all three lists are known.
            for cache in caches:
                await cache.synced()
            group.create_task(self._follow_nodes())
            group.create_task(self._follow_vms())
            group.create_task(self._follow_instances())
            group.create_task(self._controller.run())

    def look_at_all(self) -> None:
        for node in self.nodes.values():
            self._look_at(node.name)

    def look_at_those_with(self, addresses: Collection[str]) -> None:
        """At the nodes that show one of these addresses as theirs."""
        if not addresses:
            return
        for node in self.nodes.values():
            if any(one.address in addresses for one in node.addresses):
                self._look_at(node.name)

    def _hearer(self, what: str) -> Callable[[KubeError | None], None]:
        def heard(problem: KubeError | None) -> None:
            self._say(
                f"{what} are watched again" if problem is None else f"{what} cannot be watched: {problem}"
            )

        return heard

    # --- who is looked at, and when -------------------------------------------------------------------------------

    async def _follow_nodes(self) -> None:
        async for before, after in self.nodes.changes():
            node = after or before
            assert node is not None
            self._look_at(node.name)
            if after is None:
                self._forget(node.name)

    async def _follow_vms(self) -> None:
        async for before, after in self.vms.changes():
            vm = after or before
            assert vm is not None
            self._wake(vm.name)

    async def _follow_instances(self) -> None:
        async for before, after in self.instances.changes():
            instance = after or before
            assert instance is not None
            self._wake(instance.name)

    def _wake(self, vm_name: str) -> None:
        """Something happened to a VM: look at its nodes, and at every node whose VM is not known."""
        for name in (*self._homes.nodes_of(vm_name), *sorted(self._homeless)):
            self._look_at(name)

    def _look_at(self, node_name: str) -> None:
        self._controller.queue.add(node_name)

    def _count(self, node_name: str, outcome: Outcome) -> None:
        if isinstance(outcome, Failed):
            self._measures.queue_retried(QUEUE)

    def _forget(self, node_name: str) -> None:
        self._homes.leave(node_name)
        self._homeless.discard(node_name)
        self._met_first.discard(node_name)
        self._waits.pop(node_name, None)
        self._met.pop(node_name, None)

    # --- one node -------------------------------------------------------------------------------------------------

    async def _reconcile(self, name: str) -> Outcome:
        node = self.nodes.get(NODE.ref(name))
        if node is None:
            self._forget(name)  # it may have gone while it was looked at
            return SETTLED
        if needs_initialisation(node) and node.created and name not in self._met_first:
            self._met_first.add(name)
            self._measures.node_seen((self._clock.now() - node.created).total_seconds())
        seen = await self._observe(node)
        plan = plan_node(seen, self._options)
        try:
            await carry_out(self._guest, self._recorders, node, plan.changes)
        except Conflict:
            return Waiting(
                "the newer node", self._clock.now(), "look again", self._clock.now() + AFTER_CONFLICT
            )
        except Forbidden as error:
            # The original chart's role lacks `delete` on nodes. A missing right is not worth a tight loop.
            return self._wait(name, f"node {name!r}: {error}", AFTER_REFUSAL)
        self._tell(node, plan)
        if not self._knows_host():
            # That it cannot be watched was said once, and not for each node.
            return self._wait(name, "Harvester", LOOK_AGAIN, aloud=False)
        if not plan.waits_for and isinstance(seen.identity, Missing) and not node.is_ready:
            # Its deletion would be told; that its VM may be of elsewhere is not worth a word each time.
            return self._wait(name, "its VM", self._patience(seen, plan), aloud=False)
        return self._wait(name, plan.waits_for, self._patience(seen, plan))

    def _tell(self, node: GuestNode, plan: Plan) -> None:
        for change in plan.changes:
            if told := tell_change(change):
                self._say(f"node {node.name!r}: {told}")
            if isinstance(change, RemoveTaint) and change.key == names.UNINITIALISED and node.created:
                self._measures.node_initialised((self._clock.now() - node.created).total_seconds())

    def _patience(self, seen: Seen, plan: Plan) -> timedelta | None:
        _, since = self._waits.get(seen.node.name, ("", self._clock.now()))
        waited = self._clock.now() - since
        match seen.identity:
            case Unknown() if needs_initialisation(seen.node):
                return min(max(ASK_AGAIN, waited / 2), AT_LEAST_EVERY)
            case Missing() if not seen.node.is_ready:
                return min(max(LOOK_AGAIN, waited / 2), AT_LEAST_EVERY)
            case _:
                return plan.look_again

    def _wait(self, name: str, waits_for: str, patience: timedelta | None, *, aloud: bool = True) -> Outcome:
        """Remember what the node waits for, and since when; the sentence is said once."""
        now = self._clock.now()
        if not waits_for:
            self._waits.pop(name, None)
            return SETTLED if patience is None else Waiting("its VM", now, "look again", now + patience)
        sentence, since = self._waits.get(name, ("", now))
        if sentence != waits_for:
            since = now
            if aloud:
                self._say(waits_for)
        self._waits[name] = (waits_for, since)
        return Waiting(waits_for, since, "it goes on", now + patience if patience else None)

    def _knows_host(self) -> bool:
        return self.vms.is_synced and self.instances.is_synced

    async def _observe(self, node: GuestNode) -> Seen:
        if not self._knows_host():
            return Seen(node, Unknown("Harvester cannot be watched now"))
        identity = await self._identify(node)
        if not isinstance(identity, Found):
            self._homes.leave(node.name)
            if not isinstance(identity, Foreign):
                self._homeless.add(node.name)
            return Seen(node, identity, is_gone=await self._is_gone(node, identity))
        self._homes.settle(node.name, identity.vm.name)
        self._homeless.discard(node.name)
        instance = self.instances.get(VMI.ref(identity.vm.name, self._namespace))
        known_for = self._known_for(node, instance)
        return Seen(node, identity, instance, known_for=known_for, virtual=self._virtual.all)

    def _known_for(self, node: GuestNode, instance: Instance | None) -> timedelta:
        uid, since = self._met.get(node.name, ("", self._clock.now()))
        if instance is not None and instance.uid != uid:
            since = self._clock.now()
            self._met[node.name] = (instance.uid, since)
        return self._clock.now() - since

    async def _is_gone(self, node: GuestNode, identity: Identity) -> bool:
        if not isinstance(identity, Missing) or node.is_ready:
            return False
        if names.LIFECYCLE_CONTROLLER not in self._options.controllers:
            return False
        return await self._roll.lacks(identity.vm_uid, (one.vm_uid for one in self.nodes.values()))

    # --- who it is ------------------------------------------------------------------------------------------------

    async def _identify(self, node: GuestNode) -> Identity:
        vm = self._known_home(node)
        if vm is not None:
            return Found(vm)
        claimed = {one.vm_uid for one in self.nodes.values() if one.is_ready and one.name != node.name}
        evidence = Evidence(list(self.vms.values()), list(self.instances.values()), claimed=claimed)
        identity = identify(node, evidence, self._options)
        if not isinstance(identity, Unknown) or not needs_initialisation(node):
            return identity
        never = self._options.disable_vmi_controller or self._options.disable_hostname_lookup
        asks = names.NODE_CONTROLLER in self._options.controllers and not never
        hostnames = await self._ask(evidence) if asks else {}
        return identify(node, replace(evidence, hostnames=hostnames), self._options)

    def _known_home(self, node: GuestNode) -> GuestVm | None:
        """The VM that the providerID names, where no search is needed to find it: nearly always."""
        for name in (self._homes.vm_of(node.name), node.name):
            vm = self.vms.get(VM.ref(name, self._namespace))
            if vm is not None and node.vm_uid and vm.uid == node.vm_uid:
                return vm
        return None

    async def _ask(self, evidence: Evidence) -> dict[str, str]:
        """How those guests call themselves that could be a node nobody has found yet."""
        free = {
            vm.name
            for vm in evidence.vms
            if vm.uid not in evidence.claimed and may_be_ours(vm.guest_cluster, self._options)
        }
        return await self._hostnames.ask([one for one in evidence.instances if one.name in free])
