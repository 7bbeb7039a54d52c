"""The work of the leader: watches of nodes, VMs and instances, one queue of nodes, one network map; beside them the
services and the sweep.

What it asks of the guest (its chart grants this, and no more): nodes list, watch, patch, delete; nodes/status
patch; events create, patch; configmaps get, create, update. Of Harvester, in one namespace: virtualmachines and
virtualmachineinstances list, watch; guestosinfo get. The services and the sweep tell theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from windrow.client.client import Client
from windrow.client.recording import Recorder
from windrow.client.transport import Transport
from windrow.client.watching import WatchedCache
from windrow.cloudprovider import names
from windrow.cloudprovider.flags import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, SERVICE_CONTROLLER, Options
from windrow.cloudprovider.homes import Homes
from windrow.cloudprovider.hostnames import Hostnames
from windrow.cloudprovider.identities import (
    Evidence,
    Foreign,
    Found,
    Identity,
    Missing,
    Unknown,
    identify,
    may_be_ours,
)
from windrow.cloudprovider.measures import Measures
from windrow.cloudprovider.networks import ensure_network_map, network_map
from windrow.cloudprovider.nodes import Plan, RemoveTaint, Seen, needs_initialisation, plan_node
from windrow.cloudprovider.readings import GuestNode, GuestVm, Instance, read_instance, read_node, read_vm
from windrow.cloudprovider.roll import Roll
from windrow.cloudprovider.services.provider import ServiceProvider
from windrow.cloudprovider.sweep import Sweep
from windrow.cloudprovider.virtual import VirtualAddresses
from windrow.cloudprovider.writes import carry_out
from windrow.harvester.kinds import VM, VMI
from windrow.kube.errors import Conflict, Forbidden, KubeError
from windrow.kube.refs import NODE
from windrow.reconcile.controller import Controller
from windrow.reconcile.outcomes import SETTLED, Outcome, Waiting
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

# One node that waits for a slow answer must not hold up the others, also where the flag's default of 1 stands.
LEAST_WORKERS = 4
QUEUE = "Nodes"

Say = Callable[[str], None]


class Provider:
    """Keeps one guest cluster in step with its Harvester, while it runs."""

    def __init__(
        self,
        guest: Transport,
        host: Transport,
        namespace: str,
        options: Options,
        clock: Clock,
        chance: Chance,
        say: Say,
        measures: Measures | None = None,
    ) -> None:
        self._guest = Client(guest)
        self._host = Client(host)
        self._namespace = namespace
        self._options = options
        self._clock = clock
        self._say = say
        self._measures = measures or Measures()
        self._nodes = WatchedCache(guest, NODE, "", read_node, clock, chance, heard=self._hearer("nodes"))
        self._vms = WatchedCache(host, VM, namespace, read_vm, clock, chance, heard=self._hearer("VMs"))
        self._instances = WatchedCache(
            host, VMI, namespace, read_instance, clock, chance, heard=self._hearer("VM instances")
        )
        self._services: ServiceProvider | None = None
        self._sweep: Sweep | None = None
        if SERVICE_CONTROLLER in options.controllers:
            self._services = ServiceProvider(
                guest, host, namespace, options, clock, chance, say, self._measures
            )
            self._sweep = Sweep(
                self._guest,
                self._host,
                self._services.services,
                self._services.balancers,
                options,
                clock,
                say,
                self._measures,
            )
        # Nobody looks at services where they are not ours to handle: then no address is known to be one of theirs.
        self._virtual = VirtualAddresses()
        self._knows_virtual = self._services is None
        sources = (names.NODE_CONTROLLER, names.LIFECYCLE_CONTROLLER)
        self._recorders = {source: Recorder(self._guest, source, clock, chance) for source in sources}
        self._controller: Controller[str] = Controller(
            "nodes", self._reconcile, clock, chance, workers=max(options.node_workers, LEAST_WORKERS)
        )
        self._network_maps: Controller[str] = Controller(
            "network map", self._reconcile_network_map, clock, chance
        )
        self._network_map: dict[str, str] | None = None
        self._roll = Roll(self._host, namespace, clock)
        self._hostnames = Hostnames(self._host, namespace, clock)
        self._homes = Homes()
        # Nodes whose VM is not known: any news of a VM may be news of theirs.
        self._homeless: set[str] = set()
        # What each node waits for, and since when.
        self._waits: dict[str, tuple[str, datetime]] = {}
        # Fresh nodes that were looked at.
        self._met_first: set[str] = set()
        # The instance that each node runs in, and since when we know it.
        self._met: dict[str, tuple[str, datetime]] = {}

    def waits_for(self) -> str:
        """Which lists were not read yet; "" once all were. For the probe of readiness."""
        caches: list[WatchedCache[Any]] = [self._nodes, self._vms, self._instances]
        if self._services is not None:
            caches += [self._services.services, self._services.balancers]
        unknown = [cache.kind.plural for cache in caches if not cache.was_listed]
        return f"not listed yet: {', '.join(unknown)}" if unknown else ""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._services is not None and self._sweep is not None:
                group.create_task(self._services.run())
                group.create_task(self._sweep.run())
                group.create_task(self._follow_services(self._services))
            group.create_task(self._run_nodes())

    async def _run_nodes(self) -> None:
        async with asyncio.TaskGroup() as group:
            for cache in (self._nodes, self._vms, self._instances):
                group.create_task(cache.run())
            # Who a node is cannot be said before all three lists are known.
            for cache in (self._nodes, self._vms, self._instances):
                await cache.synced()
            group.create_task(self._follow_nodes())
            group.create_task(self._follow_vms())
            group.create_task(self._follow_instances())
            group.create_task(self._controller.run())
            group.create_task(self._network_maps.run())

    def _hearer(self, what: str) -> Callable[[KubeError | None], None]:
        def heard(problem: KubeError | None) -> None:
            self._say(
                f"{what} are watched again" if problem is None else f"{what} cannot be watched: {problem}"
            )

        return heard

    # --- who is looked at, and when -------------------------------------------------------------------------------

    async def _follow_nodes(self) -> None:
        async for before, after in self._nodes.changes():
            node = after or before
            assert node is not None
            self._look_at(node.name)
            if after is None:
                self._forget(node.name)

    async def _follow_vms(self) -> None:
        async for before, after in self._vms.changes():
            vm = after or before
            assert vm is not None
            self._wake(vm.name)

    async def _follow_instances(self) -> None:
        async for before, after in self._instances.changes():
            instance = after or before
            assert instance is not None
            self._wake(instance.name)
            if self._options.names_cluster and not self._options.disable_vmi_controller:
                self._network_maps.queue.add(names.NETWORK_MAP_NAME)

    async def _follow_services(self, provider: ServiceProvider) -> None:
        await provider.services.synced()
        for known in provider.services.values():
            self._virtual.note(known.namespace, known.name, known)
        self._knows_virtual = True
        for node in self._nodes.values():
            self._look_at(node.name)
        async for before, after in provider.services.changes():
            service = after or before
            assert service is not None
            fresh = self._virtual.note(service.namespace, service.name, after)
            self._look_at_those_with(fresh)

    def _look_at_those_with(self, addresses: Collection[str]) -> None:
        """Nodes that show the address of a service as one of theirs."""
        if not addresses:
            return
        for node in self._nodes.values():
            if any(one.address in addresses for one in node.addresses):
                self._look_at(node.name)

    def _wake(self, vm_name: str) -> None:
        """Something happened to a VM: look at its nodes, and at every node whose VM is not known."""
        for name in (*self._homes.nodes_of(vm_name), *sorted(self._homeless)):
            self._look_at(name)

    def _look_at(self, node_name: str) -> None:
        self._controller.queue.add(node_name)
        self._measures.queue_added(QUEUE)
        self._measures.queue_is(QUEUE, len(self._controller.queue))

    def _forget(self, node_name: str) -> None:
        self._homes.leave(node_name)
        self._homeless.discard(node_name)
        self._met_first.discard(node_name)
        self._waits.pop(node_name, None)
        self._met.pop(node_name, None)

    # --- one node -------------------------------------------------------------------------------------------------

    async def _reconcile(self, name: str) -> Outcome:
        self._measures.queue_is(QUEUE, len(self._controller.queue))
        node = self._nodes.get(NODE.ref(name))
        if node is None:
            return SETTLED
        if not self._vms.is_synced or not self._instances.is_synced:
            return self._wait(name, f"node {name!r}: {self._host_problem()}", LOOK_AGAIN)
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
        if not plan.waits_for and isinstance(seen.identity, Missing) and not node.is_ready:
            # Its deletion would be told; that its VM may be of elsewhere is not worth a word each time.
            return self._wait(name, "its VM", self._patience(seen, plan), aloud=False)
        return self._wait(name, plan.waits_for, self._patience(seen, plan))

    def _tell(self, node: GuestNode, plan: Plan) -> None:
        for change in plan.changes:
            self._say(f"node {node.name!r}: {type(change).__name__} because {change.because}")
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

    async def _observe(self, node: GuestNode) -> Seen:
        identity = await self._identify(node)
        if not isinstance(identity, Found):
            self._homes.leave(node.name)
            if not isinstance(identity, Foreign):
                self._homeless.add(node.name)
            return Seen(node, identity, is_gone=await self._is_gone(node, identity))
        self._homes.settle(node.name, identity.vm.name)
        self._homeless.discard(node.name)
        instance = self._instances.get(VMI.ref(identity.vm.name, self._namespace))
        virtual = self._virtual.all if self._knows_virtual else None
        return Seen(node, identity, instance, known_for=self._known_for(node, instance), virtual=virtual)

    def _known_for(self, node: GuestNode, instance: Instance | None) -> timedelta:
        uid, since = self._met.get(node.name, ("", self._clock.now()))
        if instance is not None and instance.uid != uid:
            since = self._clock.now()
            self._met[node.name] = (instance.uid, since)
        return self._clock.now() - since

    async def _is_gone(self, node: GuestNode, identity: Identity) -> bool:
        if not isinstance(identity, Missing) or node.is_ready:
            return False
        if LIFECYCLE_CONTROLLER not in self._options.controllers:
            return False
        return await self._roll.lacks(identity.vm_uid, (one.vm_uid for one in self._nodes.values()))

    # --- who it is ------------------------------------------------------------------------------------------------

    async def _identify(self, node: GuestNode) -> Identity:
        vm = self._known_home(node)
        if vm is not None:
            return Found(vm)
        claimed = {one.vm_uid for one in self._nodes.values() if one.is_ready and one.name != node.name}
        evidence = Evidence(list(self._vms.values()), list(self._instances.values()), claimed=claimed)
        identity = identify(node, evidence, self._options)
        if not isinstance(identity, Unknown) or not needs_initialisation(node):
            return identity
        never = self._options.disable_vmi_controller or self._options.disable_hostname_lookup
        asks = NODE_CONTROLLER in self._options.controllers and not never
        hostnames = await self._ask(evidence) if asks else {}
        return identify(node, replace(evidence, hostnames=hostnames), self._options)

    def _known_home(self, node: GuestNode) -> GuestVm | None:
        """The VM that the providerID names, where no search is needed to find it: nearly always."""
        for name in (self._homes.vm_of(node.name), node.name):
            vm = self._vms.get(VM.ref(name, self._namespace))
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

    def _host_problem(self) -> str:
        problem = self._vms.problem or self._instances.problem
        return f"Harvester cannot be watched: {problem}" if problem else "Harvester is being listed"

    # --- the network map ------------------------------------------------------------------------------------------

    async def _reconcile_network_map(self, key: str) -> Outcome:
        wanted = network_map(self._instances.values(), self._options)
        if wanted == self._network_map:
            return SETTLED
        if await ensure_network_map(self._guest, wanted):
            self._say(f"ConfigMap {names.NETWORK_MAP_NAME} written")
        self._network_map = wanted
        return SETTLED
