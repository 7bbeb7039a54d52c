"""From "the VM has its address" to "the manager knows it": over TLS on loopback. The Go driver polls: 0 to 10 s.

Harvester and manager share one process and one event loop here, so the figure holds the work of both.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

from benchmarks import Figure
from benchmarks._harvester import a_harvester, a_spec
from windrow.app.clock import SystemClock
from windrow.client.http_transport import ConnectionPool, HttpTransport
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.emulator.proxy import serve
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import name_of, nested
from windrow.machines.harvester.machines import HarvesterMachines

MACHINES = 100
SPEED = 10.0


def measure() -> Iterator[Figure]:
    spans = sorted(asyncio.run(_measure()))
    p99 = spans[min(len(spans) - 1, round(0.99 * len(spans)))]
    yield Figure("address known to the manager, median", statistics.median(spans), "s", 5.0, "Go: 0-10 s")
    yield Figure("address known to the manager, p99", p99, "s", 0.1, "issue 3; Go: 10 s")


async def _measure() -> list[float]:
    clock = SystemClock()
    async with a_harvester(clock, SPEED) as harvester, serve(harvester) as served, ConnectionPool() as pool:

        async def credential(name: str) -> str:
            return served.kubeconfig

        def dial(access: ClientConfig) -> HttpTransport:
            return HttpTransport(access, clock, pool=pool)

        machines = HarvesterMachines(credential, dial, clock, Rng(3))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(machines.run())]
            there: dict[str, float] = {}
            known: dict[str, float] = {}
            running.append(tasks.create_task(_note_there(harvester, there)))
            for number in range(MACHINES):
                await machines.ensure(a_spec(f"m-{number}"), None)
            async for _, sighting in machines.statuses().changes():
                if sighting is not None and sighting.addresses:
                    known.setdefault(sighting.name, time.perf_counter())
                if len(known) == MACHINES:
                    break
            for task in running:
                task.cancel()
    return [known[name] - there[name] for name in known]


async def _note_there(harvester: Harvester, there: dict[str, float]) -> None:
    """Note when each instance first shows an address, as Harvester's own store tells it."""
    async with harvester.api.local().watch(kinds.VMI, "default") as events:
        async for event in events:
            interfaces = nested(event.object, "status", "interfaces", default=[])
            if any(interface.get("ipAddress") for interface in interfaces):
                there.setdefault(name_of(event.object), time.perf_counter())
