"""The manager's store is put back to a backup: its machines run newer than it records."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from tests.stories.cluster_rig import SERVERS, a_pool, machines_of, until
from tests.stories.test_cluster_life import Story, a_story
from tests.stories.test_etcd_snapshots import ask
from tests.stories.test_etcd_snapshots import phase as restored
from tests.stories.test_in_place_restores import on_disk_of, servers_of, with_snapshots
from tests.stories.test_rollouts import set_options
from tests.stories.test_turns_and_losses import run_shop
from tests.stories.test_updates import (
    BUDGET,
    NEXT,
    booted,
    kubelets,
    set_kubelet_args,
    set_version,
    until_turn_of,
    until_version,
)
from tests.stories.test_vm_restarts import sizes_of, until_edited
from tests.support.clock import run_driven
from tests.support.simulation import Simulation

from windrow.apiserver.storage.port import Entry
from windrow.emulator.kinds import VM
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.objects import annotations_of, name_of, nested, new_object
from windrow.kubernetes.resources import CONFIG_MAP

OLD = "v1.34.7+rke2r1"


async def put_back(sim: Simulation, backup: tuple[Entry, ...]) -> None:
    """The store's objects are again those of the backup, as after `windrow restore`, and the manager begins anew."""
    await sim.kill_manager()
    store, then = sim.api.store, {entry.key: entry for entry in backup}
    now = {entry.key: entry for entry in store.snapshot()[1]}  # type: ignore[attr-defined]
    for key in now.keys() | then.keys():
        if key not in then or key not in now or then[key].rev != now[key].rev:
            entry = then.get(key)
            await store.commit(key, entry.copy() if entry else None, now[key].rev if key in now else None)
    await sim.advance(seconds=60)


def back_up(sim: Simulation) -> tuple[Entry, ...]:
    entries: tuple[Entry, ...] = sim.api.store.snapshot()[1]  # type: ignore[attr-defined]
    return entries


async def starts_of(story: Story) -> dict[str, str]:
    """Since when each Node's kubelet runs."""
    return {name_of(node): booted(node) for node in await story.stage.list_nodes()}


async def watch_versions(story: Story, *, minutes: int) -> set[str]:
    """The versions that any Node reported meanwhile."""
    found: set[str] = set()
    for _ in range(minutes * 6):
        with suppress(Unreachable):
            found |= await kubelets(story)
        await story.sim.advance(seconds=10)
    return found


def test_a_backup_of_before_an_upgrade_leads_to_no_downgrade_and_to_no_second_upgrade() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            backup = back_up(it.sim)
            await set_version(it, NEXT)
            await until_version(it, NEXT)
            before = await starts_of(it)
            await put_back(it.sim, backup)
            it.sim.start_manager(it.transcript)
            await until(it.stage, f"is {OLD}, lower than {NEXT}, which the cluster runs")
            assert any(
                "RecordRunning" in line and "the record is older" in line for line in it.transcript.lines
            )
            assert await watch_versions(it, minutes=10) == {NEXT}
            assert await starts_of(it) == before
            await set_version(it, NEXT)
            await until_version(it, NEXT)
            await it.sim.advance(minutes=5)
            assert await starts_of(it) == before

    run_driven(story())


@pytest.mark.long
def test_another_configuration_after_a_backup_was_put_back_installs_no_former_release() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 1)) as it:
            await it.stage.wait_for_settled()
            backup = back_up(it.sim)
            await set_version(it, NEXT)
            await until_version(it, NEXT)
            await put_back(it.sim, backup)
            it.sim.start_manager(it.transcript)
            await set_kubelet_args(it, "max-pods=99")
            assert await watch_versions(it, minutes=20) == {NEXT}
            for node in await it.stage.list_nodes():
                assert "max-pods=99" in annotations_of(node)["rke2.io/node-args"]

    run_driven(story())


@pytest.mark.long
@pytest.mark.parametrize("step", ["Drain", "Apply"])
def test_a_backup_of_the_middle_of_a_turn_leads_to_no_second_upgrade(step: str) -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            drained = {"workerDrainOptions": {"enabled": True, "timeout": 600}}
            change = {"spec": {"rkeConfig": {"upgradeStrategy": drained}}}
            await it.sim.management_client.patch(it.ref, change)
            await run_shop(it)
            await set_version(it, NEXT)
            await until_turn_of(it, "workers", "Drain")
            backup = back_up(it.sim)
            await (await it.stage.guest_client()).delete(BUDGET.ref("shop", "default"))
            await until_turn_of(it, "workers", "Apply")
            backup = backup if step == "Drain" else back_up(it.sim)
            await until_version(it, NEXT)
            before = await starts_of(it)
            await put_back(it.sim, backup)
            it.sim.start_manager(it.transcript)
            await until_version(it, NEXT)
            await it.sim.advance(minutes=5)
            assert await starts_of(it) == before
            assert not any(nested(node, "spec", "unschedulable") for node in await it.stage.list_nodes())

    run_driven(story())


@pytest.mark.long
@pytest.mark.parametrize("asked_in_backup", [True, False])
def test_a_backup_of_before_a_restore_leads_to_no_second_restore(asked_in_backup: bool) -> None:
    """The cluster has lived on since: what was written to it would be lost."""

    async def story() -> None:
        async with with_snapshots(servers=1, workers=0) as it:
            (server,) = await servers_of(it)
            request = {"name": name_of(await on_disk_of(it, server)), "generation": 1}
            await it.sim.kill_manager()
            if asked_in_backup:
                await ask(it, etcdSnapshotRestore=request)
            backup = back_up(it.sim)
            it.sim.start_manager(it.transcript)
            await ask(it, etcdSnapshotRestore=request)
            await restored(it, "Restore", "Finished")
            await it.stage.wait_for_settled()
            guest = await it.stage.guest_client()
            await guest.create(CONFIG_MAP, new_object(CONFIG_MAP, "since", "default"))

            await put_back(it.sim, backup)
            it.sim.start_manager(it.transcript)
            await ask(it, etcdSnapshotRestore=request)  # a manifest that is applied again
            status = await restored(it, "Restore", "Finished")
            assert "was restored by generation 1 before" in status["etcdSnapshotRestoreRun"]["message"]
            await it.sim.advance(minutes=5)
            guest = await it.stage.guest_client()
            assert "since" in {name_of(raw) for raw in await guest.list(CONFIG_MAP, "default")}

            await ask(it, etcdSnapshotRestore={**request, "generation": 2})
            await restored(it, "Restore", "Finished", 2)
            guest = await it.stage.guest_client()
            assert "since" not in {name_of(raw) for raw in await guest.list(CONFIG_MAP, "default")}

    run_driven(story())


async def until_without_turns(story: Story) -> None:
    end = story.sim.clock.now() + timedelta(hours=1)
    while any(nested(raw, "status", "update") for raw in await machines_of(story.sim, story.ref)):
        assert story.sim.clock.now() < end
        await story.sim.advance(seconds=1)
        for node in await story.stage.list_nodes():
            vm = await story.sim.harvester_client.get(VM.ref(name_of(node), "default"))
            is_stopped = nested(vm, "status", "printableStatus") in ("Stopped", "Stopping")
            assert not is_stopped or nested(node, "spec", "unschedulable"), "it was not drained"
    await story.stage.wait_for_settled()


@pytest.mark.long
def test_a_backup_of_a_vm_that_stops_drains_its_node_again() -> None:
    async def story() -> None:
        async with a_story(a_pool("servers", 1, SERVERS), a_pool("workers", 2)) as it:
            await it.stage.wait_for_settled()
            await set_options(it, "workers", memorySize="8")
            await until_turn_of(it, "workers", "Stop")
            backup = back_up(it.sim)
            await until_edited(it, "workers", "memorySize", "8")
            after = await sizes_of(it, "workers")
            await put_back(it.sim, backup)
            it.sim.start_manager(it.transcript)
            await until_without_turns(it)
            assert await sizes_of(it, "workers") == after
            assert not any(nested(node, "spec", "unschedulable") for node in await it.stage.list_nodes())

    run_driven(story())
