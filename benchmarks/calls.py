"""Calls to Harvester per machine: made, removed, idle. The Go driver: 16-17 and 2-3 per 5 s; 4-5 and polls; polls.

The first machine pays for its manager: the credential's identity and the lists that watches begin with. It is not
counted; each further one is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.clock import LoopClock, run_driven

from benchmarks import Figure
from benchmarks._harvester import CallCount, CountingTransport, a_harvester, a_spec
from windrow.client.in_process import InProcessTransport
from windrow.core.rng import Rng
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.machines.harvester.machines import HarvesterMachines
from windrow.machines.port import MachineStatus

MACHINES = 10
IDLE_S = 600.0


@dataclass(frozen=True)
class Result:
    made: float
    removed: float
    idle: float


def measure() -> Iterator[Figure]:
    result = run_driven(_story())
    yield Figure("calls to make a machine", result.made, "calls", 6, "issue 3; Go: 16-17 and polls")
    yield Figure("calls to remove a machine", result.removed, "calls", 3, "issue 3; Go: 4-5 and polls")
    yield Figure("calls per idle machine and minute", result.idle, "calls", 0, "issue 3; Go: 24-36")


async def _story() -> Result:
    clock = LoopClock()
    count = CallCount()
    async with a_harvester(clock) as harvester:
        kubeconfig = harvester.admin_kubeconfig()

        async def credential(name: str) -> str:
            return kubeconfig

        def dial(access: ClientConfig) -> CountingTransport:
            return CountingTransport(InProcessTransport(access, harvester.network.find, clock), count)

        machines = HarvesterMachines(credential, dial, clock, Rng(3))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(machines.run())
            await _make(machines, "first")
            count.clear()
            names = [f"m-{number}" for number in range(MACHINES)]
            memories = [await _make(machines, name) for name in names]
            made = list(count.calls)
            count.clear()
            await asyncio.sleep(IDLE_S)
            idle = list(count.calls)
            count.clear()
            for memory in memories:
                await machines.remove(memory, frozenset())
            await _until_only(machines, 1)
            removed = list(count.calls)
            running.cancel()
    return Result(len(made) / MACHINES, len(removed) / MACHINES, len(idle) / MACHINES / (IDLE_S / 60))


async def _make(machines: HarvesterMachines, name: str) -> object:
    """From the pre-create check to the end of create: the machine runs and has an address."""
    spec = a_spec(name)
    await machines.check([spec])
    memory = await machines.ensure(spec, None)
    async for _, status in machines.statuses().changes():
        if _is_up(status, spec.machine_uid):
            break
    return memory


def _is_up(status: MachineStatus | None, uid: str) -> bool:
    return status is not None and status.machine_uid == uid and bool(status.addresses)


async def _until_only(machines: HarvesterMachines, number: int) -> None:
    """Return once no more than `number` machines are present."""
    async for _ in machines.statuses().changes():
        present = [one for one in machines.statuses().values() if one.presence == "present"]
        if len(present) <= number:
            return
