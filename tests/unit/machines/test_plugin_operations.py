"""Operations through plugins: when they may begin, and what is told of one that goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.machines.binaries import a_binary
from tests.unit.machines.test_plugin_machines import FAST, Rig, a_spec, create_running, running

from windrow.app.clock import SystemClock
from windrow.core.rng import Rng
from windrow.machines.plugin.credentials import ResolvedCredential
from windrow.machines.plugin.launcher import ConcurrencyLimit, PluginLauncher
from windrow.machines.plugin.operations import PluginOperations
from windrow.machines.plugin.poller import PollIntervals, StatusPoller
from windrow.machines.plugin.process.client import PluginUnusable, Timeouts
from windrow.machines.plugin.tracked_machine import PendingOperation, load_tracked_machine
from windrow.machines.port import InfrastructureUnknown, Power, initial_driver_config
from windrow.machines.status_store import StatusStore

CREDENTIAL = ResolvedCredential("ns:cc", {}, {})


@pytest.mark.parametrize("verb", ["power", "replace user data", "remove"])
async def test_no_operation_begins_on_harvester_without_the_lease_of_its_namespace(
    tmp_path: Path, verb: str
) -> None:
    unused: Any = SimpleNamespace()
    limit = ConcurrencyLimit(1)
    launcher = PluginLauncher(
        lambda driver: tmp_path / "absent",
        unused,
        {},
        Timeouts(),
        limit,
        limit,
        limit,
        may_write=lambda *_: False,
    )
    poller = StatusPoller(launcher, StatusStore(), SystemClock(), Rng(1), PollIntervals())
    operations = PluginOperations(launcher, poller)
    machine = load_tracked_machine(tmp_path, {"MachineName": "m", "WindrowMachineUID": "uid-1"})

    begin = {
        "power": lambda: operations.power(machine, Power.ON, CREDENTIAL, PendingOperation("power", "on")),
        "replace user data": lambda: operations.replace_user_data(machine, "#cloud-config\n", CREDENTIAL),
        "remove": lambda: operations.remove(
            machine, frozenset(), CREDENTIAL, PendingOperation("remove"), None
        ),
    }
    with pytest.raises(PluginUnusable, match="does not hold its Lease"):
        await begin[verb]()


async def test_an_operation_waits_for_a_host_that_does_not_run_yet_or_no_more(tmp_path: Path) -> None:
    rig = Rig(tmp_path)

    async def waits() -> bool:
        try:
            async with asyncio.timeout(0.2):
                await rig.machines.ensure(a_spec(), None)
        except TimeoutError:
            return rig.vms() == []
        return False

    assert await waits()
    async with running(rig.machines):
        await asyncio.sleep(0)
    assert await waits()


def test_a_machine_that_this_host_has_begun_is_told_with_the_uid_that_its_driver_never_reports(
    tmp_path: Path,
) -> None:
    machines = Rig(tmp_path).machines
    config = initial_driver_config(a_spec())
    machine = load_tracked_machine(tmp_path / "state", config)
    assert machines.find_begun(config) is None
    machine.save({**config, "InstanceId": "i-0"})  # planned
    assert machines.find_begun(config) is None

    machine.save({**config, "InstanceId": "i-0"}, create_started=True)
    assert machines.find_begun(config) == {**config, "InstanceId": "i-0", "WindrowVMUID": "noop:uid-1"}
    machine.save({**config, "WindrowClaims": ["c"]})  # by our own program
    assert machines.find_begun(config) is None
    machine.save({**config, "WindrowClaims": ["c"], "WindrowVMUID": "vm-1"})
    assert machines.find_begun(config) == {**config, "WindrowClaims": ["c"], "WindrowVMUID": "vm-1"}


SLOW = """
import time
from tests.unit.machines import noop_driver
def slowly(verb):
    do = getattr(noop_driver.Noop, verb)
    setattr(noop_driver.Noop, verb, lambda *given: (do(*given), time.sleep({seconds}))[0])
slowly({verb!r})
noop_driver.main()
"""


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("create", "m-1 is being created"),
        ("turn", "m-1 is being started or stopped"),
        ("remove", "m-1 is being removed"),
    ],
)
async def test_what_goes_on_with_a_machine_is_named_to_the_operation_that_has_to_wait(
    tmp_path: Path, verb: str, said: str
) -> None:
    rig = Rig(tmp_path)
    rig.machines = rig.new_host(replace(FAST, other_accept_s=0.1))
    async with running(rig.machines):
        if verb == "create":
            rig.binary = a_binary(tmp_path, "noop", SLOW.format(verb=verb, seconds=60))
            config = await rig.machines.ensure(a_spec(), None)
        else:
            config = await create_running(rig)
            rig.binary = a_binary(tmp_path, "noop", SLOW.format(verb=verb, seconds=60))
        if verb == "turn":
            await rig.machines.power(config, Power.OFF)
        if verb == "remove":
            await rig.machines.remove(config, frozenset())

        with pytest.raises(InfrastructureUnknown) as raised:
            await rig.machines.power(config, Power.RESTART)

    assert str(raised.value).startswith(f"{said}, so the next operation has to wait")
