"""The cloud provider as a process: addresses, calls, memory, restart. `WINDROW_GO_CLOUD_PROVIDER` adds the Go one.

Harvester and the guest's API are ours, behind TLS on loopback, in this process; kube-vip is played. Load balancers get
their addresses as slowly as on hardware, machines boot faster. Calls are counted where they arrive; watches, and the
lists that they begin with, are left out, and so is the leader's Lease.

The long run (200 nodes, 500 services) lasts half a minute; WINDROW_BENCH_MINUTES=5 makes it as long as issue 5 wants.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.conformance.cloud_provider_rig import (
    GO_PROVIDER,
    NETWORK,
    OTHER_NETWORK,
    PREFIX,
    UNINITIALISED,
    FakeKubeVip,
    Guest,
    Host,
    Running,
    a_host,
    a_provider,
    eventually,
    has_taint,
    our_guest,
    our_program,
    run_beside,
)
from tests.conformance.node_driver_rig import RecordedRequest

from benchmarks import Figure
from windrow.emulator.delays import Delays
from windrow.emulator.guest_os.hardware import AgentReport
from windrow.emulator.host.nodes import default_hosts
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import NODE, SERVICE

AT_ONCE = 100
MANY = 500
NODES = 200
LOST = 50
SPEED = 100.0
VERSION = "v1.9.0"  # before it, the network that a service asks for does not count
HARDWARE = Delays()
LAN = "10.60.0.0/16"
WRITES = ("POST", "PUT", "PATCH", "DELETE")

# Counted from Go's code, reference 02 §9: one worker sleeps a second for each new service; two calls for each node
# at 5 a second; two for each silent node and round.
GO_SERVICES_S = AT_ONCE * 1.0
GO_NODES_S = LOST * 2 / 5


@dataclass
class BenchContext:
    """A Harvester, a guest cluster, kube-vip; the program comes and goes."""

    host: Host
    guest: Guest
    vip: FakeKubeVip
    folder: Path

    def since(self, host: int = 0, guest: int = 0) -> tuple[list[RecordedRequest], list[RecordedRequest]]:
        """The requests after these marks, at both doors, without watches and what belongs to them."""
        assert self.guest.door is not None
        return _counted(self.host.door.notes[host:]), _counted(self.guest.door.notes[guest:])

    def mark(self) -> tuple[int, int]:
        assert self.guest.door is not None
        return len(self.host.door.notes), len(self.guest.door.notes)

    def provide(self, program: Path, *flags: str) -> object:
        return a_provider(program, self.folder, self.host, self.guest, *flags)


@asynccontextmanager
async def a_bench_context(folder: Path) -> AsyncIterator[BenchContext]:
    """Load balancers in real time, machines `SPEED` times faster."""
    slow = {
        name: getattr(HARDWARE, name) * SPEED
        for name in ("balancer_controller", "balancer_address", "balancer_retry", "balancer_removal")
    }
    hosts = default_hosts(8)
    async with (
        a_host(speed=SPEED, lan=LAN, delays=replace(HARDWARE, **slow), hosts=hosts, version=VERSION) as host,
        our_guest() as guest,
    ):
        await host.make_pool("pool", "10.61.1.1", "10.61.9.254", NETWORK, wide=True)
        # Harvester learns from it which network is the cluster's; the other one has no pool.
        await host.make_vm("n-first", NETWORK, OTHER_NETWORK)
        vip = FakeKubeVip(guest)
        async with run_beside(vip.run()):
            yield BenchContext(host, guest, vip, folder)


def _counted(notes: Sequence[RecordedRequest]) -> list[RecordedRequest]:
    found = []
    for note in notes:
        is_list = note.request.method == "GET" and note.request.query_parameter("limit") is not None
        if note.what and "(watch)" not in note.what and "lease" not in note.what and not is_list:
            found.append(note)
    return found


def measure() -> Iterator[Figure]:
    ours, go = our_program(), os.environ.get(GO_PROVIDER, "")
    with tempfile.TemporaryDirectory() as folder:
        yield from _services(ours, Path(go) if go else None, Path(folder))
        yield from _nodes(ours, Path(go) if go else None, Path(folder))
        yield from asyncio.run(_long_run(ours, Path(folder)))


# --- services -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServiceTimings:
    """How it went with many services at once."""

    annotated_s: float
    told_s: float
    host_calls: float
    guest_calls: float
    idle_calls: int


def _services(ours: Path, go: Path | None, folder: Path) -> Iterator[Figure]:
    mine = asyncio.run(_serve_many(ours, folder / "ours"))
    annotated, told, source = GO_SERVICES_S / 10, GO_SERVICES_S / 10, "a tenth of Go's 1 s each, 02 §9"
    if go is not None:
        theirs = asyncio.run(_serve_many(go, folder / "go"))
        annotated, told, source = theirs.annotated_s / 10, theirs.told_s / 10, "a tenth of Go beside it"
        yield Figure(
            f"Go: {AT_ONCE} services, the last annotated", theirs.annotated_s, "s", GO_SERVICES_S, "02 §9"
        )
        yield Figure("Go: calls to Harvester per service", theirs.host_calls, "calls", 13, "02 §9.1")
        yield Figure("Go: calls to the guest per service", theirs.guest_calls, "calls", 9, "02 §9.1")
    yield Figure(f"{AT_ONCE} pool services, the last annotated", mine.annotated_s, "s", annotated, source)
    yield Figure(f"{AT_ONCE} pool services, the last in its status", mine.told_s, "s", told, source)
    yield Figure("calls to Harvester per new service", mine.host_calls, "calls", 2, "issue 5; Go: 13")
    yield Figure("calls to the guest per new service", mine.guest_calls, "calls", 4, "issue 5; Go: 9")
    yield Figure("calls of a steady cluster in 20 s", mine.idle_calls, "calls", 0, "issue 5")
    hindered = asyncio.run(_serve_many(ours, folder / "hindered", beside_pending=True))
    if go is not None:
        theirs = asyncio.run(_serve_many(go, folder / "go-hindered", beside_pending=True))
        yield Figure(
            "Go: the same, one service has no pool", theirs.annotated_s, "s", GO_SERVICES_S, "without that"
        )
    yield Figure(
        "the same, one service has no pool",
        hindered.annotated_s,
        "s",
        1.5 * mine.annotated_s,
        "1.5 times that",
    )


async def _serve_many(program: Path, folder: Path, *, beside_pending: bool = False) -> ServiceTimings:
    async with a_bench_context(folder) as world, world.provide(program) as running:
        await _leading(world, running)
        if beside_pending:
            await world.guest.make_service(a_service("nowhere", {f"{PREFIX}/network": OTHER_NETWORK}))
            await asyncio.sleep(2)
        names = [f"web-{number:03}" for number in range(AT_ONCE)]
        marks, begun = world.mark(), time.perf_counter()
        for name in names:
            await world.guest.make_service(a_service(name))
        await eventually(
            lambda: _all_in(world.vip.told_at, names), f"addresses\n{running.log()[-3000:]}", 900
        )
        await _quiet(world)
        host, guest = world.since(*marks)
        marks = world.mark()
        await asyncio.sleep(20)
        idle = sum(map(len, world.since(*marks)))
    annotated = max(world.vip.asked_at[name] for name in names) - begun
    told = max(world.vip.told_at[name] for name in names) - begun
    return ServiceTimings(annotated, told, len(host) / AT_ONCE, len(guest) / AT_ONCE, idle)


async def _all_in(found: dict[str, float], names: Sequence[str]) -> bool:
    return all(name in found for name in names)


async def _leading(world: BenchContext, running: Running) -> None:
    """Wait until the program has the caches that it works from."""
    assert world.guest.door is not None
    door = world.guest.door

    async def watches() -> bool:
        return {"services (watch)", "nodes (watch)"} <= {note.what for note in door.notes}

    await eventually(watches, f"the program leads\n{running.log()[-3000:]}", 60)
    await asyncio.sleep(1)


async def _quiet(world: BenchContext, for_s: float = 3.0, within_s: float = 600.0) -> None:
    """Wait until nothing has been asked for a while."""
    deadline = time.monotonic() + within_s
    seen, since = sum(map(len, world.since())), time.monotonic()
    while time.monotonic() - since < for_s and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        if (now := sum(map(len, world.since()))) != seen:
            seen, since = now, time.monotonic()


def a_service(name: str, annotations: dict[str, str] | None = None) -> Raw:
    spec = {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
    return new_object(SERVICE, name, "default", annotations=annotations, spec=spec)


# --- nodes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeTimings:
    """How it went with many nodes at once."""

    initialised_s: float
    silent_calls: int
    removed_s: float


def _nodes(ours: Path, go: Path | None, folder: Path) -> Iterator[Figure]:
    mine = asyncio.run(_keep_nodes(ours, folder / "ours-nodes"))
    baseline, source = GO_NODES_S, "Go, 02 §9.1"
    if go is not None:
        theirs = asyncio.run(_keep_nodes(go, folder / "go-nodes"))
        baseline, source = theirs.initialised_s, "Go beside it"
        yield Figure(f"Go: {LOST} silent nodes for 20 s", theirs.silent_calls, "calls", LOST * 8, "02 §9.1")
        yield Figure(f"Go: {LOST} nodes whose VMs go are removed", theirs.removed_s, "s", 20, "02 §9.1")
    yield Figure(f"{LOST} nodes join, the last is initialised", mine.initialised_s, "s", baseline, source)
    yield Figure(
        f"{LOST} silent nodes for 20 s", mine.silent_calls, "calls", 0, "issue 5; Go: 2 per node and 5 s"
    )
    yield Figure(f"{LOST} nodes whose VMs go are removed", mine.removed_s, "s", 20, "Go, 02 §9.1")


async def _keep_nodes(program: Path, folder: Path) -> NodeTimings:
    async with a_bench_context(folder) as world:
        names = [f"n-{number:03}" for number in range(LOST)]
        await _make_vms(world, [*names, "n-last"])
        async with world.provide(program) as running:
            await _leading(world, running)
            begun = time.perf_counter()
            for place, name in enumerate([*names, "n-last"]):
                await world.guest.register(name, _address(place))
            await eventually(lambda: _initialised(world, names), f"nodes\n{running.log()[-3000:]}", 300)
            initialised = time.perf_counter() - begun
            await _quiet(world)
            marks = world.mark()
            for name in names:
                await world.guest.set_ready(name, "Unknown")
            await asyncio.sleep(20)
            silent = len(world.since(*marks)[0])
            begun = time.perf_counter()
            await asyncio.gather(*(world.host.remove_vm(name) for name in names))
            await eventually(lambda: _removed(world, names), f"removals\n{running.log()[-3000:]}", 300)
            removed = time.perf_counter() - begun
    return NodeTimings(initialised, silent, removed)


def _address(place: int) -> str:
    return f"10.60.{place // 200 + 1}.{place % 200 + 1}"


async def _make_vms(world: BenchContext, names: Sequence[str]) -> None:
    room = asyncio.Semaphore(20)

    async def make(place: int, name: str) -> None:
        async with room:
            report = AgentReport(name, {"nic-0": (_address(place),)})
            await world.host.make_vm(name, report=report)

    await asyncio.gather(*(make(place, name) for place, name in enumerate(names)))


async def _initialised(world: BenchContext, names: Sequence[str]) -> bool:
    nodes = await world.guest.api.list(NODE)
    done = {one["metadata"]["name"] for one in nodes if not has_taint(one, UNINITIALISED)}
    return done >= set(names)


async def _removed(world: BenchContext, names: Sequence[str]) -> bool:
    return not {one["metadata"]["name"] for one in await world.guest.api.list(NODE)} & set(names)


# --- the long run -------------------------------------------------------------------------------------------------


async def _long_run(program: Path, folder: Path) -> list[Figure]:
    minutes = float(os.environ.get("WINDROW_BENCH_MINUTES", "0.5"))
    async with a_bench_context(folder / "long") as world:
        nodes = [f"n-{number:03}" for number in range(NODES)]
        services = [f"web-{number:03}" for number in range(MANY)]
        await _make_vms(world, nodes)
        async with world.provide(program) as running:
            for place, name in enumerate(nodes):
                await world.guest.register(name, _address(place))
            for name in services:
                await world.guest.make_service(a_service(name))
            await eventually(
                lambda: _all_in(world.vip.told_at, services), f"addresses\n{running.log()[-3000:]}", 900
            )
            await eventually(lambda: _initialised(world, nodes), "nodes", 300)
            await _quiet(world)
            begun_mb = _memory_mb(running.pid, "VmRSS")
            marks = world.mark()
            async with run_beside(_heartbeats(world, nodes)):
                await asyncio.sleep(minutes * 60)
            idle = sum(map(len, world.since(*marks)))
            rss, peak = _memory_mb(running.pid, "VmRSS"), _memory_mb(running.pid, "VmHWM")
            await running.end()
        restart_s, restart_writes = await _restart(world, program, "zz-late")
    told = f"{NODES} nodes, {MANY} services"
    return [
        Figure(f"{told}: calls in {minutes:g} min", idle, "calls", 0, "issue 5"),
        Figure(f"{told}: memory after {minutes:g} min", rss, "MB", 80, "issue 5"),
        Figure("the same, at its peak", peak, "MB", 80, "issue 5"),
        Figure("the same, more than at the beginning", rss - begun_mb, "MB", 5, "a leak would show here"),
        Figure(f"{told}: restart to the last in sync", restart_s, "s", 3, "issue 5, process start included"),
        Figure("the same, writes for those in sync", restart_writes, "writes", 0, "issue 5"),
    ]


async def _heartbeats(world: BenchContext, nodes: Sequence[str]) -> None:
    """What kubelets write into their nodes every five minutes, evenly spread."""
    while True:
        for name in nodes:
            await world.guest.set_ready(name, "True")
            await asyncio.sleep(300 / len(nodes))


async def _restart(world: BenchContext, program: Path, last: str) -> tuple[float, int]:
    """Seconds from the start of the process until a service behind all others has its annotation; writes elsewhere."""
    await world.guest.make_service(a_service(last))
    marks, begun = world.mark(), time.perf_counter()
    async with world.provide(program) as running:
        await eventually(
            lambda: _all_in(world.vip.asked_at, [last]), f"restart\n{running.log()[-3000:]}", 60, 0.01
        )
        seconds = world.vip.asked_at[last] - begun
        await _quiet(world)
        noted = [note for notes in world.since(*marks) for note in notes if note.request.method in WRITES]
    return seconds, sum(1 for note in noted if not _is_about(note, last))


def _is_about(note: RecordedRequest, service: str) -> bool:
    return service in note.request.path or service.encode() in (note.request.body or b"")


def _memory_mb(pid: int, what: str) -> float:
    """Resident memory as the system counts it; 10^6 bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) * 1024 / 1e6
