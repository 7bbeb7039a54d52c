"""The plugin adapter over an emulated Harvester on loopback: real processes, real sockets, real time, sped up."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from tests.contract.harvester_rig import HarvesterRig
from tests.stories.harvester_rig import a_harvester
from tests.unit.machines.binaries import living, our_driver

from windrow.app.clock import SystemClock
from windrow.client.http_transport import HttpTransport
from windrow.client.transport import Transport
from windrow.core.rng import Rng
from windrow.emulator.harvester import Harvester
from windrow.emulator.proxy import serve
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.machines.plugin.machines import PluginMachines
from windrow.machines.plugin.poller import PollIntervals
from windrow.machines.plugin.process.sandbox import Sandbox, describe_sandbox

GO_DRIVER = "WINDROW_GO_NODE_DRIVER"
OUR_DRIVER = "WINDROW_DRIVER_ELF"
SPEED = 60.0
QUICKLY = PollIntervals(
    transitional=timedelta(seconds=0.3), steady=timedelta(seconds=0.5), unknown=timedelta(seconds=0.5)
)


class PluginRig(HarvesterRig):
    """A HarvesterRig whose requests go through a plugin process."""

    def __init__(self, harvester: Harvester, url: str, folder: Path, binary: Path) -> None:
        super().__init__(harvester)
        self.server, self.folder, self._binary = url, folder, binary
        self.machines: PluginMachines = self._a_host(folder / "state")  # type: ignore[assignment]

    def another(self, binary: Path | None = None) -> PluginMachines:
        """A host on another computer, whose state outlives it."""
        self._binary = binary or self._binary
        return self._a_host(self.folder / "other")

    def _a_host(self, state: Path) -> PluginMachines:
        return PluginMachines(
            lambda driver: self._binary if driver == "harvester" else None,
            self.credential,
            _no_fields,
            state,
            SystemClock(),
            Rng(5),
            env={"PATH": os.environ["PATH"]},
            connect=self.dial_out,
            intervals=QUICKLY,
            find_sandbox=find_sandbox,
        )

    def dial_out(self, access: ClientConfig) -> Transport:
        return HttpTransport(access, SystemClock())


def find_sandbox(path: Path) -> Sandbox | None:
    """A binary runs as a downloaded driver does; a script needs this interpreter."""
    is_script = path.read_bytes().startswith(b"#!")
    return None if is_script or not describe_sandbox() else Sandbox((path,))


async def _no_fields(driver: str, credential: str) -> Mapping[str, str]:
    raise LookupError(f"{driver} has no credential {credential} here")


@asynccontextmanager
async def _plugin_world(binary: Path | None) -> AsyncIterator[PluginRig]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with a_harvester(time_scale=SPEED) as harvester, serve(harvester) as served:
            rig = PluginRig(harvester, served.url, folder, binary or our_driver(folder))
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(rig.machines.run())
                yield rig
                running.cancel()
            assert living(folder) == set()


@asynccontextmanager
async def plugin_rig() -> AsyncIterator[PluginRig]:
    """Our own plugin: the ELF that the environment names, else run from the sources."""
    named = os.environ.get(OUR_DRIVER)
    async with _plugin_world(Path(named) if named else None) as rig:
        yield rig


@asynccontextmanager
async def go_plugin_rig() -> AsyncIterator[PluginRig]:
    """The Go driver that the environment names."""
    async with _plugin_world(Path(os.environ[GO_DRIVER])) as rig:
        # Drivers before v0.6.9 derive an image's class, as Harvester called it up to v1.3, instead of reading it.
        await rig.harvester.preload(storage_classes=["longhorn-jammy"])
        yield rig
