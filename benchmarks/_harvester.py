"""What benchmarks about machines share: an emulated Harvester, machines that boot and do no more, and a count of calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.blank_machine import BlankMachine

from windrow.client.transport import Transport, TransportMiddleware
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.emulator.harvester import Harvester
from windrow.emulator.preload import Image, VmNetwork
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.machines.port import MachineSpec

DOCUMENT = "#cloud-config\nruncmd:\n- echo hello\n"


@dataclass
class CallCount:
    """What went out. A list that a watch begins with belongs to the watch: it costs once, not per machine."""

    calls: list[str] = field(default_factory=list)
    watches: list[str] = field(default_factory=list)

    def clear(self) -> None:
        self.calls.clear()
        self.watches.clear()


class CountingTransport(TransportMiddleware):
    """Counts what goes through it."""

    def __init__(self, inner: Transport, count: CallCount) -> None:
        super().__init__(inner)
        self._count = count

    async def send(self, request: Request) -> Reply:
        self._count.calls.append(f"{request.method} {request.path}")
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        self._count.watches.append(request.path)
        return self._inner.stream(request)


def a_spec(name: str) -> MachineSpec:
    """A machine of one image and one network."""
    options: dict[str, Any] = {
        "vmNamespace": "default",
        "cpuCount": "2",
        "memorySize": "4",
        "diskInfo": '{"disks":[{"imageName":"default/jammy","bootOrder":1,"size":40}]}',
        "networkInfo": '{"interfaces":[{"networkName":"default/vlan50"}]}',
        "sshUser": "rancher",
    }
    return MachineSpec(name, f"uid-of-{name}", "c1", "cluster-1", "default:harvester", options, DOCUMENT)


@asynccontextmanager
async def a_harvester(clock: Clock, speed: float = 1.0) -> AsyncIterator[Harvester]:
    """A stocked Harvester whose machines boot, report an address and do nothing else."""
    harvester = Harvester(
        clock,
        Rng(7),
        time_scale=speed,
        machine_factory=lambda hardware, wires: BlankMachine(hardware, wires, agent=True),
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harvester.run())
        await harvester.preload(
            images=[Image("default/jammy")],
            networks=[VmNetwork("default/vlan50", vlan=50, cidr="10.50.0.0/16")],
        )
        yield harvester
        running.cancel()
