"""What every adapter of the port Machines promises. One suite, run on the double and on the real one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
from tests.contract.harvester_rig import rack_world
from tests.contract.plugin_rig import GO_DRIVER, go_world, plugin_world

from windrow.machines.port import (
    DriverConfig,
    InfrastructureUnknown,
    MachineRefused,
    Machines,
    MachineSpec,
    MachineStatus,
    Power,
    initial_driver_config,
)
from windrow.testing.clock import LoopClock, run_driven
from windrow.testing.fake_machines import MemoryMachines

CREDENTIAL = "fleet-default:cc-rack"
DOCUMENT = "#cloud-config\nwrite_files:\n- path: /etc/rancher/rke2/config.yaml\n  content: 'token: s3cret'\n"


def a_spec(name: str = "c1-pool1-abcde-fghij", uid: str = "m-1", **options: Any) -> MachineSpec:
    fields = {
        "vmNamespace": "default",
        "cpuCount": "2",
        "memorySize": "4",
        "diskInfo": '{"disks":[{"imageName":"default/jammy","bootOrder":1,"size":40}]}',
        "networkInfo": '{"interfaces":[{"networkName":"default/vlan50"}]}',
        "sshUser": "rancher",
    }
    return MachineSpec(name, uid, "c1", "cluster-1", CREDENTIAL, {**fields, **options}, DOCUMENT)


class World(Protocol):
    """An adapter together with hands on the infrastructure behind it."""

    machines: Machines

    async def boot(self, name: str) -> None:
        """The ordered machine comes to run and gets an address."""

    async def lose(self, name: str) -> None:
        """Somebody deletes the VM."""

    async def put_foreign(self, name: str) -> None:
        """Somebody else's VM of that name stands there."""

    async def put_claim(self, name: str) -> None:
        """A claim that is no machine's."""

    async def take_marks(self, name: str) -> None:
        """Somebody takes away from the VM what says that it is machine m-1's."""

    async def put_marks_back(self, name: str) -> None: ...

    async def revoke(self) -> None: ...

    async def restore(self) -> None: ...

    async def vms(self) -> list[str]: ...

    async def claims(self) -> list[str]:
        """The claims that exist, without their random ends."""

    async def document(self, name: str) -> str:
        """What the machine would read at its next start."""


class MemoryWorld:
    def __init__(self) -> None:
        self.machines = self.double = MemoryMachines(LoopClock(), auto_boot=False)

    async def boot(self, name: str) -> None:
        self.double.boot(name)

    async def lose(self, name: str) -> None:
        self.double.delete_vm(name)

    async def put_foreign(self, name: str) -> None:
        self.double.put_foreign("default", name)

    async def put_claim(self, name: str) -> None:
        self.double.claims.add(f"default/{name}")

    async def take_marks(self, name: str) -> None:
        self.double.set_owner_annotations(name, False)

    async def put_marks_back(self, name: str) -> None:
        self.double.set_owner_annotations(name, True)

    async def revoke(self) -> None:
        self.double.revoke(CREDENTIAL)

    async def restore(self) -> None:
        self.double.restore(CREDENTIAL)

    async def vms(self) -> list[str]:
        return self.double.vm_names()

    async def claims(self) -> list[str]:
        return sorted(claim.rpartition("/")[2][:-6] for claim in self.double.claims)

    async def document(self, name: str) -> str:
        return self.double.cloud_config(name)


@asynccontextmanager
async def memory_world() -> AsyncIterator[World]:
    yield MemoryWorld()


@dataclass(frozen=True, slots=True)
class Stage:
    """A kind of world: how it is made, how its time passes, and which sentences it cannot promise, each with why."""

    world: Callable[[], AbstractAsyncContextManager[World]]
    run: Callable[[Coroutine[Any, Any, None]], None] = run_driven
    cannot: dict[str, str] = field(default_factory=dict)


# What no host can give to a plugin that knows nothing of marks or documents (reference/01 §3).
GO_CANNOT = {
    "test_a_machine_without_owner_annotations_is_not_powered_and_not_missing": "it knows no marks",
    "test_replaced_user_data_is_what_the_machine_reads_next": "it cannot replace a document",
    "test_the_config_names_the_machine_and_its_claims": "its claims have names of its own",
    "test_the_named_volumes_are_deleted_wherever_they_are": "it removes what it made, and nothing else",
    "test_the_named_volumes_are_deleted_after_the_machine": "it removes what it made, and nothing else",
    "test_the_planned_config_suffices_to_remove_the_machine": "it leaves the disks of a VM that is gone already",
    "test_a_revoked_credential_makes_machines_unknown_and_not_missing": "its Create goes on with what it began with",
}
STAGES: dict[str, Stage] = {
    "memory": Stage(memory_world),
    "direct": Stage(rack_world),
    # Real processes take real time.
    "plugin": Stage(plugin_world, asyncio.run),
}
if os.environ.get(GO_DRIVER):
    STAGES["go plugin"] = Stage(go_world, asyncio.run, GO_CANNOT)

Story = Callable[[World], Awaitable[None]]


@pytest.fixture(params=sorted(STAGES))
def play(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Runs a story in a fresh world of each kind, in that kind's time."""
    stage = STAGES[request.param]
    if why := stage.cannot.get(request.function.__name__):
        pytest.skip(why)

    async def staged(story: Story) -> None:
        async with stage.world() as world:
            await story(world)

    return lambda story: stage.run(staged(story))


async def seen(world: World, uid: str, wanted: Callable[[MachineStatus], bool]) -> MachineStatus:
    """The first sighting of machine `uid` that is as wanted."""
    async with asyncio.timeout(3600):
        async for _, sighting in world.machines.statuses().changes():
            if sighting is not None and sighting.machine_uid == uid and wanted(sighting):
                return sighting
    raise AssertionError("the sightings ended")


async def born(world: World, spec: MachineSpec) -> DriverConfig:
    memory = await world.machines.ensure(spec, None)
    await world.boot(spec.name)
    await seen(world, spec.machine_uid, lambda s: s.state == "running" and bool(s.addresses))
    return memory


def test_a_created_machine_runs_with_an_address(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await world.machines.ensure(a_spec(), None)
        await world.boot("c1-pool1-abcde-fghij")
        sighting = await seen(world, "m-1", lambda s: bool(s.addresses))

        assert sighting.presence == "present"
        assert sighting.state == "running"
        assert sighting.vm_uid == memory["WindrowVMUID"]

    play(story)


def test_the_config_names_the_machine_and_its_claims(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await world.machines.ensure(a_spec(), None)

        assert memory["MachineName"] == "c1-pool1-abcde-fghij"
        assert memory["VMNamespace"] == "default"
        assert memory["WindrowMachineUID"] == "m-1"
        assert memory["WindrowClusterUID"] == "cluster-1"
        assert memory["WindrowCredential"] == CREDENTIAL
        assert memory["WindrowHarvesterUID"]
        assert [claim[:-6] for claim in memory["WindrowClaims"]] == ["c1-pool1-abcde-fghij-disk-0"]

    play(story)


def test_the_config_has_no_bootstrap_secret(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        assert "s3cret" not in str(await world.machines.ensure(a_spec(), None))

    play(story)


def test_ensure_may_be_repeated_with_and_without_its_config(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        first = await world.machines.ensure(a_spec(), None)
        forgotten = await world.machines.ensure(a_spec(), None)
        again = await world.machines.ensure(a_spec(), first)

        assert first == forgotten == again
        assert await world.vms() == ["c1-pool1-abcde-fghij"]

    play(story)


def test_a_created_machine_is_never_created_again(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        await world.lose("c1-pool1-abcde-fghij")
        await seen(world, "m-1", lambda s: s.presence == "missing")

        assert await world.machines.ensure(a_spec(), memory) == memory
        assert await world.vms() == []

    play(story)


def test_a_deleted_vm_is_reported_missing(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await born(world, a_spec())
        await world.lose("c1-pool1-abcde-fghij")

        assert (await seen(world, "m-1", lambda s: s.presence == "missing")).because

    play(story)


def test_a_vm_with_another_owner_is_neither_adopted_nor_removed(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await world.put_foreign("c1-pool1-abcde-fghij")

        with pytest.raises(MachineRefused, match="c1-pool1-abcde-fghij"):
            await world.machines.ensure(a_spec(), None)
        await world.machines.remove(initial_driver_config(a_spec()), frozenset())
        assert await world.vms() == ["c1-pool1-abcde-fghij"]

    play(story)


def test_a_machine_without_owner_annotations_is_not_powered_and_not_missing(
    play: Callable[[Story], None],
) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        await world.take_marks("c1-pool1-abcde-fghij")
        sighting = await seen(world, "m-1", lambda s: s.presence != "present")
        assert sighting.presence == "unknown"
        for order in (Power.OFF, Power.RESTART):
            with pytest.raises((MachineRefused, InfrastructureUnknown), match="c1-pool1-abcde-fghij"):
                await world.machines.power(memory, order)
        with pytest.raises((MachineRefused, InfrastructureUnknown), match="c1-pool1-abcde-fghij"):
            await world.machines.remove(memory, frozenset())

        await world.put_marks_back("c1-pool1-abcde-fghij")
        assert (await seen(world, "m-1", lambda s: s.presence == "present")).state == "running"

    play(story)


def test_removal_deletes_the_machines_own_disks_and_no_others(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        await born(world, a_spec("c1-pool1-abcde-other", "m-2"))
        await world.machines.remove(memory, frozenset())
        await seen(world, "m-1", lambda s: s.presence == "missing")

        assert await world.vms() == ["c1-pool1-abcde-other"]
        assert await world.claims() == ["c1-pool1-abcde-other-disk-0"]

    play(story)


def test_the_named_volumes_are_deleted_wherever_they_are(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        await world.put_claim("data-1-abcde")
        await world.put_claim("data-2-abcde")
        await world.machines.remove(memory, frozenset({"data-1-abcde"}))
        await seen(world, "m-1", lambda s: s.presence == "missing")

        assert await world.claims() == ["data-2"]

    play(story)


def test_the_named_volumes_are_deleted_after_the_machine(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        await world.put_claim("data-1-abcde")
        await world.lose(memory["MachineName"])
        await seen(world, "m-1", lambda s: s.presence == "missing")
        await world.machines.remove(memory, frozenset({"data-1-abcde"}))

        assert await world.claims() == []

    play(story)


def test_a_removal_may_be_repeated(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        await world.machines.remove(memory, frozenset())
        await world.machines.remove(memory, frozenset())
        await seen(world, "m-1", lambda s: s.presence == "missing")
        await world.machines.remove(memory, frozenset())

        assert await world.vms() == []

    play(story)


def test_a_machine_whose_config_was_lost_can_be_removed(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        await born(world, a_spec())
        await world.machines.remove(initial_driver_config(a_spec()), frozenset())
        await seen(world, "m-1", lambda s: s.presence == "missing")

        assert await world.vms() == []
        assert await world.claims() == []

    play(story)


def test_the_planned_config_suffices_to_remove_the_machine(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        planned = await world.machines.plan(a_spec())
        assert planned["WindrowHarvesterUID"]
        assert not planned.get("WindrowVMUID")
        assert await world.vms() == []

        memory = await world.machines.ensure(a_spec(), planned)
        await world.boot(memory["MachineName"])
        await world.lose(memory["MachineName"])
        await world.machines.remove(planned, frozenset())
        await seen(world, "m-1", lambda s: s.presence == "missing")
        assert await world.claims() == []

    play(story)


def test_a_machine_planned_on_one_harvester_is_not_created_on_another(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        planned = {**await world.machines.plan(a_spec()), "WindrowHarvesterUID": "another-rack"}

        with pytest.raises(InfrastructureUnknown, match="another-rack"):
            await world.machines.ensure(a_spec(), planned)
        assert await world.vms() == []

    play(story)


def test_another_harvester_is_not_asked_to_remove(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        elsewhere = {**memory, "WindrowHarvesterUID": "another-rack"}

        with pytest.raises(InfrastructureUnknown, match="another-rack"):
            await world.machines.remove(elsewhere, frozenset())
        assert await world.vms() == ["c1-pool1-abcde-fghij"]

    play(story)


def test_a_revoked_credential_makes_machines_unknown_and_not_missing(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        await world.revoke()
        sighting = await seen(world, "m-1", lambda s: s.presence == "unknown")
        assert CREDENTIAL in sighting.because
        with pytest.raises(InfrastructureUnknown, match=CREDENTIAL):
            await world.machines.remove(memory, frozenset())
        with pytest.raises(InfrastructureUnknown, match=CREDENTIAL):
            await world.machines.ensure(a_spec("c1-pool1-abcde-third", "m-3"), None)

        await world.restore()
        assert (await seen(world, "m-1", lambda s: s.presence == "present")).state == "running"

    play(story)


def test_a_stopped_machine_starts_again(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        memory = await world.machines.power(memory, Power.OFF)
        assert (await seen(world, "m-1", lambda s: s.state == "stopped")).addresses == ()
        memory = await world.machines.power(memory, Power.OFF)

        memory = await world.machines.power(memory, Power.ON)
        await world.boot("c1-pool1-abcde-fghij")
        assert (await seen(world, "m-1", lambda s: s.state == "running")).presence == "present"
        await world.machines.power(memory, Power.ON)

    play(story)


def test_replaced_user_data_is_what_the_machine_reads_next(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        assert "s3cret" in await world.document("c1-pool1-abcde-fghij")

        memory = await world.machines.replace_user_data(memory, "#cloud-config\nruncmd: [[true]]\n")
        assert "s3cret" not in await world.document("c1-pool1-abcde-fghij")
        await world.machines.replace_user_data(memory, "#cloud-config\nruncmd: [[true]]\n")

    play(story)


def test_track_reports_an_existing_machine(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        memory = await born(world, a_spec())
        world.machines.track(memory)
        world.machines.track(memory)

        assert (await seen(world, "m-1", lambda s: s.presence == "present")).name == "c1-pool1-abcde-fghij"

    play(story)


def test_a_sound_spec_has_no_problems_and_makes_nothing(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        assert await world.machines.check([a_spec()]) == []
        assert await world.vms() == []

    play(story)
