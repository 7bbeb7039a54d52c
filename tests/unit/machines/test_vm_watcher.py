"""The reason why machines are unknown while their VirtualMachines are not watched."""

import asyncio
from types import SimpleNamespace

from tests.support.clock import LoopClock, run_driven
from tests.unit.client.test_informer import Server

from windrow.core.rng import Rng
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
