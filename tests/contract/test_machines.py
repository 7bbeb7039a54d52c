"""What every adapter of the port Machines promises. One suite, run on the double and on the real one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pytest
from tests.contract.harvester_rig import harvester_rig
from tests.contract.plugin_rig import GO_DRIVER, go_plugin_rig, plugin_rig
from tests.support.clock import LoopClock, run_driven
from tests.support.fake_machines import MemoryMachines

from windrow.harvester.connection import describe_credential
from windrow.machines.port import (
    DriverConfig,
    EditUnsupported,
    InfrastructureUnknown,
    MachineRefused,
    Machines,
    MachineSpec,
    MachineStatus,
    Power,
    initial_driver_config,
)

CREDENTIAL = "fleet-default:cc-harvester"
CREDENTIAL_NAME = describe_credential(CREDENTIAL)
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


class Rig(Protocol):
    """An adapter together with hands on the infrastructure behind it."""

    machines: Machines

    async def boot(self, name: str) -> None:
        """The ordered machine comes to run and gets an address."""

    async def delete_vm(self, name: str) -> None:
        """The VM is deleted at the infrastructure."""

    async def put_foreign(self, name: str) -> None:
        """A VM with another owner has the name."""

    async def put_claim(self, name: str) -> None:
        """A claim that is no machine's."""

    async def remove_owner_annotations(self, name: str) -> None:
        """Remove the owner annotations of machine m-1."""

    async def restore_owner_annotations(self, name: str) -> None: ...

    async def revoke(self) -> None: ...

    async def restore(self) -> None: ...

    async def vms(self) -> list[str]: ...

    async def claims(self) -> list[str]:
        """The claims that exist, without their random ends."""

    async def document(self, name: str) -> str:
        """What the machine would read at its next start."""

    async def size(self, name: str) -> tuple[int, str]:
        """The CPUs and the memory that the machine would have from its next start."""


class MemoryRig:
    def __init__(self) -> None:
        self.machines = self.double = MemoryMachines(LoopClock(), auto_boot=False)

    async def boot(self, name: str) -> None:
        self.double.boot(name)

    async def delete_vm(self, name: str) -> None:
        self.double.delete_vm(name)

    async def put_foreign(self, name: str) -> None:
        self.double.put_foreign("default", name)

    async def put_claim(self, name: str) -> None:
        self.double.claims.add(f"default/{name}")

    async def remove_owner_annotations(self, name: str) -> None:
        self.double.set_owner_annotations(name, False)

    async def restore_owner_annotations(self, name: str) -> None:
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

    async def size(self, name: str) -> tuple[int, str]:
        return self.double.size(name)


@asynccontextmanager
async def memory_rig() -> AsyncIterator[Rig]:
    yield MemoryRig()


@dataclass(frozen=True, slots=True)
class RigKind:
    """A kind of rig: how it is made, how its time passes, and which sentences it cannot promise, each with why."""

    rig: Callable[[], AbstractAsyncContextManager[Rig]]
    run: Callable[[Coroutine[Any, Any, None]], None] = run_driven
    cannot: dict[str, str] = field(default_factory=dict)


# What no host can give to a plugin that knows nothing of marks or documents (reference/01 §3).
GO_CANNOT = {
    "test_a_machine_without_owner_annotations_is_not_powered_and_not_missing": "it knows no marks",
    "test_the_status_of_a_machine_whose_owner_is_unknown_is_unknown": "it knows no marks",
    "test_replaced_user_data_is_what_the_machine_reads_next": "it cannot replace a document",
    "test_the_config_names_the_machine_and_its_claims": "its claims have names of its own",
    "test_the_named_volumes_are_deleted_wherever_they_are": "it removes what it made, and nothing else",
    "test_the_named_volumes_are_deleted_after_the_machine": "it removes what it made, and nothing else",
    "test_the_planned_config_suffices_to_remove_the_machine": "it leaves the disks of a VM that is gone already",
    "test_a_revoked_credential_makes_machines_unknown_and_not_missing": "its Create goes on with what it began with",
}
RIGS: dict[str, RigKind] = {
    "memory": RigKind(memory_rig),
    "direct": RigKind(harvester_rig),
    # Real processes take real time.
    "plugin": RigKind(plugin_rig, asyncio.run),
}
if os.environ.get(GO_DRIVER):
    RIGS["go plugin"] = RigKind(go_plugin_rig, asyncio.run, GO_CANNOT)

# docker-machine's protocol has no call that edits a machine.
PLUGINS = sorted(kind for kind in RIGS if "plugin" in kind)

Story = Callable[[Rig], Awaitable[None]]


def only(kinds: Collection[str]) -> pytest.MarkDecorator:
    """The sentence is one of these kinds of rig alone."""
    return pytest.mark.parametrize("play", sorted(kinds), indirect=True)


@pytest.fixture(params=sorted(RIGS))
def play(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Runs a story in a fresh rig of each kind, in that kind's time."""
    stage = RIGS[request.param]
    if why := stage.cannot.get(request.function.__name__):
        pytest.skip(why)

    async def staged(story: Story) -> None:
        async with stage.rig() as rig:
            await story(rig)

    return lambda story: stage.run(staged(story))


async def wait_for_status(rig: Rig, uid: str, wanted: Callable[[MachineStatus], bool]) -> MachineStatus:
    """The first status of machine `uid` that is as wanted."""
    async with asyncio.timeout(3600):
        async for _, status in rig.machines.statuses().changes():
            if status is not None and status.machine_uid == uid and wanted(status):
                return status
    raise AssertionError("the statuses ended")


async def create_running(rig: Rig, spec: MachineSpec) -> DriverConfig:
    config = await rig.machines.ensure(spec, None)
    await rig.boot(spec.name)
    await wait_for_status(rig, spec.machine_uid, lambda s: s.state == "running" and bool(s.addresses))
    return config


def test_a_created_machine_runs_with_an_address(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await rig.machines.ensure(a_spec(), None)
        await rig.boot("c1-pool1-abcde-fghij")
        status = await wait_for_status(rig, "m-1", lambda s: bool(s.addresses))

        assert status.presence == "present"
        assert status.state == "running"
        assert status.vm_uid == config["WindrowVMUID"]

    play(story)


def test_the_config_names_the_machine_and_its_claims(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await rig.machines.ensure(a_spec(), None)

        assert config["MachineName"] == "c1-pool1-abcde-fghij"
        assert config["VMNamespace"] == "default"
        assert config["WindrowMachineUID"] == "m-1"
        assert config["WindrowClusterUID"] == "cluster-1"
        assert config["WindrowCredential"] == CREDENTIAL
        assert config["WindrowHarvesterUID"]
        assert [claim[:-6] for claim in config["WindrowClaims"]] == ["c1-pool1-abcde-fghij-disk-0"]

    play(story)


def test_the_config_has_no_bootstrap_secret(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        assert "s3cret" not in str(await rig.machines.ensure(a_spec(), None))

    play(story)


def test_ensure_may_be_repeated_with_and_without_its_config(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        first = await rig.machines.ensure(a_spec(), None)
        forgotten = await rig.machines.ensure(a_spec(), None)
        again = await rig.machines.ensure(a_spec(), first)

        assert first == forgotten == again
        assert await rig.vms() == ["c1-pool1-abcde-fghij"]

    play(story)


def test_a_created_machine_is_never_created_again(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        await rig.delete_vm("c1-pool1-abcde-fghij")
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")

        assert await rig.machines.ensure(a_spec(), config) == config
        assert await rig.vms() == []

    play(story)


def test_a_deleted_vm_is_reported_missing(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        await create_running(rig, a_spec())
        await rig.delete_vm("c1-pool1-abcde-fghij")

        assert (await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")).because

    play(story)


def test_the_status_that_is_read_now_is_that_of_this_moment(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())

        status = await rig.machines.read_status(config)
        assert (status.presence, status.state, status.vm_uid != "") == ("present", "running", True)
        await rig.delete_vm("c1-pool1-abcde-fghij")
        going = await rig.machines.read_status(config)
        assert (going.machine_uid, going.name) == ("m-1", "c1-pool1-abcde-fghij")
        assert going.presence == "missing" or going.state == "deleting"

    play(story)


def test_the_status_of_a_machine_whose_owner_is_unknown_is_unknown(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        await rig.remove_owner_annotations("c1-pool1-abcde-fghij")

        assert (await rig.machines.read_status(config)).presence == "unknown"

    play(story)


def test_the_status_read_now_with_a_revoked_credential_is_unknown(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        await rig.revoke()

        with suppress(InfrastructureUnknown):
            assert (await rig.machines.read_status(config)).presence == "unknown"

    play(story)


def test_a_vm_with_another_owner_is_neither_adopted_nor_removed(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        await rig.put_foreign("c1-pool1-abcde-fghij")

        with pytest.raises(MachineRefused, match="c1-pool1-abcde-fghij"):
            await rig.machines.ensure(a_spec(), None)
        await rig.machines.remove(initial_driver_config(a_spec()), frozenset())
        assert await rig.vms() == ["c1-pool1-abcde-fghij"]

    play(story)


def test_a_machine_without_owner_annotations_is_not_powered_and_not_missing(
    play: Callable[[Story], None],
) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        await rig.remove_owner_annotations("c1-pool1-abcde-fghij")
        status = await wait_for_status(rig, "m-1", lambda s: s.presence != "present")
        assert status.presence == "unknown"
        for order in (Power.OFF, Power.RESTART):
            with pytest.raises((MachineRefused, InfrastructureUnknown), match="c1-pool1-abcde-fghij"):
                await rig.machines.power(config, order)
        with pytest.raises((MachineRefused, InfrastructureUnknown), match="c1-pool1-abcde-fghij"):
            await rig.machines.remove(config, frozenset())

        await rig.restore_owner_annotations("c1-pool1-abcde-fghij")
        assert (await wait_for_status(rig, "m-1", lambda s: s.presence == "present")).state == "running"

    play(story)


def test_removal_deletes_the_machines_own_disks_and_no_others(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        await create_running(rig, a_spec("c1-pool1-abcde-other", "m-2"))
        await rig.machines.remove(config, frozenset())
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")

        assert await rig.vms() == ["c1-pool1-abcde-other"]
        assert await rig.claims() == ["c1-pool1-abcde-other-disk-0"]

    play(story)


def test_the_named_volumes_are_deleted_wherever_they_are(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        await rig.put_claim("data-1-abcde")
        await rig.put_claim("data-2-abcde")
        await rig.machines.remove(config, frozenset({"data-1-abcde"}))
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")

        assert await rig.claims() == ["data-2"]

    play(story)


def test_the_named_volumes_are_deleted_after_the_machine(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        await rig.put_claim("data-1-abcde")
        await rig.delete_vm(config["MachineName"])
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        await rig.machines.remove(config, frozenset({"data-1-abcde"}))

        assert await rig.claims() == []

    play(story)


def test_a_removal_may_be_repeated(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        await rig.machines.remove(config, frozenset())
        await rig.machines.remove(config, frozenset())
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        await rig.machines.remove(config, frozenset())

        assert await rig.vms() == []

    play(story)


def test_a_machine_whose_config_was_lost_can_be_removed(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        await create_running(rig, a_spec())
        await rig.machines.remove(initial_driver_config(a_spec()), frozenset())
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")

        assert await rig.vms() == []
        assert await rig.claims() == []

    play(story)


def test_the_planned_config_suffices_to_remove_the_machine(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        planned = await rig.machines.plan(a_spec())
        assert planned["WindrowHarvesterUID"]
        assert not planned.get("WindrowVMUID")
        assert await rig.vms() == []

        config = await rig.machines.ensure(a_spec(), planned)
        await rig.boot(config["MachineName"])
        await rig.delete_vm(config["MachineName"])
        await rig.machines.remove(planned, frozenset())
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        assert await rig.claims() == []

    play(story)


def test_a_machine_planned_on_one_harvester_is_not_created_on_another(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        planned = {**await rig.machines.plan(a_spec()), "WindrowHarvesterUID": "another-harvester"}

        with pytest.raises(InfrastructureUnknown, match="another-harvester"):
            await rig.machines.ensure(a_spec(), planned)
        assert await rig.vms() == []

    play(story)


def test_a_machine_of_a_cluster_on_one_harvester_is_not_planned_on_another(
    play: Callable[[Story], None],
) -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(InfrastructureUnknown, match="another-harvester"):
            await rig.machines.plan(replace(a_spec(), harvester_uid="another-harvester"))
        assert await rig.vms() == []

    play(story)


def test_another_harvester_is_not_asked_to_remove(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        elsewhere = {**config, "WindrowHarvesterUID": "another-harvester"}

        with pytest.raises(InfrastructureUnknown, match="another-harvester"):
            await rig.machines.remove(elsewhere, frozenset())
        assert await rig.vms() == ["c1-pool1-abcde-fghij"]

    play(story)


def test_a_revoked_credential_makes_machines_unknown_and_not_missing(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        await rig.revoke()
        status = await wait_for_status(rig, "m-1", lambda s: s.presence == "unknown")
        assert CREDENTIAL_NAME in status.because
        with pytest.raises(InfrastructureUnknown, match=CREDENTIAL_NAME):
            await rig.machines.remove(config, frozenset())
        with pytest.raises(InfrastructureUnknown, match=CREDENTIAL_NAME):
            await rig.machines.ensure(a_spec("c1-pool1-abcde-third", "m-3"), None)

        await rig.restore()
        assert (await wait_for_status(rig, "m-1", lambda s: s.presence == "present")).state == "running"

    play(story)


def test_a_stopped_machine_starts_again(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        config = await rig.machines.power(config, Power.OFF)
        assert (await wait_for_status(rig, "m-1", lambda s: s.state == "stopped")).addresses == ()
        config = await rig.machines.power(config, Power.OFF)

        config = await rig.machines.power(config, Power.ON)
        await rig.boot("c1-pool1-abcde-fghij")
        assert (await wait_for_status(rig, "m-1", lambda s: s.state == "running")).presence == "present"
        await rig.machines.power(config, Power.ON)

    play(story)


def test_replaced_user_data_is_what_the_machine_reads_next(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        assert "s3cret" in await rig.document("c1-pool1-abcde-fghij")

        config = await rig.machines.replace_user_data(config, "#cloud-config\nruncmd: [[true]]\n")
        assert "s3cret" not in await rig.document("c1-pool1-abcde-fghij")
        await rig.machines.replace_user_data(config, "#cloud-config\nruncmd: [[true]]\n")

    play(story)


@only(RIGS.keys() - PLUGINS)
def test_an_edited_machine_has_its_new_size_from_its_next_start(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        spec = a_spec()
        config = await create_running(rig, spec)
        await rig.machines.power(config, Power.OFF)
        await wait_for_status(rig, "m-1", lambda s: s.state == "stopped")

        larger = {**spec.options, "cpuCount": "4", "memorySize": "8"}
        edited = await rig.machines.edit(config, larger)
        assert (edited["CPU"], edited["MemorySize"]) == (4, "8Gi")
        assert edited["WindrowVMUID"] == config["WindrowVMUID"]
        assert await rig.size(spec.name) == (4, "8Gi")
        assert await rig.machines.edit(edited, larger) == edited

        await rig.machines.power(edited, Power.ON)
        await rig.boot(spec.name)
        assert (await wait_for_status(rig, "m-1", lambda s: s.state == "running")).presence == "present"

    play(story)


@only(RIGS.keys() - PLUGINS)
def test_a_machine_that_is_gone_is_not_edited(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        spec = a_spec()
        config = await create_running(rig, spec)
        await rig.delete_vm(spec.name)
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        with pytest.raises(MachineRefused, match="not found"):
            await rig.machines.edit(config, {**spec.options, "cpuCount": "4"})

    play(story)


@only(PLUGINS)
def test_a_plugins_machine_is_not_edited_and_the_refusal_names_the_way_out(
    play: Callable[[Story], None],
) -> None:
    async def story(rig: Rig) -> None:
        spec = a_spec()
        config = await create_running(rig, spec)
        with pytest.raises(EditUnsupported, match="only create and remove machines") as refused:
            await rig.machines.edit(config, {**spec.options, "cpuCount": "4"})
        assert refused.value.hint == "have the machine replaced"

    play(story)


def test_track_reports_an_existing_machine(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        config = await create_running(rig, a_spec())
        rig.machines.track(config)
        rig.machines.track(config)

        assert (
            await wait_for_status(rig, "m-1", lambda s: s.presence == "present")
        ).name == "c1-pool1-abcde-fghij"

    play(story)


def test_a_sound_spec_has_no_problems_and_makes_nothing(play: Callable[[Story], None]) -> None:
    async def story(rig: Rig) -> None:
        assert await rig.machines.check([a_spec()]) == []
        assert await rig.vms() == []

    play(story)
