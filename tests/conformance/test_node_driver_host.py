"""Our host side with the real Go driver: the protocol, the flags, and a machine's life through the port."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.node_driver_inputs import IMAGE_DISK, NIC
from tests.conformance.node_driver_rig import (
    GO_DRIVER,
    HarvesterSite,
    a_site,
    count_requests,
    our_program,
    real_program,
)
from tests.conformance.node_driver_versions import version_of

from windrow.app.clock import SystemClock
from windrow.client.http_transport import HttpTransport
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.machines.plugin.machines import PluginMachines
from windrow.machines.plugin.poller import PollIntervals
from windrow.machines.plugin.process.client import DriverError, Plugin, open_plugin
from windrow.machines.port import DriverConfig, InfrastructureUnknown, MachineSpec, MachineStatus, Power
from windrow.protocols import dockermachine as wire

NAME = "c1-pool1-abcde-fghij"
# The Go driver's words where ours are spelled otherwise; people read them in `create --help`.
SPELLED = {
    "harvester-ssh-private-key-path": "SSH private key path ",
    "harvester-isolate-emulator-thread": "enable vm isolatated emulator thread",
}


DRIVERS: dict[str, Callable[[], Path]] = {"go": lambda: real_program(GO_DRIVER), "ours": our_program}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def site() -> AsyncIterator[HarvesterSite]:
    async with a_site() as made:
        yield made


def opened(
    program: Path, folder: Path, config: Mapping[str, Any] | None = None
) -> AbstractAsyncContextManager[Plugin]:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder)}
    given = json.dumps(config).encode() if config is not None else None
    return open_plugin(program, "harvester", env=env, folder=folder, config=given)


def bare(folder: Path) -> dict[str, Any]:
    """What a host tells a driver about a new machine."""
    (folder / "machines" / NAME).mkdir(parents=True)
    return {"MachineName": NAME, "StorePath": str(folder)}


def values_of(flags: tuple[wire.Flag, ...], **given: Any) -> dict[str, Any]:
    values: dict[str, Any] = {flag.name: flag.default for flag in flags}
    return values | {f"harvester-{name.replace('_', '-')}": value for name, value in given.items()}


async def test_the_flags_of_both_drivers_are_the_same(tmp_path: Path) -> None:
    async with opened(real_program(GO_DRIVER), tmp_path) as plugin:
        theirs = await plugin.get_flags()
    async with opened(our_program(), tmp_path) as plugin:
        ours = await plugin.get_flags()

    known = version_of(real_program(GO_DRIVER)).known_fields({flag.name: flag for flag in ours})
    assert [spelled(flag) for flag in theirs] == [spelled(flag) for flag in known.values()]
    assert {flag.name: flag.usage for flag in theirs if flag.usage != known[flag.name].usage} == {
        name: usage for name, usage in SPELLED.items() if name in known
    }


def spelled(flag: wire.Flag) -> tuple[Any, ...]:
    return flag.kind, flag.name, flag.env, flag.default


async def test_the_configuration_of_both_drivers_is_written_alike(tmp_path: Path) -> None:
    flags = {
        "disk_info": json.dumps({"disks": [IMAGE_DISK]}),
        "network_info": json.dumps({"interfaces": [NIC]}),
        "vm_affinity": '{"nodeAffinity":{}}',
        "reserved_memory_size": 64,
        "enable_efi": True,
        "user_data": "a: 1",
    }
    told, version = [], version_of(real_program(GO_DRIVER))
    for program in (real_program(GO_DRIVER), our_program()):
        async with opened(program, tmp_path, {"MachineName": NAME, "StorePath": "/s"}) as plugin:
            values = values_of(await plugin.get_flags(), **flags)
            await plugin.set_flags(version.known_fields(values))
            told.append(json.loads(await plugin.get_config()))

    theirs, ours = told
    shared = version.known_keys({key: value for key, value in ours.items() if not key.startswith("Windrow")})
    assert [*theirs] == [*shared]
    assert theirs == shared


# Requests to Harvester, at most; GetState and what hosts ask between are not in it.
BUDGET = {"PreCreateCheck": 3, "Create": 3, "Remove": 3}


async def test_a_driver_makes_powers_and_removes_a_machine_for_our_host(
    driver: str, site: HarvesterSite, tmp_path: Path
) -> None:
    api = site.harvester.api.local()
    calls = {}
    async with opened(DRIVERS[driver](), tmp_path, bare(tmp_path)) as plugin:
        assert await plugin.call("DriverName") == "harvester"
        assert await plugin.call("GetMachineName") == NAME
        values = values_of(
            await plugin.get_flags(),
            kubeconfig_content=site.kubeconfig,
            disk_info=json.dumps({"disks": [IMAGE_DISK]}),
            network_info=json.dumps({"interfaces": [NIC]}),
        )
        await plugin.set_flags(values)
        for method in ("PreCreateCheck", "Create", "Stop", "Start", "Restart", "Kill"):
            site.forget()
            await plugin.call(method)
            calls[method] = count_requests(site.calls())
        assert await plugin.call("GetState") == wire.STOPPED
        with pytest.raises(DriverError, match="Host is not running"):
            await plugin.call("GetIP")
        config = json.loads(await plugin.get_config())
        assert config["IPAddress"].startswith("192.168.50.")

    async with opened(DRIVERS[driver](), tmp_path, config) as plugin:
        site.forget()
        await plugin.call("Remove")
        calls["Remove"] = count_requests(site.calls())
        with pytest.raises(DriverError, match=f'virtualmachines.kubevirt.io "{NAME}" not found'):
            await plugin.call("GetState")
    assert await api.find(kinds.VM.ref(NAME, "default")) is None
    await site.nothing_left()
    totals = {method: counts.total() for method, counts in calls.items()}
    print(f"\nAPI calls, {driver} driver: {totals}")
    if driver == "ours":
        assert not {method: totals[method] for method, most in BUDGET.items() if totals[method] > most}


@pytest.fixture
async def machines(driver: str, site: HarvesterSite, tmp_path: Path) -> AsyncIterator[PluginMachines]:
    """The manager's port over the driver."""
    program, clock = DRIVERS[driver](), SystemClock()

    async def credential(name: str) -> str:
        return site.kubeconfig

    async def no_fields(name: str, credential: str) -> Mapping[str, str]:
        raise LookupError(f"{name} has no credential {credential} here")

    made = PluginMachines(
        lambda name: program if name == "harvester" else None,
        credential,
        no_fields,
        tmp_path / "state",
        clock,
        Rng(1),
        env={"PATH": "/usr/bin:/bin"},
        connect=lambda access: HttpTransport(access, clock),
        intervals=PollIntervals(transitional=timedelta(seconds=0.3), steady=timedelta(seconds=0.5)),
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        yield made
        running.cancel()


async def wait_for_status(machines: PluginMachines, state: str, within: float = 60) -> MachineStatus:
    """The machine, once it is seen in that state; `missing` is one, too."""
    deadline = time.monotonic() + within
    while True:
        sighting = machines.statuses().get(SPEC.machine_uid)
        if sighting is not None and state in (sighting.state, sighting.presence):
            return sighting
        assert time.monotonic() < deadline, f"{state} is not seen: {sighting}"
        await asyncio.sleep(0.1)


SPEC = MachineSpec(
    NAME,
    "0aa0b0c0-0000-4000-8000-000000000001",
    "c1",
    "0aa0b0c0-0000-4000-8000-000000000002",
    "fleet-default:cc-harvester",
    {"diskInfo": json.dumps({"disks": [IMAGE_DISK]}), "networkInfo": json.dumps({"interfaces": [NIC]})},
    "#cloud-config\nruncmd:\n- echo from the manager\n",
)


async def remove_as_the_manager_does(machines: PluginMachines, config: DriverConfig) -> None:
    """Again where another writer came in between: the Go driver replaces the VM whole, and restarts change its status."""
    for _ in range(5):
        try:
            return await machines.remove(config, frozenset())
        except InfrastructureUnknown as error:
            if "the object has been modified" not in str(error):
                raise
    raise AssertionError("another writer came in between each time")


async def test_the_manager_orders_powers_and_removes_a_machine_by_either_driver(
    driver: str, site: HarvesterSite, machines: PluginMachines
) -> None:
    api, vmi = site.harvester.api.local(), kinds.VMI.ref(NAME, "default")
    assert not await machines.check([SPEC])
    memory = await machines.ensure(SPEC, await machines.plan(SPEC))
    running = await wait_for_status(machines, "running")
    while not running.addresses:
        await asyncio.sleep(0.1)
        running = await wait_for_status(machines, "running")
    assert running.addresses[0].startswith("192.168.50.")
    assert "echo from the manager" in await site.document(NAME)

    await machines.power(memory, Power.OFF)
    await wait_for_status(machines, "stopped")
    await machines.power(memory, Power.ON)
    await wait_for_status(machines, "running")
    before = (await api.get(vmi))["metadata"]["uid"]
    deadline = time.monotonic() + 60
    await machines.power(memory, Power.RESTART)
    while (found := await api.find(vmi)) is None or found["metadata"]["uid"] == before:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)

    await remove_as_the_manager_does(machines, memory)
    await wait_for_status(machines, "missing")
    assert await api.find(kinds.VM.ref(NAME, "default")) is None
    await site.nothing_left()


async def test_an_error_and_a_panic_of_the_go_driver_reach_our_host_as_what_they_are(
    site: HarvesterSite, tmp_path: Path
) -> None:
    async with opened(real_program(GO_DRIVER), tmp_path, bare(tmp_path)) as plugin:
        flags = await plugin.get_flags()
        with pytest.raises(DriverError, match="must specify harvester image name"):
            await plugin.set_flags(values_of(flags))
        given = {
            "kubeconfig_content": site.kubeconfig,
            "image_name": "default/nothing",
            "disk_size": 10,
            "network_name": "default/vlan50",
        }
        await plugin.set_flags(values_of(flags, **given))
        with pytest.raises(DriverError, match=r'virtualmachineimages\.harvesterhci\.io "nothing" not found'):
            await plugin.call("PreCreateCheck")
        given |= {"image_name": "default/ubuntu", "vm_affinity": "  null"}
        await plugin.set_flags(values_of(flags, **given))
        if version_of(real_program(GO_DRIVER)).dies_of_null_affinity:
            with pytest.raises(
                DriverError, match="Panic in the driver: runtime error: invalid memory address"
            ):
                await plugin.call("Create")
        else:
            await plugin.call("Create")
            await plugin.call("Remove")
        assert await plugin.call("GetVersion") == wire.API_VERSION
