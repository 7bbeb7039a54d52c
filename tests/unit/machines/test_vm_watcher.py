"""The reason why machines are unknown while their VirtualMachines are not watched."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace

from tests.contract.harvester_rig import HarvesterRig, harvester_rig
from tests.contract.test_machines import a_spec, create_running, wait_for_status
from tests.stories.harvester_rig import eventually, is_gone
from tests.support.clock import LoopClock, run_driven
from tests.unit.client.test_informer import Server

from windrow.core.rng import Rng
from windrow.harvester.names import CREATOR
from windrow.harvester.resources import VM
from windrow.kubernetes.errors import Expired
from windrow.machines.harvester.vm_watcher import HostCache, VmWatcher


def test_a_second_list_is_not_told_as_the_first():
    async def whole():
        server, clock = Server(), LoopClock()
        connection = SimpleNamespace(
            transport=server,
            client_config=SimpleNamespace(server="https://harvester"),
            translate_error=lambda error: error,
        )
        hosts = HostCache(server, clock, Rng(1))
        watcher = VmWatcher(connection, "default", hosts, lambda uid, status: None, clock, Rng(1))
        first = watcher.unsynced_reason
        running = asyncio.create_task(watcher.run())
        await asyncio.sleep(1)
        assert watcher.has_synced
        server.down = Expired("too old")
        server.end_watches(Expired("too old"))
        await asyncio.sleep(0.001)
        assert not watcher.has_synced
        again = watcher.unsynced_reason
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return first, again

    first, again = run_driven(whole())

    assert first == "the first list of VirtualMachines from Harvester https://harvester is not done"
    assert again == "VirtualMachines are being listed again from Harvester https://harvester"


# -- over an emulated Harvester

MACHINE = VM.ref("c1-pool1-abcde-fghij", "default")


def play(story: Callable[[HarvesterRig], Awaitable[None]]) -> None:
    async def staged() -> None:
        async with harvester_rig() as rig:
            await story(rig)

    run_driven(staged())


def test_a_vm_that_is_deleted_is_missing_at_once_and_one_that_never_was_after_a_grace() -> None:
    async def story(rig: HarvesterRig) -> None:
        config = await create_running(rig, a_spec())
        now = rig.harvester.clock.base.now
        await rig.delete_vm(MACHINE.name)
        await wait_for_status(rig, "m-1", lambda s: s.state == "deleting")
        await eventually(rig.harvester, MACHINE, is_gone)
        before = now()
        status = await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        assert status.because == "VirtualMachine default/c1-pool1-abcde-fghij not found"
        assert now() - before < timedelta(seconds=1)

        rig.machines.track({**config, "MachineName": "never", "WindrowMachineUID": "m-2"})
        before = now()
        await wait_for_status(rig, "m-2", lambda s: s.presence == "missing")
        assert timedelta(seconds=5) <= now() - before < timedelta(seconds=6)

    play(story)


def test_a_vm_that_lost_the_label_by_which_it_is_watched_is_read_by_itself_from_time_to_time() -> None:
    async def story(rig: HarvesterRig) -> None:
        await create_running(rig, a_spec())
        await rig.line.patch(MACHINE, {"metadata": {"labels": {CREATOR: None}}})
        await rig.harvester.clock.sleep(60)
        status = await wait_for_status(rig, "m-1", lambda s: True)
        assert (status.presence, status.state) == ("present", "running")
        await rig.delete_vm(MACHINE.name)
        before = rig.harvester.clock.base.now()
        await wait_for_status(rig, "m-1", lambda s: s.presence == "missing")
        assert rig.harvester.clock.base.now() - before < timedelta(minutes=2)

    play(story)


def test_a_vm_without_its_owner_annotations_proves_nothing_until_it_has_them_again() -> None:
    async def story(rig: HarvesterRig) -> None:
        await create_running(rig, a_spec())
        await rig.remove_owner_annotations(MACHINE.name)
        await wait_for_status(rig, "m-1", lambda s: s.presence == "unknown")
        await rig.restore_owner_annotations(MACHINE.name)
        await wait_for_status(rig, "m-1", lambda s: s.presence == "present")

    play(story)
