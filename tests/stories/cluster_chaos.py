"""One random life of one cluster: its user, Harvester, the network and the manager's process do as they like.

Everything is drawn from the seed: the topology (distribution, pools and their roles, endpoint, addresses), what the user
changes step after step, which machines are lost, which requests to Harvester go wrong and how, and at which writes the
manager dies. After each step all troubles end; within a bounded time the cluster must be as it is declared, and every rule
of `cluster_invariants` and `tests/chaos/invariants.py` must hold, those of each instant also meanwhile.

    python -m tests.stories.cluster_chaos 17            # what happened in this life, and what is wrong
    python -m tests.stories.cluster_chaos 0 2000        # all lives from 0 to 1999: those that fail, and what all of them were
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tests.chaos.history import READ, History
from tests.chaos.invariants import (
    find_held_addresses,
    find_lost_property,
    find_silent_waits,
    find_unexplained_deletions,
)
from tests.chaos.inventory import PATHS, Item, read_inventory
from tests.random_faults import random_faults
from tests.stories.cluster_instants import Instants
from tests.stories.cluster_rig import a_cluster, a_pool, post, stock
from tests.stories.cluster_topologies import (
    NAME,
    NAMESPACE,
    Pool,
    Topology,
    draw_topology,
    render,
    render_pool,
)
from tests.support.clock import run_driven
from tests.support.simulation import Simulation, simulation

from windrow.client.client import Client
from windrow.client.informer import make_watcher
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, IP_ADDRESS, MACHINE
from windrow.core.rng import Rng
from windrow.demo.cluster import DemoCluster, is_ready
from windrow.demo.waiting import WaitTimedOut
from windrow.emulator import kinds
from windrow.emulator.faults import Fault
from windrow.emulator.kit.inventory import inventory
from windrow.harvester.resources import VM, VM_ACTIONS
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, name_of, namespace_of, new_object, uid_of
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import PVC, SECRET, ApiResource

from .cluster_invariants import Founded, find_claim_faults, find_faults, find_remains
from .crashes import Lives, Moment

PATIENCE = timedelta(
    minutes=45
)  # also for a machine that joins nothing and is replaced after its startup time
REST_S = 20.0
TELL_EACH = 50  # lives
# After the troubles: a manager that is away comes back, and says what it waits for.
MOST_DOWN_S, TOLD_WITHIN_S = 20.0, 40.0
# -- a life --------------------------------------------------------------------------------------------------------------


@dataclass
class Storm:
    """The fate of the manager: while it blows, death before or after one of `each` writes."""

    each: int
    rng: Rng
    blows: bool = False
    ask_at_s: float | None = None

    def strikes(self, moment: Moment) -> bool:
        return self.blows and moment.write > 0 and self.rng.below(self.each) == 0


@dataclass
class Life:
    """One run: what happened (`lines`), what is declared (`pools`), what the step under way explains."""

    sim: Simulation
    rng: Rng
    topology: Topology
    stage: DemoCluster
    history: History
    instants: Instants
    pools: dict[str, Pool]
    lines: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)  # what happened, by kind, for the table of many lives
    asked: set[str] = field(default_factory=set)  # uids of VMs that the run itself deleted
    volumes: dict[Item, str] = field(default_factory=dict)  # of the user's data, with their uids
    allowed: int = 0  # how many others the step lets go
    made: int = 0  # how many machines the step makes
    server_lost: bool = False
    steady: Mapping[str, int] = field(default_factory=dict)  # machines by role when the step began

    def log(self, what: str) -> None:
        self.lines.append(f"{self.sim.clock.monotonic().total_seconds():8.1f} s  {what}")

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.rng.below(len(options))]

    @property
    def manager(self) -> Client:
        return self.sim.management_client

    def members(self) -> int:
        return sum(pool.quantity for pool in self.pools.values() if pool.is_etcd)

    async def machines(self, of: Callable[[Pool], bool] = lambda pool: True) -> list[Raw]:
        """Machines of such pools that no one has deleted yet, oldest first."""
        found = await self.stage.list_machines()
        return [
            raw
            for raw in found
            if (pool := self.pools.get(raw["spec"]["pool"]))
            and of(pool)
            and not raw["metadata"].get("deletionTimestamp")
        ]

    def addresses_left(self) -> int:
        """How many machines more there are addresses for."""
        return self.topology.most_machines - sum(pool.quantity for pool in self.pools.values())

    def expect(self, name: str, quantity: int) -> None:
        """The pool is to have so many machines from now on."""
        pool = self.pools[name]
        self.allowed += max(0, pool.quantity - quantity)
        self.made += max(0, quantity - pool.quantity)
        self.history.limits = {**self.history.limits, name: max(pool.quantity, quantity) + 1}
        self.pools[name] = replace(pool, quantity=quantity)

    async def patch_pools(self, change: Callable[[list[Raw]], None]) -> None:
        while True:
            raw = await self.stage.get_cluster()
            change(raw["spec"]["rkeConfig"]["machinePools"])
            try:
                await self.manager.update(CLUSTER, raw)
            except KubeError:
                continue  # the manager has written meanwhile
            return


# -- what the user does --------------------------------------------------------------------------------------------------

Edit = Callable[[Life], Awaitable[str]]


async def scale(life: Life) -> str:
    """Another quantity: of etcd members 1 or 3, at least one control plane, none to three workers."""
    pool: Pool = life.pick(list(life.pools.values()))
    others = life.members() - pool.quantity
    options = {"e": [1, 3] if not others else [pool.quantity], "c": [1, 2]}.get(pool.roles[0], [0, 1, 2, 3])
    most = pool.quantity + life.addresses_left()
    quantity = life.pick([one for one in options if one != pool.quantity and one <= most] or [pool.quantity])
    life.expect(pool.name, quantity)

    def change(raws: list[Raw]) -> None:
        next(raw for raw in raws if raw["name"] == pool.name)["quantity"] = quantity

    await life.patch_pools(change)
    return f"pool {pool.name} ({pool.roles}) is scaled from {pool.quantity} to {quantity}"


async def add_or_remove_pool(life: Life) -> str:
    """A pool of workers more, or that pool gone with its machines."""
    name = "extra"
    if name in life.pools:
        pool = life.pools.pop(name)
        life.allowed += pool.quantity
        await life.patch_pools(lambda raws: raws.remove(next(raw for raw in raws if raw["name"] == name)))
        return f"pool {name} with {pool.quantity} machines is removed"
    quantity = min(1 + life.rng.below(2), life.addresses_left())
    if not quantity:
        return "no pool is added, for which there are no addresses"
    pool = life.pools[name] = Pool(name, "w", quantity, life.topology.drains)
    life.made += pool.quantity
    life.history.limits = {**life.history.limits, name: pool.quantity + 1}
    config, *_ = render(replace(life.topology, pools=(pool,)))
    with suppress(KubeError):
        await life.manager.create(HARVESTER_CONFIG, config)
    await life.patch_pools(lambda raws: raws.append(render_pool(pool)))
    return f"pool {name} with {pool.quantity} machines is added"


async def change_labels(life: Life) -> str:
    name, value = life.pick(list(life.pools)), str(life.rng.below(100))

    def change(raws: list[Raw]) -> None:
        next(raw for raw in raws if raw["name"] == name)["labels"] = {"tier": value}

    await life.patch_pools(change)
    return f"pool {name} gets the label tier={value}"


async def change_config(life: Life) -> str:
    """Of machines that exist nothing may change: a rollout is not asked for."""
    value = {"kubelet-arg": [f"max-pods={100 + life.rng.below(100)}"]}
    await life.manager.patch(life.stage.ref, {"spec": {"rkeConfig": {"machineGlobalConfig": value}}})
    return f"machineGlobalConfig gets {value}"


async def change_machine_config(life: Life) -> str:
    name, memory = life.pick([name for name in life.pools if name != "extra"]), str(4 + life.rng.below(4))
    await life.manager.patch(HARVESTER_CONFIG.ref(f"nc-{name}", NAMESPACE), {"memorySize": memory})
    return f"HarvesterConfig nc-{name} gets memorySize {memory}"


async def delete_machine(life: Life) -> str:
    """A machine is to be replaced: not the only etcd member, not the only control plane."""
    found = await life.machines(lambda pool: _may_lose(life, pool))
    if not found:
        return "no machine may be deleted"
    machine = life.pick(found)
    life.allowed, life.made = life.allowed + 1, life.made + 1
    life.server_lost |= life.pools[machine["spec"]["pool"]].roles != "w"
    await life.manager.delete(MACHINE.ref(name_of(machine), NAMESPACE))
    return f"Machine {name_of(machine)} is deleted"


async def lose_vm(life: Life) -> str:
    """An administrator of Harvester deletes a VM, without the manager."""
    found = await life.machines(lambda pool: _may_lose(life, pool))
    if not found:
        return "no VM may be lost"
    machine = life.pick(found)
    vm = await life.sim.harvester_client.find(VM.ref(name_of(machine), "default"))
    if vm is None:
        return f"VirtualMachine {name_of(machine)} is not there"
    life.asked.add(uid_of(vm))
    life.instants.named.add(uid_of(vm))
    life.instants.quorum_excused |= life.pools[machine["spec"]["pool"]].is_etcd
    life.made += 1
    life.server_lost |= life.pools[machine["spec"]["pool"]].roles != "w"
    await life.sim.harvester_client.delete(VM.ref(name_of(vm), namespace_of(vm)), "Foreground")
    return f"VirtualMachine {name_of(vm)} is deleted on Harvester"


async def stop_vm(life: Life) -> str:
    """Any VM may be stopped: it is started again, and keeps its disk. A server without etcd asks the address that it was given
    at every start, so without an endpoint it may have to be replaced."""
    found = await life.machines()
    if not found:
        return "there is no VM to stop"
    machine = life.pick(found)
    pool = life.pools[machine["spec"]["pool"]]
    life.instants.quorum_excused |= pool.is_etcd
    life.allowed += life.topology.endpoint == "firstServer" and "c" in pool.roles and not pool.is_etcd
    with suppress(KubeError):
        await life.sim.harvester_client.call(
            put_subresource(VM_ACTIONS.ref(name_of(machine), "default"), "stop")
        )
    return f"VirtualMachine {name_of(machine)} is stopped on Harvester"


async def attach_volume(life: Life) -> str:
    """A volume of the user's is hot-plugged into any VM, as the storage driver of a guest does: it outlives the machine."""
    found = await life.machines()
    if not found:
        return "there is no VM to attach a volume to"
    machine, name = life.pick(found), f"data-{len(life.volumes)}"
    client = life.sim.harvester_client
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "resources": resources}
    made = await client.create(PVC, new_object(PVC, name, "default", spec=spec))
    life.volumes[(PVC.kind, "default", name)] = uid_of(made)
    options = {
        "name": name,
        "disk": {"name": name, "disk": {"bus": "scsi"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": name}},
    }
    try:
        await client.call(put_subresource(VM_ACTIONS.ref(name_of(machine), "default"), "addvolume", options))
    except KubeError as error:
        return f"volume {name} is not attached to {name_of(machine)}: {error}"
    life.seen["volume attached"] += 1
    return f"volume {name} is attached to {name_of(machine)}"


async def nothing(life: Life) -> str:
    return "nothing is asked for"


EDITS: tuple[Edit, ...] = (
    *(scale, scale, scale, add_or_remove_pool, add_or_remove_pool),
    *(change_labels, change_config, change_machine_config),
    *(delete_machine, delete_machine, lose_vm, lose_vm, stop_vm, attach_volume, nothing),
)


def _may_lose(life: Life, pool: Pool) -> bool:
    """Whether what is left goes on, of what was there when the step began: etcd with two of three members, one server of the
    control plane at least."""
    if pool.roles == "w":
        return True
    if life.server_lost or (pool.is_etcd and min(life.members(), life.steady["e"]) < 3):
        return False
    servers = sum(one.quantity for one in life.pools.values() if "c" in one.roles)
    return "c" not in pool.roles or min(servers, life.steady["c"]) > 1


# -- one step ------------------------------------------------------------------------------------------------------------


async def _step(life: Life, storm: Storm, edits: Sequence[Edit]) -> list[str]:
    """The edits under a storm of their own; then its end, rest, and what is wrong."""
    life.asked.clear()
    life.history.deleted.clear()
    life.history.limits = {pool.name: pool.quantity + 1 for pool in life.pools.values()}
    life.allowed, life.made, life.server_lost = 0, 0, False
    life.instants.quorum_excused = False
    life.steady = {
        role: sum(pool.quantity for pool in life.pools.values() if role in pool.roles) for role in "ecw"
    }
    storm.each, storm.blows = life.pick((5, 15, 40)), bool(life.rng.below(4))
    weather = _blow(life)
    for edit in edits:
        life.seen[f"edit {edit.__name__}"] += 1
        life.log(await edit(life))
        await life.sim.advance(seconds=life.pick((0, 1, 7, 30)))
    await life.sim.advance(seconds=life.pick((20, 60, 150)))
    _clear_up(life, storm, weather)
    await life.sim.advance(seconds=TOLD_WITHIN_S)
    return await _silent(life) + await _rest(life)


def _blow(life: Life) -> list[Fault]:
    """Faults of requests to Harvester, of the manager and of the guests' cloud providers; sometimes none."""
    if not life.rng.below(3):
        return []
    probability = life.pick((0.01, 0.05, 0.2))
    life.seen[f"faults of {probability:.0%} of the requests"] += 1
    weather = list(random_faults(life.rng, probability).script)
    for fault in weather:
        life.sim.harvester.faults.add(fault)
    life.log(f"requests to Harvester go wrong: {weather[1].probability:g} of them in each way")
    return weather


def _clear_up(life: Life, storm: Storm, weather: list[Fault]) -> None:
    storm.blows = False
    for fault in weather:
        life.sim.harvester.faults.end(fault)
    life.log("all troubles are over")


async def _rest(life: Life) -> list[str]:
    try:
        await life.stage.wait_for_settled()
    except WaitTimedOut as error:
        statuses = {name: status.get("waiting") for name, _, status in await _statuses(life)}
        return [f"no rest: {error}; {statuses}"]
    await life.sim.advance(seconds=REST_S)
    life.log("at rest")
    return _explain(life)


def _explain(life: Life) -> list[str]:
    """What was deleted on Harvester without a reason; a machine that was to join through a lost server never joins, and one
    that died in its first boot neither."""
    allowed = life.allowed + (life.made if life.server_lost else 0)
    return find_unexplained_deletions(life.history.deleted, life.asked, allowed)


async def _statuses(life: Life) -> list[tuple[str, bool, Mapping[str, object]]]:
    raws = [await life.stage.get_cluster(), *await life.stage.list_machines()]
    return [(name_of(raw), is_ready(raw), raw.get("status") or {}) for raw in raws]


async def _silent(life: Life) -> list[str]:
    """What is not Ready by now says why, since when, and what comes next."""
    return find_silent_waits(await _statuses(life))


async def _inventory_of(life: Life) -> list[str]:
    """Addresses of IP pools without an owner, and what is no longer there of the user's data."""
    by_kind = {raw.kind: raw for raw in (kinds.VM, kinds.VMI, PVC, kinds.LOAD_BALANCER, kinds.IP_POOL)}
    lists = {kind: await life.sim.harvester_client.list(by_kind[kind]) for kind in PATHS if kind in by_kind}
    now = read_inventory(lists)
    return find_held_addresses(now) + find_lost_property(life.volumes, now, life.volumes)


async def follow(sim: Simulation, history: History, instants: Instants, kind: ApiResource) -> None:
    """Feed `history` and `instants` with each change of a kind, on Harvester or at the manager."""
    api = sim.api if kind in (MACHINE, IP_ADDRESS) else sim.harvester.api
    informer = make_watcher(api.local(), kind, dict, sim.clock)
    async with asyncio.TaskGroup() as group:
        group.create_task(informer.run())
        await informer.wait_for_sync()
        async for before, after in informer.changes():
            if kind.kind in READ and (raw := after or before) is not None:
                history.on_event(kind.kind, {"type": "MODIFIED" if after else "DELETED", "object": raw})
            await instants.look(kind, before, after)


# -- a whole life --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    seed: int
    lines: tuple[str, ...]
    faults: tuple[str, ...]
    seen: Mapping[str, int] = field(default_factory=dict)  # how often each thing happened


def live(seed: int) -> Outcome:
    """The life of this seed. The same seed gives the same life."""
    return run_driven(_live(seed))


async def _live(seed: int) -> Outcome:
    rng = Rng(f"cluster/{seed}")
    topology = draw_topology(rng)
    async with simulation(seed=seed, with_manager=False) as sim:
        documents = render(topology)
        for mode in topology.modes:
            if mode.prepare is not None:
                await mode.prepare(sim)
        founded, before = Founded(sim), await _stock(sim, documents)
        brought = {f"{namespace_of(raw)}/{name_of(raw)}" for raw in await sim.management_client.list(SECRET)}
        doors = frozenset(sim.harvester.network.listeners())
        history, instants = History(NAME), Instants(sim, founded, topology.ranges, topology.drains)
        life = Life(
            sim,
            rng,
            topology,
            sim.cluster(NAME, NAMESPACE, PATIENCE),
            history,
            instants,
            {pool.name: pool for pool in topology.pools},
        )
        life.log(str(topology))
        storm = Storm(1, rng)
        lives = Lives(sim, [storm] * 1000, rng.uniform(0, MOST_DOWN_S))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(follow(sim, history, instants, kind))
                for kind in (kinds.VM, kinds.VMI, kinds.LOAD_BALANCER, PVC, MACHINE, IP_ADDRESS)
            ]
            tasks.append(group.create_task(lives.run()))
            await post(sim, documents)
            faults = await _steps(life, storm, before, founded)
            if not faults:
                faults = await _delete(life, storm, before, frozenset(brought), doors)
            for task in tasks:
                task.cancel()
        life.log(f"the manager died {len(lives.deaths)} times")
        found = dict.fromkeys([*history.faults, *instants.faults, *faults])
        seen = life.seen + instants.seen + Counter({"death of the manager": len(lives.deaths)})
        return Outcome(seed, tuple(life.lines), tuple(found), seen + Counter(topology.words))


async def _stock(sim: Simulation, documents: list[Raw]) -> frozenset[Item]:
    extra = a_cluster(a_pool("extra", 1), name=NAME, namespace=NAMESPACE)
    await stock(sim, [*documents, *extra[:-1]])
    return await inventory(sim.harvester.api)


async def _steps(life: Life, storm: Storm, before: frozenset[Item], founded: Founded) -> list[str]:
    for edits in _plan(life):
        faults = await _step(life, storm, edits)
        known = before | life.volumes.keys()
        faults += await find_faults(life.sim, life.stage, known, founded) if not faults else []
        faults += await find_claim_faults(
            life.sim, await life.stage.list_machines(), life.topology.claims_each
        )
        faults += await _inventory_of(life)
        if faults:
            return faults
    return []


def _plan(life: Life) -> Iterator[list[Edit]]:
    """The cluster is made; then some steps of one or two edits each."""
    yield [nothing]
    for _ in range(1 + life.rng.below(3)):
        yield [life.pick(EDITS) for _ in range(1 + life.rng.below(2))]


async def _delete(
    life: Life, storm: Storm, before: frozenset[Item], brought: frozenset[str], doors: frozenset[Any]
) -> list[str]:
    """In the end the Cluster is deleted, under one more storm; nothing may be left of it."""
    storm.each, storm.blows = life.pick((5, 15, 40)), bool(life.rng.below(2))
    weather = _blow(life)
    await life.manager.delete(CLUSTER.ref(NAME, NAMESPACE))
    life.instants.ending = True
    life.log("the Cluster is deleted")
    await life.sim.advance(seconds=60)
    _clear_up(life, storm, weather)
    try:
        await life.stage.wait_for_deletion()
    except WaitTimedOut as error:
        return [f"no rest: {error}"]
    await life.sim.advance(minutes=3)
    kept = {door[0] for door in doors}
    remains = await find_remains(life.sim, before | life.volumes.keys(), brought)
    remains = [fault for fault in remains if not any(f"('{host}'" in fault for host in kept)]
    return remains + await _inventory_of(life)


def main(first: int, end: int | None) -> int:
    logging.disable(logging.CRITICAL)
    if end is None:
        outcome = live(first)
        print("\n".join((*outcome.lines, "", *(outcome.faults or ("all is well",)))))
        return bool(outcome.faults)
    gc.freeze()  # what was imported stays; and a life is short, so that little of it need be looked for meanwhile
    gc.set_threshold(50_000)
    lived, broken, seen = 0, 0, Counter[str]()
    for seed in range(first, end):
        outcome = live(seed)
        lived, broken, seen = lived + 1, broken + bool(outcome.faults), seen + Counter(outcome.seen)
        if outcome.faults:
            print(f"seed {seed}: {'; '.join(outcome.faults)}", flush=True)
        if lived % TELL_EACH == 0:
            print(f"seeds {first} to {seed} were lived: {broken} with faults", flush=True)
    print("\n".join(_table(seen)))
    print(f"{lived} lives, {broken} with faults")
    return bool(broken)


def _table(seen: Mapping[str, int]) -> Iterable[str]:
    """How often each thing was or happened in these lives."""
    for what in sorted(seen):
        yield f"{seen[what]:8}  {what}"


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:]]
    sys.exit(main(numbers[0], numbers[1] if len(numbers) > 1 else None))
