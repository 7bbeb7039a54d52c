"""HarvesterVolumes over an emulated Harvester with two VMs, and the requests that it sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from tests.contract.harvester_rig import Counting
from tests.stories.harvester_rig import a_harvester, boot

from windrow.client.in_process import InProcessTransport
from windrow.client.transport import Transport
from windrow.core.clock import Clock, sleep
from windrow.core.rng import Rng
from windrow.csi.harvester.volumes import HarvesterVolumes, HostOptions
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import STORAGE_CLASS

NODES = ("node-1", "node-2")
GUEST = "0f1e2d3c-guest"


# A class whose volumes can be shared.
RWX_CLASS = {
    "metadata": {"name": "longhorn-rwx"},
    "provisioner": "driver.longhorn.io",
    "parameters": {"migratable": "false", "nfsOptions": "vers=4.1,noresvport"},
    "reclaimPolicy": "Delete",
    "allowVolumeExpansion": True,
    "volumeBindingMode": "Immediate",
}
LATENCY = timedelta(milliseconds=45)


class Distant(Counting):
    """A transport whose requests take LATENCY, as to a Harvester that is somewhere else."""

    def __init__(self, inner: Transport, log: list[Request], clock: Clock) -> None:
        super().__init__(inner, log)
        self._clock = clock

    async def send(self, request: Request) -> Reply:
        await sleep(self._clock, LATENCY)
        return await super().send(request)


class VolumesRig:
    """The adapter, the Harvester behind it, and its requests."""

    def __init__(self, harvester: Harvester) -> None:
        self.harvester = harvester
        self.line = harvester.api.local()
        self.requests: list[Request] = []
        clock = harvester.clock.base
        access = parse_kubeconfig(harvester.token_kubeconfig(harvester.new_token(), ""))
        inner = InProcessTransport(access, harvester.network.find, clock)
        self.volumes = HarvesterVolumes(
            Distant(inner, self.requests, clock),
            HostOptions("default", guest_uid=GUEST),
            clock,
            Rng(5),
            logging.getLogger("csi-test"),
        )
        self.node, self.other_node = NODES

    def calls(self) -> list[str]:
        """The requests but for watches and the lists that they begin with, as `VERB last/parts`."""
        return [
            f"{one.method} {'/'.join(one.path.split('/')[-2:])}"
            for one in self.requests
            if one.query_parameter("watch") is None
            and not (one.method == "GET" and one.path.endswith(("machines", "instances", "claims")))
        ]


@asynccontextmanager
async def volumes_rig(**options: object) -> AsyncIterator[VolumesRig]:
    async with a_harvester(**options) as harvester:  # type: ignore[arg-type]
        for name in NODES:
            await boot(harvester, name=name)
        rig = VolumesRig(harvester)
        await rig.line.create(STORAGE_CLASS, RWX_CLASS)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(rig.volumes.run())
            await rig.volumes.state.wait_for_sync()
            rig.requests.clear()
            yield rig
            running.cancel()
