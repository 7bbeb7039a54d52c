"""Writes to the management API per machine, from creation to Ready, and CPU of quiet clusters.

60 machines (3 servers, 57 workers) on a driven clock. Before status writes were coalesced: 26 writes per machine, 12.2
of them status patches of the Machine and 7.1 events; 10 quiet minutes took 2.9 s of CPU, most of it in the emulator
(renewal of 60 node leases every 10 s: a read and a write each).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from tests.support.clock import run_driven
from tests.support.simulation import simulation

from benchmarks import Figure
from windrow.client.transport import Transport
from windrow.core.formats.fastjson import loads
from windrow.demo.manifests import shipped
from windrow.kubernetes.objects import name_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent

SERVERS, WORKERS = 3, 57
IDLE_MINUTES = 10


@dataclass(eq=False)
class WriteCounter:
    """A transport that counts the writes that pass through it, by kind of object and what is written."""

    inner: Transport
    counts: Counter[str] = field(default_factory=Counter)
    machine_statuses: Counter[str] = field(default_factory=Counter)  # status patches by Machine

    async def send(self, request: Request) -> Reply:
        reply = await self.inner.send(request)
        if not request.is_read and reply.status < 300:
            raw = loads(reply.body)
            kind = str(raw.get("kind"))
            if kind == "Event":
                kind = f"Event of {raw['involvedObject']['kind']}"
            elif request.path.endswith("/status"):
                if kind == "Machine":
                    self.machine_statuses[name_of(raw)] += 1
                kind = f"{kind} status"
            self.counts[kind] += 1
        return reply

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self.inner.stream(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass(frozen=True)
class Writes:
    """Writes by what was written, and the CPU time of the quiet minutes after them."""

    machines: int
    counts: Counter[str]
    machine_statuses: Counter[str]
    idle_writes: int
    idle_cpu_s: float

    @property
    def total(self) -> float:
        return sum(self.counts.values()) / self.machines

    def per_machine(self, *kinds: str) -> float:
        return sum(self.counts[kind] for kind in kinds) / self.machines


def measure() -> Iterator[Figure]:
    writes = run_driven(run(SERVERS, WORKERS))
    yield Figure("writes per machine, creation to Ready", writes.total, "writes", 8, "issue 9; before: 26")
    yield Figure(
        "  status patches of the Machine", writes.per_machine("Machine status"), "writes", 4, "before: 12.2"
    )
    events = writes.per_machine("Event of Machine", "Event of Cluster")
    yield Figure("  events", events, "writes", 3, "before: 7.1")
    yield Figure(
        "  status patches of the Cluster", writes.per_machine("Cluster status"), "writes", 1, "before: 0.8"
    )
    yield Figure(f"writes in {IDLE_MINUTES} quiet minutes", writes.idle_writes, "writes", 0, "")
    yield Figure(
        f"CPU of {IDLE_MINUTES} quiet minutes", writes.idle_cpu_s, "s", 1.45, "issue 9; before: 2.9 s"
    )


async def run(servers: int, workers: int) -> Writes:
    """Create a cluster, wait until it is Ready, and then for the quiet minutes."""
    documents = shipped()
    cluster = next(raw for raw in documents if raw["kind"] == "Cluster")
    pools = cluster["spec"]["rkeConfig"]["machinePools"]
    pools[0]["quantity"], pools[1]["quantity"] = servers, workers
    async with simulation(seed=1, with_manager=False) as sim:
        counter = WriteCounter(sim.api.local())
        sim.start_manager(counter)
        await sim.apply(documents)
        await sim.cluster(name_of(cluster)).wait_for_ready()
        await sim.advance(seconds=60)
        counts = counter.counts.copy()
        started = time.process_time()
        await sim.advance(minutes=IDLE_MINUTES)
        cpu = time.process_time() - started
        idle_writes = sum(counter.counts.values()) - sum(counts.values())
        return Writes(servers + workers, counts, counter.machine_statuses, idle_writes, cpu)
