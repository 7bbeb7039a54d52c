"""A whole rack in one process on a driven clock: Harvester, guests, manager; no sockets, no threads, no waiting.

For golden stories, crash tests and benchmarks. Certificates, tokens and cloud-init are as real as in the demo; only
the network is a function call. The manager can be ended at any write and started again on the same store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from windrow.apiserver.server import ApiServer
from windrow.apiserver.stores.memory import MemoryStore
from windrow.assembly.clock import LoopClock
from windrow.assembly.embedded import fill_shelves, install_kinds, make_manager, management_api
from windrow.assembly.machinery import running
from windrow.assembly.network import Dial, through_rack
from windrow.assembly.programs import guest_programs
from windrow.assembly.report import Check, Moment, Report
from windrow.assembly.stage import Stage
from windrow.assembly.stock import credential_secrets, read_stock
from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.clusters.kinds import CLUSTER, HARVESTER_CONFIG
from windrow.emulator.guests.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.kube.objects import Raw
from windrow.kube.refs import SECRET
from windrow.values.chance import Chance

VIP = "https://192.168.100.10:6443"
_KINDS = {"Secret": SECRET, "HarvesterConfig": HARVESTER_CONFIG, "Cluster": CLUSTER}


@dataclass
class Rackroom:
    """The world of a story. `told` collects the report's lines."""

    clock: LoopClock
    chance: Chance
    harvester: Harvester
    api: ApiServer
    dial: Dial
    told: list[Moment | Check] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    _manager: asyncio.Task[None] | None = None

    @property
    def manager(self) -> Client:
        """The management API, as its administrator."""
        return Client(self.api.local())

    @property
    def at_harvester(self) -> Client:
        return Client(self.harvester.api.local())

    def stage(
        self, cluster: str, namespace: str = "fleet-default", patience: timedelta = timedelta(hours=1)
    ) -> Stage:
        report = Report(self.clock, self.told.append)
        return Stage(
            namespace, cluster, self.at_harvester, self.manager, self.dial, self.clock, report, patience
        )

    async def apply(self, documents: Sequence[Raw], *, kubeconfig: str = "") -> None:
        """Stock Harvester for `documents`, hand in the credentials that they name, and create them."""
        stock = read_stock(documents)
        await fill_shelves(self.harvester, stock)
        secrets = credential_secrets(stock, kubeconfig or self.harvester.admin_kubeconfig(VIP))
        for raw in [*secrets, *documents]:
            if raw["kind"] in _KINDS:
                await self.manager.create(_KINDS[raw["kind"]], raw)

    # -- the manager's process ---------------------------------------------------------------------------------------

    def start_manager(
        self, transport: Transport | None = None, dial: Dial | None = None
    ) -> asyncio.Task[None]:
        """Start the manager, as a new process would; `transport` and `dial` let a test stand in between."""
        assert self._manager is None or self._manager.done(), "one manager at a time"
        manager, machinery = make_manager(
            transport or self.api.local(), dial or self.dial, self.clock, self.chance, self.calls
        )

        async def process() -> None:
            async with machinery.at_work():
                await manager.run()

        self._manager = asyncio.get_running_loop().create_task(process())
        return self._manager

    async def kill_manager(self) -> None:
        """End it without any chance to tidy up."""
        if self._manager is not None:
            self._manager.cancel()
            await asyncio.gather(self._manager, return_exceptions=True)
            self._manager = None

    async def pass_time(self, **span: float) -> None:
        await self.clock.until(self.clock.now() + timedelta(**span))


@asynccontextmanager
async def rackroom(
    *, seed: int = 0, speed: float = 1.0, manage: bool = True, **harvester: Any
) -> AsyncIterator[Rackroom]:
    """A Harvester that runs and a management API; with `manage`, a manager too. Same seed, same story."""
    clock, chance = LoopClock(), Chance(seed)
    emulated = Harvester(
        clock, chance, speed=speed, machine_factory=machine_factory(guest_programs()), **harvester
    )
    api = management_api(MemoryStore(), clock, chance)
    room = Rackroom(clock, chance, emulated, api, through_rack(emulated.rack, clock))
    async with running(emulated.run, api.run):
        await install_kinds(room.manager)
        if manage:
            room.start_manager()
        try:
            yield room
        finally:
            await room.kill_manager()
