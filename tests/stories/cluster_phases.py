"""A cluster's whole life in phases, under a manager that may die at any moment; each phase ends at rest and is checked."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tests.support.clock import run_driven
from tests.support.endpoints import slice_of_one_pod
from tests.support.simulation import Simulation, simulation

from windrow.cli.copies import render_copy
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, HARVESTER_CONFIG, MACHINE
from windrow.clusters.api.manifest.supported_fields import Change
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
from windrow.clusters.api.operations.source import S3_TEXTS
from windrow.core.text import encode_base64
from windrow.demo.cluster import DemoCluster
from windrow.demo.manifests import shipped
from windrow.demo.waiting import Objects, WaitTimedOut, wait_for
from windrow.emulator.kit.inventory import Item, inventory
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.emulator.storage.object_store import ObjectStore
from windrow.harvester.resources import LOAD_BALANCER, VM, VMI
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, new_object
from windrow.kubernetes.resources import NODE, SECRET, SERVICE

from .cluster_invariants import Founded, count_events, find_faults, find_remains
from .crashes import Fate, Lives, Write, describe_writes
from .observed_changes import Inventory, WatchedConsoles, find_done, take_inventory, watch_consoles

PATIENCE = timedelta(minutes=10)
REST_S = 20.0  # after a phase is done: what is still on its way may arrive
SERVERS, WORKERS = 0, 1  # places of the pools in our manifest
COPY = "copy"
NEXT_VERSION = "v1.35.4+rke2r1"


@dataclass(frozen=True, slots=True)
class Chapter:
    """One phase as it was lived: which writes were made in it, and what was wrong at its end."""

    phase: str
    first: int
    last: int  # numbers of its writes, both included
    seconds: float
    made: Counter[str]  # what was made in it, events left out
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """A life that was lived to its end."""

    chapters: tuple[Chapter, ...]
    writes: tuple[Write, ...]
    deaths: tuple[float, ...]
    calls: Counter[str]
    most_frequent_event: int  # how often the most frequent event was recorded
    complaints: tuple[str, ...]  # errors that were logged

    @property
    def faults(self) -> list[str]:
        found = [f"{chapter.phase}: {fault}" for chapter in self.chapters for fault in chapter.faults]
        return found + [f"logged: {complaint}" for complaint in self.complaints]

    @property
    def seconds(self) -> float:
        return sum(chapter.seconds for chapter in self.chapters)

    def print_writes(self) -> str:
        """All writes, a line each."""
        return "\n".join(
            "\n".join((chapter.phase, *describe_writes(self.writes[chapter.first - 1 : chapter.last])))
            for chapter in self.chapters
        )


Phase = Callable[[DemoCluster], Awaitable[None]]


def manifest(servers: int, workers: int) -> list[Raw]:
    """Our own manifest with other counts."""
    documents = shipped()
    pools = next(raw for raw in documents if raw["kind"] == "Cluster")["spec"]["rkeConfig"]["machinePools"]
    pools[SERVERS]["quantity"], pools[WORKERS]["quantity"] = servers, workers
    return documents


# -- phases --------------------------------------------------------------------------------------------------------


async def bootstrap(stage: DemoCluster) -> None:
    await stage.wait_for_settled()


def scale(pool: int, count: int) -> Phase:
    async def scale_to(stage: DemoCluster) -> None:
        path = f"/spec/rkeConfig/machinePools/{pool}/quantity"
        await stage.manager.json_patch(
            CLUSTER.ref(stage.name, stage.namespace), [{"op": "replace", "path": path, "value": count}]
        )
        await stage.wait_for_settled()

    return scale_to


def lose(role: str) -> Phase:
    """An administrator deletes the VM of the oldest machine of that role."""

    async def lose_one(stage: DemoCluster) -> None:
        machine = next(raw for raw in await stage.list_machines() if role in raw["spec"]["roles"])
        vm = await stage.get_vm(machine)
        await stage.harvester.delete(VM.ref(name_of(vm), namespace_of(vm)), "Foreground")
        await stage.wait_for_settled(without=name_of(machine))

    return lose_one


async def serve(stage: DemoCluster) -> None:
    """A user creates a Service of type LoadBalancer with an address from DHCP, and it gets one."""
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}}
    annotations = {"cloudprovider.harvesterhci.io/ipam": "dhcp"}
    raw = new_object(SERVICE, "web", "default", annotations=annotations, spec=spec)
    guest = await stage.guest_client()
    await guest.create(SERVICE, raw)
    await guest.create(ENDPOINT_SLICE, slice_of_one_pod("web", port=""))

    def is_so(world: Objects) -> bool | None:
        return any(nested(raw, "status", "address", default="") for raw in world.values()) or None

    await wait_for(
        stage.harvester.transport,
        LOAD_BALANCER,
        is_so,
        what="the service's load balancer to have its address",
        clock=stage.clock,
        within=stage.timeout,
    )


async def snapshot(stage: DemoCluster) -> None:
    """A user asks for a snapshot of etcd, and each member makes one."""
    await stage.manager.patch(
        CLUSTER.ref(stage.name, stage.namespace),
        {"spec": {"rkeConfig": {"etcdSnapshotCreate": {"generation": 1}}}},
    )

    def is_so(world: Objects) -> bool | None:
        done = nested(world.get((stage.namespace, stage.name)), "status", "etcdSnapshotCreatePhase")
        return True if done == "Finished" else None

    await wait_for(
        stage.manager.transport,
        CLUSTER,
        is_so,
        what="the snapshot of etcd",
        clock=stage.clock,
        within=stage.timeout,
    )


def rotate(field: str, key: str, done: object) -> Phase:
    """A user asks for a rotation, which is over once that key of the status says so, and does not fail."""

    async def phase(stage: DemoCluster) -> None:
        await stage.manager.patch(stage.ref, {"spec": {"rkeConfig": {field: {"generation": 1}}}})

        def is_so(world: Objects) -> bool | None:
            status = nested(world.get((stage.namespace, stage.name)), "status", default={})
            assert status.get(f"{field}Phase") != "Failed"
            return True if status.get(key) == done else None

        await wait_for(
            stage.manager.transport,
            CLUSTER,
            is_so,
            what=field,
            clock=stage.clock,
            within=stage.timeout,
        )
        await stage.wait_for_settled()

    return phase


async def restore(stage: DemoCluster) -> None:
    """Every server is lost, and a user restores the snapshot in S3."""
    snapshots = await stage.manager.list(ETCD_SNAPSHOT, stage.namespace)
    name = min(name_of(raw) for raw in snapshots if nested(raw, "status", "storage") == "s3")
    for machine in await stage.list_machines():
        if "etcd" in machine["spec"]["roles"]:
            vm = await stage.get_vm(machine)
            await stage.harvester.delete(VM.ref(name_of(vm), namespace_of(vm)), "Foreground")
    await _restore(stage, name=name)


async def restore_in_place(stage: DemoCluster) -> None:
    """A user names the snapshot on the disk of a server."""
    snapshots = await stage.manager.list(ETCD_SNAPSHOT, stage.namespace)
    await _restore(stage, name=min(map(name_of, snapshots)))


async def copy(stage: DemoCluster) -> None:
    """A user begins another Cluster with the snapshot in S3, and both are at rest in the end."""
    original, namespace = await stage.get_cluster(), stage.namespace
    snapshots = await stage.manager.list(ETCD_SNAPSHOT, namespace)
    file = min(
        str(nested(raw, "snapshotFile", "name")) for raw in snapshots if nested(raw, "snapshotFile", "s3")
    )
    s3 = original["spec"]["rkeConfig"]["etcd"]["s3"]
    source = {"clusterName": stage.name, "s3": {key: s3[key] for key in s3 if key in S3_TEXTS}}
    allowed = {"metadata": {"annotations": {AUTHORIZED_CLUSTERS: COPY}}}
    await stage.manager.patch(SECRET.ref(f"{stage.name}-windrow-secrets", namespace), allowed)
    await stage.manager.create(CLUSTER, render_copy(original, COPY, {"name": file, "from": source}))
    made = replace(stage, name=COPY)

    await _wait_for_restore(made)
    await made.wait_for_settled()
    await stage.wait_for_settled()


async def reset_quorum(stage: DemoCluster) -> None:
    """Of two servers one is lost, and a user names the other."""
    lost, left = (raw for raw in await stage.list_machines() if "etcd" in raw["spec"]["roles"])
    vm = await stage.get_vm(lost)
    await stage.harvester.delete(VM.ref(name_of(vm), namespace_of(vm)), "Foreground")

    def is_silent(world: Objects) -> bool | None:
        status = nested(world.get((stage.namespace, stage.name)), "status", default={})
        return None if status.get("ready") else True

    await wait_for(
        stage.manager.transport,
        CLUSTER,
        is_silent,
        what="the loss to show",
        clock=stage.clock,
        within=stage.timeout,
    )
    await stage.clock.sleep_until(stage.clock.now() + timedelta(minutes=1))
    await _restore(stage, clusterResetMember=name_of(left))


async def _restore(stage: DemoCluster, **request: str) -> None:
    await stage.manager.patch(
        CLUSTER.ref(stage.name, stage.namespace),
        {"spec": {"rkeConfig": {"etcdSnapshotRestore": {"generation": 1, **request}}}},
    )

    await _wait_for_restore(stage)
    await stage.wait_for_settled()


async def _wait_for_restore(stage: DemoCluster) -> None:
    def is_so(world: Objects) -> bool | None:
        done = nested(world.get((stage.namespace, stage.name)), "status", "etcdSnapshotRestorePhase")
        assert done != "Failed"
        return True if done == "Finished" else None

    await wait_for(
        stage.manager.transport,
        CLUSTER,
        is_so,
        what=f"the restore of {stage.name}",
        clock=stage.clock,
        within=2 * stage.timeout,
    )


async def delete(stage: DemoCluster) -> None:
    await stage.manager.delete(CLUSTER.ref(stage.name, stage.namespace))

    def is_so(world: Objects) -> bool | None:
        return None if (stage.namespace, stage.name) in world else True

    await wait_for(
        stage.manager.transport,
        CLUSTER,
        is_so,
        what=f"cluster {stage.name} to be gone",
        clock=stage.clock,
        within=stage.timeout,
    )


async def upgrade(stage: DemoCluster) -> None:
    """A user sets the version that comes next."""
    await stage.manager.patch(stage.ref, {"spec": {"kubernetesVersion": NEXT_VERSION}})

    def is_so(world: Objects) -> bool | None:
        raw = world.get((stage.namespace, stage.name))
        return nested(raw, "status", "version") == NEXT_VERSION or None

    await wait_for(
        stage.manager.transport,
        CLUSTER,
        is_so,
        what=f"the cluster to run {NEXT_VERSION}",
        clock=stage.clock,
        within=stage.timeout,
    )
    await stage.wait_for_settled()


def edit(place: int = WORKERS, **options: str) -> Phase:
    """A user sets these options for the machines of a pool, which have them in the end, and no turn."""

    async def phase(stage: DemoCluster) -> None:
        pools = nested(await stage.get_cluster(), "spec", "rkeConfig", "machinePools")
        pool = pools[place]
        config = HARVESTER_CONFIG.ref(pool["machineConfigRef"]["name"], stage.namespace)
        await stage.manager.patch(config, dict(options))
        end = stage.clock.now() + stage.timeout
        while True:
            found = [
                raw
                for raw in await stage.manager.list(MACHINE, stage.namespace)
                if raw["spec"]["pool"] == pool["name"]
            ]
            made = [raw for raw in found if options.items() <= raw["spec"]["options"].items()]
            if found and made == found and not any(nested(raw, "status", "update") for raw in found):
                break
            assert stage.clock.now() < end, found
            await stage.clock.sleep_until(stage.clock.now() + timedelta(seconds=1))
        await stage.wait_for_settled()

    return phase


async def maintain(stage: DemoCluster) -> None:
    """The host of a worker whose VM cannot be migrated is in maintenance mode for a while."""
    machine = next(raw for raw in await stage.list_machines() if "worker" in raw["spec"]["roles"])
    vmi = await stage.harvester.get(
        VMI.ref(name_of(machine), nested(machine, "spec", "options", "vmNamespace"))
    )
    stuck = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
    kept = [one for one in vmi["status"]["conditions"] if one["type"] != stuck["type"]]
    ref = VMI.ref(name_of(vmi), namespace_of(vmi))
    await stage.harvester.patch(ref, {"status": {"conditions": [*kept, stuck]}})
    host = NODE.ref(nested(vmi, "status", "nodeName"))
    running = {"metadata": {"annotations": {"harvesterhci.io/maintain-status": "running"}}}
    await stage.harvester.patch(host, {**running, "spec": {"unschedulable": True}})
    await stage.clock.sleep_until(stage.clock.now() + timedelta(seconds=10))
    vm = VM.ref(name_of(vmi), namespace_of(vmi))
    await stage.harvester.patch(vm, {"spec": {"runStrategy": "Halted"}})
    await stage.clock.sleep_until(stage.clock.now() + timedelta(minutes=2))
    over = {"metadata": {"annotations": {"harvesterhci.io/maintain-status": None}}}
    await stage.harvester.patch(host, {**over, "spec": {"unschedulable": None}})
    end = stage.clock.now() + stage.timeout
    while True:
        left = [raw for raw in await stage.list_machines() if nested(raw, "status", "hostMaintenance")]
        if not left and not any(nested(raw, "spec", "unschedulable") for raw in await stage.list_nodes()):
            break
        assert stage.clock.now() < end, left
        await stage.clock.sleep_until(stage.clock.now() + timedelta(seconds=1))
    await stage.wait_for_settled()


PHASES: dict[str, Phase] = {
    "maintain a host": maintain,
    "restart VMs": edit(memorySize="8"),
    "roll": edit(enableEfi="true"),
    "restart servers": edit(SERVERS, memorySize="12"),
    "roll servers": edit(SERVERS, enableEfi="true"),
    "bootstrap": bootstrap,
    "grow": scale(WORKERS, 2),
    "shrink": scale(WORKERS, 1),
    "lose a worker": lose("worker"),
    "lose a server": lose("etcd"),
    "serve": serve,
    "snapshot": snapshot,
    "rotate keys": rotate("rotateEncryptionKeys", "rotateEncryptionKeysPhase", "Done"),
    "rotate certificates": rotate("rotateCertificates", "certificateRotationGeneration", 1),
    "rotate token": rotate("rotateToken", "rotateTokenPhase", "Done"),
    "upgrade": upgrade,
    "restore": restore,
    "restore in place": restore_in_place,
    "copy": copy,
    "reset quorum": reset_quorum,
    "delete": delete,
}


# What is done to each machine in the phase, once, as it is seen from outside.
DONE: dict[str, dict[str, Change]] = {
    "upgrade": {"server": "service restart", "worker": "service restart"},
    "rotate keys": {"server": "service restart"},
    "rotate token": {"server": "service restart"},
    "rotate certificates": {"server": "service restart", "worker": "service restart"},
    "restart VMs": {"worker": "VM restart"},
    "roll": {"worker": "replace"},
    "restart servers": {"server": "VM restart"},
    "roll servers": {"server": "replace"},
}


# -- a life --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cluster of so many machines, and its phases. Plain data, so that another process can run it."""

    phases: tuple[str, ...]
    fates: tuple[Fate, ...] = ()
    servers: int = 1
    workers: int = 1
    seed: int = 1
    down_s: float = 1.0  # how long it takes until the controller is started again
    short: bool = False  # after the phase with the first death, only the last one is run
    bucket: bool = False  # whether snapshots go to S3, too
    hasty: bool = False  # at the first death the last phase comes at once


def run_scenario(scenario: Scenario) -> Life:
    """Live it on a driven clock, in this process."""
    complaints = _Complaints()
    logging.getLogger().addHandler(complaints)
    try:
        life = run_driven(_live(scenario))
    finally:
        logging.getLogger().removeHandler(complaints)
    return replace(life, complaints=tuple(complaints.lines))


class _Complaints(logging.Handler):
    """Errors in the log are faults, too."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        why = f" ({record.exc_info[1]!r})" if record.exc_info else ""
        self.lines.append(f"{record.name}: {record.getMessage()}{why}")


async def _live(scenario: Scenario) -> Life:
    documents = manifest(scenario.servers, scenario.workers)
    async with simulation(seed=scenario.seed, with_manager=False) as sim:
        founded, consoles = Founded(sim), watch_consoles(sim)
        if scenario.bucket:
            await _open_bucket(sim, documents)
        await sim.apply(documents)
        lives = Lives(sim, scenario.fates, scenario.down_s)
        # No task of the manager has run yet.
        brought = {f"{namespace_of(raw)}/{name_of(raw)}" for raw in await sim.management_client.list(SECRET)}
        before = await inventory(sim.harvester.api)
        stage = sim.cluster("orchard", timeout=PATIENCE)
        run = _ScenarioRun(scenario, sim, stage, founded, consoles, lives, before, frozenset(brought))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(lives.run())
            await run.run()
            running.cancel()
        events = await count_events(sim)
        return Life(
            tuple(run.chapters),
            tuple(sorted(lives.writes, key=lambda write: write.number)),
            tuple(lives.deaths),
            sim.request_counts.copy(),
            max(events.values(), default=0),
            (),
        )


async def _open_bucket(sim: Simulation, documents: list[Raw]) -> None:
    """An object store of the site, and the key to it."""
    store = ObjectStore(sim.clock, ["backups"])
    store.listen(sim.harvester.network, "10.0.0.200")
    cluster = next(raw for raw in documents if raw["kind"] == "Cluster")
    cluster["spec"]["rkeConfig"]["etcd"] = {
        "s3": {
            "bucket": "backups",
            "endpoint": "10.0.0.200:9000",
            "endpointCA": store.ca,
            "cloudCredentialName": "fleet-default:cc-s3",
        }
    }
    keys = {"accessKey": store.access_key, "secretKey": store.secret_key}
    data = {f"s3credentialConfig-{key}": encode_base64(value) for key, value in keys.items()}
    await sim.management_client.create(SECRET, new_object(SECRET, "cc-s3", "fleet-default", data=data))


@dataclass(slots=True)
class _ScenarioRun:
    """The chapters of one life, up to the first with a fault. A phase that never comes to its end has one."""

    scenario: Scenario
    sim: Simulation
    stage: DemoCluster
    founded: Founded
    consoles: WatchedConsoles
    lives: Lives
    before: frozenset[Item]
    brought: frozenset[str]
    chapters: list[Chapter] = field(default_factory=list)

    async def run(self) -> None:
        *phases, last = self.scenario.phases
        for phase in phases:
            if self.scenario.short and self.lives.deaths:
                break
            if self.scenario.hasty and await self._play_until_death(phase):
                break
            if not self.scenario.hasty and await self._run_phase(phase):
                return
        await self._run_phase(last)

    async def _play_until_death(self, phase: str) -> bool:
        """Play it; return whether the controller died, which ends the phase at once."""
        playing = asyncio.ensure_future(PHASES[phase](self.stage))
        dying = asyncio.ensure_future(self.lives.died.wait())
        await asyncio.wait({playing, dying}, return_when=asyncio.FIRST_COMPLETED)
        if not self.lives.died.is_set():
            playing.result()
            await asyncio.wait({dying}, timeout=REST_S)
        for task in (playing, dying):
            task.cancel()
        await asyncio.gather(playing, dying, return_exceptions=True)
        return self.lives.died.is_set()

    async def _run_phase(self, phase: str) -> bool:
        """Play it to its end, check what is there, and return whether anything is wrong."""
        begun, first, made = self.sim.clock.now(), self.lives.sent + 1, self.lives.made()
        faults: list[str] = []
        watching = asyncio.ensure_future(self._watch_quorum(faults)) if phase in DONE else None
        inventory = await take_inventory(self.sim, self.stage, self.consoles)
        try:
            await PHASES[phase](self.stage)
        except WaitTimedOut as error:
            faults.append(f"{error}; {[nested(raw, 'status', 'waiting') for raw in error.last.values()]}")
        seconds = (self.sim.clock.now() - begun) / timedelta(seconds=1)
        await self.sim.advance(seconds=REST_S)
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            faults += await self._find_undone(phase, inventory)
        if not faults and phase == "delete":
            faults = await find_remains(self.sim, self.before, self.brought)
        elif not faults:
            faults = await find_faults(self.sim, self.stage, self.before, self.founded)
        made = self.lives.made() - made
        self.chapters.append(Chapter(phase, first, self.lives.sent, seconds, made, tuple(faults)))
        return bool(faults)

    async def _watch_quorum(self, faults: list[str]) -> None:
        """Look at etcd itself, each second; a lone member restarts in its turn."""
        while True:
            for guest in self.founded.all():
                if len(guest.etcd.by_name) > 1 and not guest.etcd.has_quorum():
                    faults.append(f"etcd lost its quorum at {self.sim.clock.now():%H:%M:%S}")
                    return
            await self.sim.advance(seconds=1)

    async def _find_undone(self, phase: str, before: Inventory) -> list[str]:
        """The machines of which the consoles tell another thing than the phase asks for."""
        after = await take_inventory(self.sim, self.stage, self.consoles)
        found = []
        for name, done in find_done(before, after, self.consoles).items():
            wanted = DONE[phase].get("server" if name in before.servers else "worker")
            if done.times != (Counter({wanted: 1}) if wanted else Counter()):
                found.append(f"{name}: {done}, not {wanted or 'nothing'} once")
        return found
