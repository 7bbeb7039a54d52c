from __future__ import annotations

import asyncio

from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.cli.connect import Connection
from windrow.cli.wait import watch_until
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, crds
from windrow.core.rng import Rng
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import new_object

ORCHARD = new_object(CLUSTER, "orchard", "default", spec={})


def a_manager() -> Connection:
    clock = LoopClock()
    api = ApiServer(MemoryStore(), clock, Rng(1))
    for crd in crds():
        api.install_crd(crd)
    return Connection(Client(api.local()), ClientConfig(""), "default", clock)


def test_a_look_is_taken_again_after_each_change_and_not_in_between():
    async def story() -> tuple[int, float]:
        manager, looks = a_manager(), 0

        async def look() -> bool:
            nonlocal looks
            looks += 1
            return bool(await manager.client.list(CLUSTER))

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch_until(look, manager))
            await asyncio.sleep(60)
            await manager.client.create(CLUSTER, ORCHARD)
            changed = asyncio.get_running_loop().time()
            await watching
            return looks, asyncio.get_running_loop().time() - changed

    looks, took = run_driven(story())

    assert looks <= 4  # at once, when both watches stand, and after the change
    assert took < 1


def test_with_a_beat_it_looks_also_when_nothing_changes():
    async def story() -> float:
        manager, looks = a_manager(), 0

        async def look() -> bool:
            nonlocal looks
            looks += 1
            return looks == 20

        await watch_until(look, manager, interval_s=1.0)
        return asyncio.get_running_loop().time()

    assert 15 < run_driven(story()) < 30


def test_a_server_that_goes_away_for_a_while_is_waited_for():
    async def story() -> int:
        manager, looks = a_manager(), 0

        async def look() -> bool:
            nonlocal looks
            looks += 1
            if looks == 2:
                raise Unreachable("gone for a moment")
            return looks == 3

        await watch_until(look, manager, interval_s=1.0)
        return looks

    assert run_driven(story()) == 3
