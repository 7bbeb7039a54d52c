"""Golden stories of restores by a server that stays: from a snapshot on its disk, and with its own data after a lost quorum."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.stories.cluster_rig import SERVERS, Transcript, a_pool, machines_of
from tests.stories.test_cluster_life import Story, a_story, check_story, lose
from tests.stories.test_etcd_restores import events
from tests.stories.test_etcd_snapshots import ask, phase, snapshots_of
from tests.support.clock import run_driven

from windrow.emulator.guest_os.machine import GuestMachine
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.harvester.resources import VM, VM_ACTIONS
from windrow.kubernetes.objects import Raw, name_of, nested, new_object, uid_of
from windrow.kubernetes.requests import put_subresource
from windrow.kubernetes.resources import CONFIG_MAP, NODE

VERSIONS = {"rke2": "v1.34.7+rke2r1", "k3s": "v1.34.7+k3s1"}


@asynccontextmanager
async def with_snapshots(
    servers: int = 3, workers: int = 1, distribution: str = "rke2"
) -> AsyncIterator[Story]:
    """A cluster at rest with a mark in it, a snapshot of that on each server's disk, and another mark since."""
    pools = [a_pool("servers", servers, SERVERS), *([a_pool("workers", workers)] if workers else [])]
    async with a_story(*pools, kubernetesVersion=VERSIONS[distribution]) as it:
        await it.stage.wait_for_settled()
        guest = await it.stage.guest_client()
        await guest.create(CONFIG_MAP, new_object(CONFIG_MAP, "kept", "default"))
        await ask(it, etcdSnapshotCreate={"generation": 1})
        await phase(it, "Create", "Finished")
        await it.sim.advance(seconds=30)
        await guest.create(CONFIG_MAP, new_object(CONFIG_MAP, "later", "default"))
        yield it


async def on_disk_of(it: Story, machine: Raw) -> Raw:
    found = await snapshots_of(it)
    return next(raw for raw in found if nested(raw, "snapshotFile", "nodeName") == name_of(machine))


async def servers_of(it: Story) -> list[Raw]:
    return await machines_of(it.sim, it.ref, "servers")


async def check(it: Story, member: Raw, workers: set[str], marks: set[str]) -> None:
    """The cluster is whole again, with these marks; the member and the workers are those of before, other servers are not."""
    await it.stage.wait_for_settled()
    guest = await it.stage.guest_client()
    found = {name_of(raw) for raw in await guest.list(CONFIG_MAP, "default")}
    assert found & {"kept", "later"} == marks
    machines = await machines_of(it.sim, it.ref)
    assert {name_of(raw) for raw in await guest.list(NODE)} == {name_of(raw) for raw in machines}
    kept = {uid_of(raw) for raw in machines}
    assert {uid_of(member), *workers} <= kept


@pytest.mark.long
@pytest.mark.parametrize("distribution", VERSIONS)
def test_a_server_restores_the_snapshot_on_its_disk_and_the_others_join_anew(distribution: str) -> None:
    async def story() -> Transcript:
        async with with_snapshots(distribution=distribution) as it:
            before = await servers_of(it)
            member = before[1]
            workers = {uid_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")}
            name = name_of(await on_disk_of(it, member))
            it.transcript.restart()
            it.transcript.say("a user names the snapshot on the disk of servers-2 in etcdSnapshotRestore")
            await ask(it, etcdSnapshotRestore={"name": name, "generation": 1})
            await phase(it, "Restore", "Finished")
            await check(it, member, workers, {"kept"})
            others = {uid_of(raw) for raw in before} - {uid_of(member)}
            assert not others & {uid_of(raw) for raw in await servers_of(it)}
            return events(it)

    check_story(f"restore-in-place-{distribution}", story)


@pytest.mark.long
@pytest.mark.parametrize("distribution", VERSIONS)
def test_a_cluster_that_lost_its_quorum_goes_on_with_the_data_of_the_member_that_is_named(
    distribution: str,
) -> None:
    async def story() -> Transcript:
        async with with_snapshots(distribution=distribution) as it:
            lost, other, member = await servers_of(it)
            workers = {uid_of(raw) for raw in await machines_of(it.sim, it.ref, "workers")}
            for machine in (lost, other):
                await lose(it, machine)
            await it.sim.advance(minutes=3)
            it.transcript.restart()
            it.transcript.say("a user names servers-3 in clusterResetMember")
            await ask(it, etcdSnapshotRestore={"clusterResetMember": name_of(member), "generation": 1})
            await phase(it, "Restore", "Finished")
            await check(it, member, workers, {"kept", "later"})
            return events(it)

    check_story(f"reset-lost-quorum-{distribution}", story)


async def message(it: Story, generation: int) -> str:
    return str((await phase(it, "Restore", "Failed", generation))["etcdSnapshotRestoreRun"]["message"])


def test_what_cannot_be_restored_in_place_touches_nothing_and_says_why() -> None:
    async def story() -> None:
        async with with_snapshots(workers=0) as it:
            before = await servers_of(it)
            member = before[0]
            raw = await on_disk_of(it, member)
            guest = guest_of(it, member)
            file = nested(raw, "snapshotFile", "location").removeprefix("file://")
            content = guest.read(file)
            assert content

            guest.write(file, content[:-512])  # a power cut
            await ask(it, etcdSnapshotRestore={"name": name_of(raw), "generation": 1})
            assert f"has {len(content) - 512} bytes, and had {len(content)}: it was cut off" in await message(
                it, 1
            )
            guest.remove(file)
            await ask(it, etcdSnapshotRestore={"name": name_of(raw), "generation": 2})
            assert f"is not on the disk of Machine {name_of(member)} any more" in await message(it, 2)
            reset = {"name": None, "clusterResetMember": name_of(member), "generation": 3}
            await ask(it, etcdSnapshotRestore=reset)
            assert "the guest API answers, so etcd has its quorum" in await message(it, 3)

            await it.sim.advance(minutes=3)
            assert {uid_of(one) for one in await servers_of(it)} == {uid_of(one) for one in before}
            assert nested(await it.stage.get_cluster(), "status", "ready") is True
            found = it.sim.harvester.console("default", name_of(member))
            assert not any("Power down" in line for line in found)

    run_driven(story())


def guest_of(it: Story, machine: Raw) -> GuestOS:
    running = it.sim.harvester.hypervisor.running_machines()
    session = next(one for one in running if one.key[1] == name_of(machine))
    assert isinstance(session.machine, GuestMachine)
    assert session.machine.guest is not None
    return session.machine.guest


@pytest.mark.long
def test_a_file_that_turns_out_to_be_damaged_leaves_all_data_and_a_member_can_go_on_with_them() -> None:
    async def story() -> None:
        async with with_snapshots(workers=0) as it:
            before = await servers_of(it)
            member = before[0]
            raw = await on_disk_of(it, member)
            guest = guest_of(it, member)
            file = nested(raw, "snapshotFile", "location").removeprefix("file://")
            guest.write(file, (guest.read(file) or b"").replace(b"kept", b"lost"))

            await ask(it, etcdSnapshotRestore={"name": name_of(raw), "generation": 1})
            await phase(it, "Restore", "Restore")
            await it.sim.advance(minutes=5)
            status = await phase(it, "Restore", "Restore")
            assert "windrow machine console" in status["waiting"]["for"]
            console = it.sim.harvester.console("default", name_of(member))
            assert any("the data of before are in their place" in line for line in console)
            assert {uid_of(one) for one in await servers_of(it)} == {uid_of(one) for one in before}

            reset = {"name": None, "clusterResetMember": name_of(member), "generation": 2}
            await ask(it, etcdSnapshotRestore=reset)
            await phase(it, "Restore", "Finished", 2)
            await check(it, member, set(), {"kept", "later"})

    run_driven(story())


@asynccontextmanager
async def resetting(content: tuple[bytes, bytes] = (b"", b"")) -> AsyncIterator[tuple[Story, list[Raw], Raw]]:
    """A cluster whose first server is about to restore the snapshot on its disk, in which these bytes were replaced."""
    async with with_snapshots(workers=0) as it:
        servers = await servers_of(it)
        raw = await on_disk_of(it, servers[0])
        guest = guest_of(it, servers[0])
        file = nested(raw, "snapshotFile", "location").removeprefix("file://")
        guest.write(file, (guest.read(file) or b"").replace(*content))
        await ask(it, etcdSnapshotRestore={"name": name_of(raw), "generation": 1})
        await phase(it, "Restore", "Restore")
        yield it, servers, raw


async def states_of(it: Story, machines: list[Raw]) -> list[str]:
    found = [await it.sim.harvester_client.get(VM.ref(name_of(one), "default")) for one in machines]
    return [nested(one, "status", "printableStatus") for one in found]


@pytest.mark.long
def test_servers_that_a_person_starts_while_one_cannot_restore_are_stopped_again_and_not_deleted() -> None:
    async def story() -> None:
        async with resetting((b"kept", b"lost")) as (it, before, _):
            await it.sim.advance(minutes=3)
            for machine in before[1:]:
                ref = VM_ACTIONS.ref(name_of(machine), "default")
                await it.sim.harvester_client.call(put_subresource(ref, "start"))
            await it.sim.advance(minutes=10)
            await phase(it, "Restore", "Restore")
            assert {uid_of(one) for one in await servers_of(it)} == {uid_of(one) for one in before}
            assert await states_of(it, before[1:]) == ["Stopped", "Stopped"]

            reset = {"name": None, "clusterResetMember": name_of(before[1]), "generation": 2}
            await ask(it, etcdSnapshotRestore=reset)
            await phase(it, "Restore", "Finished", 2)
            await check(it, before[1], set(), {"kept", "later"})

    run_driven(story())


@pytest.mark.long
def test_a_generation_that_is_refused_while_a_server_resets_starts_no_other_beside_it() -> None:
    async def story() -> None:
        async with resetting() as (it, before, raw):
            await ask(it, etcdSnapshotRestore={"name": "typo", "generation": 2})
            await it.sim.advance(seconds=20)
            assert await states_of(it, before[1:]) == ["Stopped", "Stopped"]
            status = await phase(it, "Restore", "Finished", 2)
            assert "typo does not exist" in status["etcdSnapshotRestoreRun"]["refused"]
            assert status["etcdSnapshotRestore"]["name"] == name_of(raw)
            await check(it, before[0], set(), {"kept"})

    run_driven(story())
