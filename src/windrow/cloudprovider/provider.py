"""The work of the leader: three watches, one queue of nodes, one network map."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from windrow.client.client import Client
from windrow.client.recording import Recorder
from windrow.client.transport import Transport
from windrow.client.watching import WatchedCache
from windrow.cloudprovider import names
from windrow.cloudprovider.flags import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, Options
from windrow.cloudprovider.identities import Found, Identity, Missing, Unknown, identify, may_be_ours
from windrow.cloudprovider.networks import ensure_network_map, network_map
from windrow.cloudprovider.nodes import Plan, Seen, needs_initialisation, plan_node
from windrow.cloudprovider.readings import GuestNode, GuestVm, Instance, read_instance, read_node, read_vm
from windrow.cloudprovider.writes import carry_out
from windrow.harvester.kinds import VM, VMI, VMI_ACTIONS
from windrow.kube.errors import Conflict, Forbidden, KubeError
from windrow.kube.objects import uid_of
from windrow.kube.refs import NODE
from windrow.kube.requests import Request
from windrow.reconcile.controller import Controller
from windrow.reconcile.outcomes import SETTLED, Outcome, Waiting
from windrow.values.chance import Chance
from windrow.values.clock import Clock

# A guest that calls itself otherwise than its VM can only be asked; nothing tells when its answer changes.
ASK_AGAIN = timedelta(seconds=10)
# Soon after a conflict: by then the watch has brought the newer node.
AFTER_CONFLICT = timedelta(milliseconds=200)
# After a refusal: somebody has to grant the right first.
AFTER_REFUSAL = timedelta(minutes=5)
# How often a node whose VM is nowhere to be found is looked into, should no watch bring news of it.
LOOK_AGAIN = timedelta(seconds=30)

# One node that waits for a slow answer must not hold up the others, also where the flag's default of 1 stands.
LEAST_WORKERS = 4

Say = Callable[[str], None]


class Provider:
    """Keeps the nodes of one guest cluster in step with their VMs, while it runs."""

    def __init__(
        self,
        guest: Transport,
        host: Transport,
        namespace: str,
        options: Options,
        clock: Clock,
        chance: Chance,
        say: Say,
    ) -> None:
        self._guest = Client(guest)
        self._host = Client(host)
        self._namespace = namespace
        self._options = options
        self._clock = clock
        self._say = say
        self._nodes = WatchedCache(guest, NODE, "", read_node, clock, chance, heard=self._hearer("nodes"))
        self._vms = WatchedCache(host, VM, namespace, read_vm, clock, chance, heard=self._hearer("VMs"))
        self._instances = WatchedCache(
            host, VMI, namespace, read_instance, clock, chance, heard=self._hearer("VM instances")
        )
        sources = (names.NODE_CONTROLLER, names.LIFECYCLE_CONTROLLER)
        self._recorders = {source: Recorder(self._guest, source, clock, chance) for source in sources}
        self._controller: Controller[str] = Controller(
            "nodes", self._reconcile, clock, chance, workers=max(options.node_workers, LEAST_WORKERS)
        )
        self._network_maps: Controller[str] = Controller(
            "network map", self._reconcile_network_map, clock, chance
        )
        # Where each identified node runs: VM name -> node name.
        self._homes: dict[str, str] = {}
        self._waits: dict[str, tuple[str, datetime]] = {}

    async def run(self) -> None:
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
            self._controller.queue.add(node.name)
            if after is None:
                self._waits.pop(node.name, None)
                self._homes = {vm: home for vm, home in self._homes.items() if home != node.name}

    async def _follow_vms(self) -> None:
        async for before, after in self._vms.changes():
            for vm in (before, after):
                if vm is not None:
                    self._wake(vm.name)

    async def _follow_instances(self) -> None:
        async for before, after in self._instances.changes():
            instance = after or before
            assert instance is not None
            self._wake(instance.name)
            if self._options.names_cluster and not self._options.disable_vmi_controller:
                self._network_maps.queue.add(names.NETWORK_MAP_NAME)

    def _wake(self, vm_name: str) -> None:
        """Something happened to a VM: look at its node, or at every node whose VM is not known yet."""
        home = self._homes.get(vm_name)
        if home is not None:
            self._controller.queue.add(home)
            return
        known = set(self._homes.values())
        for node in self._nodes.values():
            if node.name not in known:
                self._controller.queue.add(node.name)

    # --- one node -------------------------------------------------------------------------------------------------

    async def _reconcile(self, name: str) -> Outcome:
        node = self._nodes.get(NODE.ref(name))
        if node is None:
            return SETTLED
        if not self._vms.is_synced or not self._instances.is_synced:
            return self._wait(name, Plan(waits_for=f"node {name!r}: {self._host_problem()}"), LOOK_AGAIN)
        seen = await self._observe(node)
        plan = plan_node(seen, self._options)
        try:
            await carry_out(self._guest, self._recorders, node, plan.changes)
        except Conflict:
            return Waiting(
                "the newer node", self._clock.now(), "look again", self._clock.now() + AFTER_CONFLICT
            )
        except Forbidden as error:
            # The bundled chart's role lacks `delete` on nodes. A right that is missing is not worth a tight loop.
            return self._wait(name, Plan(waits_for=f"node {name!r}: {error}"), AFTER_REFUSAL)
        for change in plan.changes:
            self._say(f"node {name!r}: {type(change).__name__} because {change.because}")
        return self._wait(name, plan, self._patience(seen))

    def _patience(self, seen: Seen) -> timedelta | None:
        match seen.identity:
            case Unknown() if needs_initialisation(seen.node):
                return ASK_AGAIN
            case Missing() if not seen.node.is_ready:
                return LOOK_AGAIN
            case _:
                return None

    def _wait(self, name: str, plan: Plan, patience: timedelta | None) -> Outcome:
        now = self._clock.now()
        if not plan.waits_for:
            self._waits.pop(name, None)
            return SETTLED if patience is None else Waiting("its VM", now, "look again", now + patience)
        sentence, since = self._waits.get(name, ("", now))
        if sentence != plan.waits_for:
            self._say(plan.waits_for)
            since = now
        self._waits[name] = (plan.waits_for, since)
        return Waiting(plan.waits_for, since, "it is initialised", now + patience if patience else None)

    async def _observe(self, node: GuestNode) -> Seen:
        identity = await self._identify(node)
        if isinstance(identity, Found):
            self._homes = {vm: home for vm, home in self._homes.items() if home != node.name}
            self._homes[identity.vm.name] = node.name
            instance = self._instances.get(VMI.ref(identity.vm.name, self._namespace))
            return Seen(node, identity, instance)
        is_gone = False
        if (
            isinstance(identity, Missing)
            and not node.is_ready
            and LIFECYCLE_CONTROLLER in self._options.controllers
        ):
            is_gone = await self._is_gone(identity.vm_uid)
        return Seen(node, identity, is_gone=is_gone)

    async def _identify(self, node: GuestNode) -> Identity:
        vms = list(self._vms.values())
        identity = identify(node, vms, {}, self._options)
        asks = NODE_CONTROLLER in self._options.controllers and not self._options.disable_vmi_controller
        if isinstance(identity, Unknown) and asks and needs_initialisation(node):
            return identify(node, vms, await self._hostnames(vms), self._options)
        return identity

    async def _hostnames(self, vms: list[GuestVm]) -> dict[str, str]:
        """How guests call themselves, by VM name; of VMs that could be a node nobody has found yet."""
        found = {}
        for vm in vms:
            instance = self._instances.get(VMI.ref(vm.name, self._namespace))
            if vm.name in self._homes or not may_be_ours(vm.guest_cluster, self._options):
                continue
            if instance is not None and _can_answer(instance):
                found[vm.name] = await self._hostname(vm.name)
        return found

    async def _hostname(self, vm_name: str) -> str:
        path = VMI_ACTIONS.path(self._namespace, vm_name, "guestosinfo")
        try:
            return str((await self._host.call(Request("GET", path))).get("hostname") or "")
        except KubeError:
            return ""  # the agent does not answer now; we come again

    async def _is_gone(self, vm_uid: str) -> bool:
        """Whether Harvester, asked now, has no such VM, and we ask the right Harvester.

        A namespace that holds the VM of none of our nodes is not our namespace: then the credential was changed,
        and what it does not show is not gone.
        """
        uids = {uid_of(raw) for raw in await self._host.list(VM, self._namespace)}
        ours = {node.vm_uid for node in self._nodes.values() if node.vm_uid}
        return vm_uid not in uids and bool(uids & ours)

    def _host_problem(self) -> str:
        problem = self._vms.problem or self._instances.problem
        return f"Harvester cannot be watched: {problem}" if problem else "Harvester is being listed"

    # --- the network map ------------------------------------------------------------------------------------------

    async def _reconcile_network_map(self, key: str) -> Outcome:
        instances: list[Instance] = list(self._instances.values())
        if await ensure_network_map(self._guest, network_map(instances, self._options)):
            self._say(f"ConfigMap {names.NETWORK_MAP_NAME} written")
        return SETTLED


def _can_answer(instance: Instance) -> bool:
    return instance.has_agent and instance.phase == "Running" and not instance.is_migrating
