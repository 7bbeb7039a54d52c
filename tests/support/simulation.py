"""Harvester, guests and cluster manager in one process on a driven clock, without sockets or threads.

For golden stories, crash tests and benchmarks. Certificates, tokens and cloud-init are as real as in the demo; only
the network is a function call. The manager can be killed at any write and started again on the same store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.support.clock import LoopClock

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import install_crds, make_manager, management_api
from windrow.app.emulate import preload_objects
from windrow.app.guest_programs import guest_programs
from windrow.app.loop import running
from windrow.app.metrics.api_server import ApiServerMetrics
from windrow.app.network import Connect, in_process_connector
from windrow.app.preload import credential_secrets, read_preload
from windrow.bootstrap.support_matrix.matrix import SupportMatrix
from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG
from windrow.clusters.metrics.manager import ManagerMetrics
from windrow.clusters.sources.manager_leases import ManagerIdentity
from windrow.core.rng import Rng
from windrow.demo.cluster import DemoCluster
from windrow.demo.report import CheckRecord, Report, TimelineEntry
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import SECRET

VIP = "https://192.168.100.10:6443"
_KINDS = {"Secret": SECRET, "HarvesterConfig": HARVESTER_CONFIG, "Cluster": CLUSTER}


@dataclass
class Simulation:
    """A running simulation. `reported` collects the timeline entries and checks of its clusters."""

    clock: LoopClock
    rng: Rng
    harvester: Harvester
    api: ApiServer
    connect: Connect
    reported: list[TimelineEntry | CheckRecord] = field(default_factory=list)
    request_counts: Counter[str] = field(default_factory=Counter)
    metrics: ManagerMetrics = field(init=False)  # of the last manager
    _manager_task: asyncio.Task[None] | None = None

    @property
    def management_client(self) -> Client:
        """The management API, as its administrator."""
        return Client(self.api.local())

    @property
    def harvester_client(self) -> Client:
        return Client(self.harvester.api.local())

    def cluster(
        self, name: str, namespace: str = "fleet-default", timeout: timedelta = timedelta(hours=1)
    ) -> DemoCluster:
        report = Report(self.clock, self.reported.append)
        return DemoCluster(
            namespace,
            name,
            self.harvester_client,
            self.management_client,
            self.connect,
            self.clock,
            report,
            timeout,
        )

    async def apply(self, documents: Sequence[Raw], *, kubeconfig: str = "") -> None:
        """Preload Harvester for `documents`, create the credentials that they name, then the documents."""
        preload = read_preload(documents)
        await preload_objects(self.harvester, preload)
        secrets = credential_secrets(documents, kubeconfig or self.harvester.admin_kubeconfig(VIP))
        for raw in [*secrets, *documents]:
            if raw["kind"] in _KINDS:
                await self.management_client.create(_KINDS[raw["kind"]], raw)

    # -- the manager's process ---------------------------------------------------------------------------------------

    def start_manager(
        self,
        transport: Transport | None = None,
        connect: Connect | None = None,
        clock: LoopClock | None = None,
        matrix: SupportMatrix | None = None,
        identity: ManagerIdentity | None = None,
    ) -> asyncio.Task[None]:
        """Start the manager, as a new process would; a test may wrap `transport` and `connect`, or set its `clock`, its
        support matrix and the identity with which it holds Leases."""
        assert self._manager_task is None or self._manager_task.done(), "one manager at a time"
        manager, backend = make_manager(
            transport or self.api.local(),
            connect or self.connect,
            clock or self.clock,
            self.rng,
            self.request_counts,
            identity=identity,
            matrix=matrix,
            metrics=self.new_metrics(),
        )

        async def process() -> None:
            async with backend.running():
                await manager.run()

        self._manager_task = asyncio.get_running_loop().create_task(process())
        return self._manager_task

    def new_metrics(self) -> ManagerMetrics:
        """Those of a new process."""
        self.metrics = ManagerMetrics(self.clock)
        ApiServerMetrics(self.metrics.registry, self.api)
        self.metrics.register_leader("windrow-manager", lambda: True)
        return self.metrics

    async def kill_manager(self) -> None:
        """Cancel the manager without any cleanup of its own."""
        if self._manager_task is not None:
            self._manager_task.cancel()
            await asyncio.gather(self._manager_task, return_exceptions=True)
            self._manager_task = None

    async def advance(self, **span: float) -> None:
        await self.clock.sleep_until(self.clock.now() + timedelta(**span))


@asynccontextmanager
async def simulation(
    *, seed: int = 0, time_scale: float = 1.0, with_manager: bool = True, **harvester: Any
) -> AsyncIterator[Simulation]:
    """A running Harvester and management API; `with_manager`, a cluster manager, too. The same seed repeats exactly."""
    clock, rng = LoopClock(), Rng(seed)
    emulator = Harvester(
        clock, rng, time_scale=time_scale, machine_factory=machine_factory(guest_programs()), **harvester
    )
    api = management_api(MemoryStore(), clock, rng)
    sim = Simulation(clock, rng, emulator, api, in_process_connector(emulator.network, clock))
    async with running(emulator.run, api.run):
        await install_crds(sim.management_client)
        if with_manager:
            sim.start_manager()
        try:
            yield sim
        finally:
            await sim.kill_manager()
