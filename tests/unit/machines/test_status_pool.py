"""Polls of machines on Harvester share a plugin of ours, and each has one of its own where the plugin is another's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.machines.binaries import a_binary, living

from windrow.machines.plugin.credentials import ResolvedCredential
from windrow.machines.plugin.launcher import ConcurrencyLimit, PluginLauncher
from windrow.machines.plugin.process.client import DriverError, PluginError, Timeouts
from windrow.machines.plugin.status_pool import StatusPluginPool
from windrow.machines.plugin.tracked_machine import TrackedMachine, load_tracked_machine

# A plugin that writes the token of each start into a file. Its machines run on a host with the name of their namespace; "broken"
# cannot be read, and "deadly" ends it.
PLUGIN = """
import json, os
from tests.unit.machines.driver_server import Refusal, serve
from windrow.protocols import dockermachine as wire
open({log!r}, 'a').write(os.environ['TOKEN'] + ' ')
config = {{}}
def status(_):
    if config['MachineName'] == 'broken':
        raise Refusal('it cannot be read')
    if config['MachineName'] == 'deadly':
        os._exit(3)
    return json.dumps({{'presence': 'present', 'state': 'running', 'host': config['VMNamespace']}}).encode()
handlers = {{
    'SetConfigRaw': lambda raw: config.update(json.loads(raw)),
    'GetState': lambda _: wire.RUNNING,
    'GetIP': lambda _: '10.0.0.5',
}}
ours = {{wire.GET_VM_STATUS: status, wire.LIST_EXTENSIONS: lambda _: wire.GET_VM_STATUS}}
serve(handlers | ours if {is_ours} else handlers)
"""


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "starts"
        self.log.touch()
        self.install(is_ours=True)
        limit = ConcurrencyLimit(4)
        unused: Any = SimpleNamespace()
        self.pool = StatusPluginPool(
            PluginLauncher(
                lambda driver: self.binary,
                unused,
                {"PATH": os.environ["PATH"]},
                Timeouts(close=1.0),
                limit,
                limit,
                limit,
            )
        )

    def install(self, *, is_ours: bool, name: str = "one") -> None:
        self.binary = a_binary(self.folder, name, PLUGIN.format(log=str(self.log), is_ours=is_ours))

    async def poll(self, name: str, token: str = "t1", **config: Any) -> Any:
        credential = ResolvedCredential("ns:cc", {"token": token}, {"TOKEN": token})
        return await self.pool.poll(self.machine(name, **config), credential)

    def machine(self, name: str, **config: Any) -> TrackedMachine:
        known = {"MachineName": name, "WindrowMachineUID": f"uid-{name}", "WindrowCredential": "ns:cc"}
        return load_tracked_machine(self.folder / "state", {**known, **config})

    def starts(self) -> str:
        return self.log.read_text().strip()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    await rig.pool.close()
    assert living(tmp_path) == set()


async def test_one_plugin_of_ours_serves_the_machines_of_a_credential(rig: Rig) -> None:
    first, second = await rig.poll("m-1", VMNamespace="other"), await rig.poll("m-2")

    assert (first.is_windrow, first.status.name, first.status.host) == (True, "m-1", "other")
    # What its config does not say is not that of the machine before.
    assert (second.is_windrow, second.status.name, second.status.host) == (True, "m-2", "default")
    assert rig.starts() == "t1"
    assert len(living(rig.folder)) == 1

    await rig.pool.release("ns:cc")
    assert living(rig.folder) == set()


async def test_a_rotated_credential_or_a_new_binary_starts_another(rig: Rig) -> None:
    await rig.poll("m-1")
    await rig.poll("m-1", token="t2")
    await rig.poll("m-1", token="t2")
    assert rig.starts() == "t1 t2"

    rig.install(is_ours=True, name="two")
    await rig.poll("m-1", token="t2")
    assert rig.starts() == "t1 t2 t2"
    assert len(living(rig.folder)) == 1


async def test_each_poll_starts_a_plugin_that_is_not_ours(rig: Rig) -> None:
    """It cannot be given the config of another machine. What it is shows at the first start."""
    rig.install(is_ours=False)
    for starts in ("t1 t1", "t1 t1 t1"):
        result = await rig.poll("m-1")
        assert (result.is_windrow, result.status.addresses) == (False, ("10.0.0.5",))
        assert rig.starts() == starts
        assert living(rig.folder) == set()

    rig.install(is_ours=True, name="two")
    await rig.poll("m-1")
    await rig.poll("m-1")
    assert rig.starts() == "t1 t1 t1 t1"


async def test_an_answer_that_is_an_error_leaves_the_plugin_open_and_its_end_does_not(rig: Rig) -> None:
    with pytest.raises(DriverError, match="it cannot be read"):
        await rig.poll("broken")
    await rig.poll("m-1")
    assert rig.starts() == "t1"

    with pytest.raises(PluginError):
        await rig.poll("deadly")
    assert rig.starts() == "t1 t1"  # another was tried
    await rig.poll("m-1")
    assert rig.starts() == "t1 t1 t1"


async def test_a_plugin_in_the_place_of_another_driver_is_not_shared(rig: Rig) -> None:
    for starts in ("t1", "t1 t1"):
        assert (await rig.poll("m-1", WindrowDriver="other", VMNamespace="n")).status.presence == "present"
        assert rig.starts() == starts
        assert living(rig.folder) == set()
