"""What must be true around a cluster at every instant: checked when something changes, from both sides of each promise.

An event is told a little after what it tells, so whatever looks wrong is looked at again: only what was wrong before and
still is counts. `seen` counts what each rule was asked about, so that a run in which one had nothing to do shows that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

from tests.stories.cluster_invariants import MACHINE_UID, Founded
from tests.support.simulation import Simulation

from windrow.clusters.api.cluster import DRAIN_TIMEOUT
from windrow.clusters.api.kinds import IP_ADDRESS, MACHINE
from windrow.emulator import kinds
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    name_of,
    namespace_of,
    nested,
    time_of,
    uid_of,
)
from windrow.kubernetes.resources import NODE, PVC, ApiResource


@dataclass(eq=False)
class Instants:
    """`named` are uids of VMs that the run itself deletes; `quorum_excused` while it has taken etcd members away itself, and
    `ending` once the Cluster is deleted, when no member is needed any more."""

    sim: Simulation
    founded: Founded
    ranges: tuple[str, ...]  # of static addresses: "192.168.50.100-192.168.50.119"
    drains: bool  # whether nodes are drained before their machine is deleted
    faults: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    named: set[str] = field(default_factory=set)
    quorum_excused: bool = False
    ending: bool = False
    _known: set[str] = field(default_factory=set)  # uids of VMs and volumes that a record was found for
    _leaving: set[str] = field(default_factory=set)  # uids of VMs that the manager is removing

    async def look(self, kind: ApiResource, before: Raw | None, after: Raw | None) -> None:
        """Something changed."""
        raw = after or before
        assert raw is not None
        if kind in (kinds.VM, PVC) and annotations_of(raw).get(MACHINE_UID):
            if after is not None:
                await self._is_recorded(kind, raw)
            if kind == kinds.VM:
                await self._removal(raw, gone=after is None)
        elif kind == kinds.VMI and after is not None:
            await self._has_claims(raw)
        elif kind == MACHINE and after is None:
            await self._left_nothing(uid_of(raw), name_of(raw))
        elif kind == IP_ADDRESS and after is None:
            await self._is_free(raw)
        self._has_quorum()

    def _wrong(self, sentence: str) -> None:
        if sentence not in self.faults:
            self.faults.append(sentence)

    # -- everything is recorded before it is made, until it is gone (5) --------------------------------------------------

    async def _is_recorded(self, kind: ApiResource, raw: Raw) -> None:
        if uid_of(raw) in self._known:
            return
        self.seen[f"{kind.kind} recorded"] += 1
        owner = annotations_of(raw)[MACHINE_UID]

        async def find() -> str:
            machines = await self.sim.management_client.list(MACHINE)
            machine = next((one for one in machines if uid_of(one) == owner), None)
            if machine is None:
                return f"{kind.kind} {name_of(raw)} is there, and no Machine records it"
            config = nested(machine, "status", "driverConfig", default={})
            if kind == PVC and name_of(raw) not in config.get("WindrowClaims", ()):
                return f"PersistentVolumeClaim {name_of(raw)} is not in the record of its Machine"
            return ""

        await self._unless_gone(find, kind, raw)
        self._known.add(uid_of(raw))

    async def _left_nothing(self, uid: str, name: str) -> None:
        """A Machine is gone: nothing of it may be left, or no record would name it."""
        self.seen["Machine gone"] += 1
        client = self.sim.harvester_client
        for kind in (kinds.VM, PVC):
            for raw in await client.list(kind):
                if annotations_of(raw).get(MACHINE_UID) == uid:
                    self._wrong(f"Machine {name} is gone, and its {kind.kind} {name_of(raw)} is there")

    async def _unless_gone(self, find: Callable[[], Awaitable[str]], kind: ApiResource, raw: Raw) -> None:
        """The fault that `find` finds, if the object outlives the look."""
        if fault := await find():
            now = await self.sim.harvester_client.find(kind.ref(name_of(raw), namespace_of(raw)))
            if now is not None and uid_of(now) == uid_of(raw):
                self._wrong(fault)

    # -- an address is its machine's (4) ----------------------------------------------------------------------------------

    def _own(self, instance: Raw) -> Iterator[str]:
        for card in nested(instance, "status", "interfaces", default=()):
            yield from (one for one in card.get("ipAddresses") or () if self._is_static(one))

    def _is_static(self, text: str) -> bool:
        address = ip_address(text)
        for one in self.ranges:
            first, _, last = one.partition("-")
            low, high = ip_address(first), ip_address(last)
            if address.version == low.version and int(low) <= int(address) <= int(high):
                return True
        return False

    async def _has_claims(self, instance: Raw) -> None:
        addresses = set(self._own(instance)) if self.ranges else set()
        key = f"{uid_of(instance)} {sorted(addresses)}"
        if not addresses or key in self._known:
            return
        self.seen["address claimed"] += 1
        claims = {
            raw["spec"]["address"]: raw["spec"]["claimRef"]["name"]
            for raw in await self.sim.management_client.list(IP_ADDRESS)
        }

        async def find() -> str:
            wrong = [one for one in addresses if claims.get(one) != name_of(instance)]
            return (
                f"{name_of(instance)} has {wrong}, claimed for {[claims.get(one) for one in wrong]}"
                if wrong
                else ""
            )

        await self._unless_gone(find, kinds.VMI, instance)
        self._known.add(key)

    async def _is_free(self, claim: Raw) -> None:
        """A claim is gone: no machine may still have its address."""
        self.seen["address released"] += 1
        for raw in await self.sim.harvester_client.list(kinds.VMI):
            if name_of(raw) == claim["spec"]["claimRef"]["name"] and claim["spec"]["address"] in self._own(
                raw
            ):
                self._wrong(f"{claim['spec']['address']} was released, and {name_of(raw)} has it")

    # -- members leave one at a time, after their pods, and before their VM (6) ---------------------------------------

    async def _removal(self, vm: Raw, *, gone: bool) -> None:
        uid, name = uid_of(vm), name_of(vm)
        if gone:
            self._leaving.discard(uid)
        if gone or not is_deleting(vm) or uid in self._leaving or uid in self.named or self.ending:
            return
        self.seen["VM removed by the manager"] += 1
        self._leaving.add(uid)
        for guest in self.founded.all():
            self._removed_as_member(guest, name)
            if self.drains:
                await self._removed_with_pods(guest, vm)

    def _removed_as_member(self, guest: GuestCluster, name: str) -> None:
        if not guest.etcd.is_embedded:
            return
        member = guest.etcd.find_by_node(name)
        self.seen["etcd member removed"] += any(one.startswith(f"{name}-") for one in guest.etcd.removed)
        if member is not None and not member.learner and len(guest.etcd.voters()) > 1:
            self._wrong(f"the VM of {name} is removed while it is an etcd member")

    async def _removed_with_pods(self, guest: GuestCluster, vm: Raw) -> None:
        """A VM that is stopped runs none, whatever its Node shows: that may be as a snapshot of etcd had it."""
        self.seen["VM removed by the manager, drained"] += 1
        name, is_stopped = name_of(vm), nested(vm, "status", "printableStatus") == "Stopped"
        node = await guest.client().find(NODE.ref(name))
        if node is None or nested(node, "spec", "unschedulable") or is_stopped:
            return
        if is_true(nested(node, "status", "conditions"), "Ready") and not await self._is_drain_over(name):
            self._wrong(f"the VM of {name} is removed while its node takes pods")

    async def _is_drain_over(self, name: str) -> bool:
        """Whether the time to drain it has passed, however far that came: then Cluster API goes on as well (nodeDrainTimeout)."""
        machines = await self.sim.management_client.list(MACHINE)
        since = (time_of(raw, "metadata", "deletionTimestamp") for raw in machines if name_of(raw) == name)
        return any(begun and self.sim.clock.now() >= begun + DRAIN_TIMEOUT for begun in since)

    def _has_quorum(self) -> None:
        for guest in self.founded.all():
            has_begun = guest.etcd.by_name or guest.etcd.removed
            is_alone = len(guest.etcd.by_name) == 1  # in its turn it restarts, and the API with it
            if has_begun and not (self.quorum_excused or self.ending or is_alone or guest.etcd.has_quorum()):
                self._wrong(f"etcd has no quorum: {sorted(guest.etcd.by_name)}")
