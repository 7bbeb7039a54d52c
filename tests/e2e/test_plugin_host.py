"""The plugin host with our plugin and an emulated Harvester: broken off at any moment, nothing is doubled or left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contract.plugin_rig import GO_DRIVER, PluginRig, go_plugin_rig, plugin_rig
from tests.contract.test_machines import DOCUMENT, a_spec, wait_for_status
from tests.stories.harvester_rig import a_vm
from tests.unit.machines.binaries import living, our_driver

from windrow.emulator import kinds
from windrow.harvester.names import GUEST_CLUSTER
from windrow.kubernetes.resources import SECRET
from windrow.machines.plugin.machines import PluginMachines
from windrow.machines.port import DriverConfig, InfrastructureUnknown, MachineRefused


async def begin(
    machines: PluginMachines,
    planned: DriverConfig,
    moment: float,
    until: Callable[[], Awaitable[Any]] | None = None,
) -> DriverConfig | None:
    """Create the machine with a host that is stopped after `moment`, and not before `until` is so; its config, if
    it was created."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(machines.run())
        ordering = tasks.create_task(_ordered(machines, planned))
        await asyncio.sleep(moment)
        while until is not None:
            if await until():
                break
            await asyncio.sleep(0.1)
        running.cancel()
        await asyncio.wait({ordering}, timeout=0.1)
        ordering.cancel()
    return None if ordering.cancelled() else ordering.result()


async def _ordered(machines: PluginMachines, planned: DriverConfig) -> DriverConfig | None:
    try:
        return await machines.ensure(a_spec(), planned)
    except InfrastructureUnknown:
        return None


async def _removed(machines: PluginMachines, memory: DriverConfig) -> None:
    with contextlib.suppress(InfrastructureUnknown):
        await machines.remove(memory, frozenset())


def documents_in(folder: Path) -> list[Path]:
    return list(folder.glob("other/*/user-data"))


async def leftovers(world: PluginRig) -> list[str]:
    secrets = await world.line.list(SECRET, "default")
    named = [secret["metadata"]["name"] for secret in secrets if "cloudinit" in secret["metadata"]["name"]]
    return [*await world.vms(), *await world.claims(), *named]


def some_now(moments: Sequence[float], sample: Sequence[float]) -> list[Any]:
    """`make test` tries the sample, `make test-long` all of them."""
    return [pytest.param(moment, marks=() if moment in sample else pytest.mark.long) for moment in moments]


@pytest.mark.parametrize("keeps_state", [True, False], ids=["state kept", "state lost"])
@pytest.mark.parametrize("moment", some_now([0.2, 0.35, 0.5, 0.65, 0.8, 1.0, 1.4], [0.35, 0.8]))
async def test_a_host_that_is_stopped_while_it_makes_a_machine_makes_it_once(
    moment: float, keeps_state: bool
) -> None:
    async with plugin_rig() as world:
        planned = await world.machines.plan(a_spec())
        memory = await begin(world.another(), planned, moment)
        if not keeps_state:
            shutil.rmtree(world.folder / "other", ignore_errors=True)

        again = world.another()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(again.run())
            made = await again.ensure(a_spec(), memory or planned)
            world.machines = again
            status = await wait_for_status(world, "m-1", lambda s: s.state == "running" and bool(s.addresses))
            assert await world.vms() == ["c1-pool1-abcde-fghij"]
            assert status.vm_uid == made["WindrowVMUID"]
            assert DOCUMENT.splitlines()[1] in await world.document("c1-pool1-abcde-fghij")

            await again.remove(made, frozenset())
            await wait_for_status(world, "m-1", lambda s: s.presence == "missing")
            running.cancel()
        assert await leftovers(world) == []
        assert not documents_in(world.folder)


@pytest.mark.parametrize("moment", some_now([0.1, 0.3, 0.5, 0.8], [0.3]))
async def test_a_removal_that_is_broken_off_is_finished_by_the_next_one(moment: float) -> None:
    async with plugin_rig() as world:
        memory = await world.machines.ensure(a_spec(), None)
        await wait_for_status(world, "m-1", lambda s: bool(s.addresses))
        other = world.another()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(other.run())
            removing = tasks.create_task(_removed(other, memory))
            await asyncio.sleep(moment)
            running.cancel()
            await asyncio.wait({removing}, timeout=0.1)
            removing.cancel()

        await world.machines.remove(memory, frozenset())
        await wait_for_status(world, "m-1", lambda s: s.presence == "missing")
        assert await leftovers(world) == []


async def test_steady_machines_are_polled_through_one_process_that_follows_the_credential() -> None:
    async with plugin_rig() as world:
        specs = [a_spec(f"c1-pool1-abcde-m{place:04d}", f"m-{place}") for place in range(3)]
        memories = [await world.machines.ensure(spec, None) for spec in specs]
        for spec in specs:
            await wait_for_status(world, spec.machine_uid, lambda s: bool(s.addresses))
        before = await settled(world, 1)

        await world.revoke()
        for spec in specs:
            await wait_for_status(world, spec.machine_uid, lambda s: s.presence == "unknown")
        await world.restore()
        for spec in specs:
            await wait_for_status(world, spec.machine_uid, lambda s: s.presence == "present")
        assert await settled(world, 1) != before

        for memory in memories:
            await world.machines.remove(memory, frozenset())
        await settled(world, 0)


async def settled(world: PluginRig, count: int) -> set[int]:
    """The plugin processes, once they have been the same `count` for longer than any machine is left unlooked at."""
    async with asyncio.timeout(60):
        while True:
            found: set[int] = set()
            for _ in range(60):
                found |= living(world.folder)
                await asyncio.sleep(0.02)
            if len(found) == count:
                return found


async def test_a_key_pair_needs_no_private_key_without_ssh_access() -> None:
    async with plugin_rig() as world:
        await world.harvester.preload(key_pairs=["default/keys"])
        assert await world.machines.check([a_spec(keyPairName="default/keys")]) == []
        (problem,) = await world.machines.check([a_spec(keyPairName="default/absent")])
        assert "absent" in problem.message


async def test_machines_are_created_and_removed_concurrently() -> None:
    async with plugin_rig() as world:
        specs = [a_spec(f"c1-pool1-abcde-m{place:04d}", f"m-{place}") for place in range(3)]
        async with asyncio.TaskGroup() as tasks:
            orders = [tasks.create_task(world.machines.ensure(spec, None)) for spec in specs]
        for spec in specs:
            await wait_for_status(world, spec.machine_uid, lambda s: bool(s.addresses))
        assert await world.vms() == sorted(spec.name for spec in specs)

        async with asyncio.TaskGroup() as tasks:
            for order in orders:
                tasks.create_task(world.machines.remove(order.result(), frozenset()))
        for spec in specs:
            await wait_for_status(world, spec.machine_uid, lambda s: s.presence == "missing")
        assert await world.line.list(kinds.VM, "default") == []
        assert await leftovers(world) == []


@pytest.mark.skipif(GO_DRIVER not in os.environ, reason=f"{GO_DRIVER} names no Go driver")
async def test_a_machine_of_the_go_driver_is_kept_when_ours_replaces_it() -> None:
    async with go_plugin_rig() as world:
        memory = await world.machines.ensure(a_spec(), None)
        await wait_for_status(world, "m-1", lambda s: bool(s.addresses))
        await asyncio.sleep(6)  # its Create looks every five seconds
        ours = world.another(our_driver(world.folder))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(ours.run())
            ours.track(memory)
            world.machines = ours
            assert (await wait_for_status(world, "m-1", lambda s: s.presence != "unknown")).state == "running"
            await ours.remove(memory, frozenset())
            await wait_for_status(world, "m-1", lambda s: s.presence == "missing")
            running.cancel()
        assert await leftovers(world) == []


@pytest.mark.skipif(GO_DRIVER not in os.environ, reason=f"{GO_DRIVER} names no Go driver")
async def test_a_vm_created_under_the_name_after_a_refused_create_is_not_this_machine() -> None:
    async with go_plugin_rig() as world:
        spec, wrong = a_spec(), a_spec(vmAffinity='{"podAffinity": 5}')
        planned = await world.machines.plan(spec)
        with pytest.raises(MachineRefused, match="podAffinity"):
            await world.machines.ensure(wrong, planned)
        # Without the label it could be what the refused Create left: the name has random suffixes.
        await world.line.create(kinds.VM, a_vm(spec.name, labels={GUEST_CLUSTER: "theirs"}))
        with pytest.raises(MachineRefused, match="already exists"):
            await world.machines.ensure(spec, planned)
        await world.machines.remove(planned, frozenset())
        await wait_for_status(world, "m-1", lambda s: s.presence == "missing")
        assert await world.vms() == [spec.name]


@pytest.mark.skipif(GO_DRIVER not in os.environ, reason=f"{GO_DRIVER} names no Go driver")
@pytest.mark.parametrize("operation", ["ensure", "remove"])
async def test_a_create_of_the_go_driver_on_another_node_is_not_lost(operation: str) -> None:
    async with go_plugin_rig() as world:
        planned = await world.machines.plan(a_spec())
        await begin(world.another(), planned, 2.0, until=world.vms)

        if operation == "ensure":
            assert (await world.machines.ensure(a_spec(), planned))["WindrowVMUID"]
        await world.machines.remove(planned, frozenset())
        await wait_for_status(world, "m-1", lambda s: s.presence == "missing")
        assert await leftovers(world) == []
