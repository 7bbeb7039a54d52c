"""The history of a store is bounded in time, as etcd's is below a real API server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.controllers.compaction import COMPACTION_INTERVAL, HistoryCompactor
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore, SqliteStore
from windrow.apiserver.storage.port import Compacted, Store
from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CONFIG_MAP


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "db")


def test_history_is_kept_for_five_minutes_and_for_no_more_than_ten(store: Store):
    async def story() -> None:
        clock = LoopClock()
        server = ApiServer(store, clock, Rng(1))
        task = asyncio.create_task(server.run())
        api = server.local()
        await sleep(clock, timedelta(seconds=1))
        before = store.rev
        async with api.watch(CONFIG_MAP, "default") as events:
            await api.create(CONFIG_MAP, new_object(CONFIG_MAP, "a", "default"))

            await sleep(clock, COMPACTION_INTERVAL)
            store.changes("", before).close()
            await sleep(clock, COMPACTION_INTERVAL)

            with pytest.raises(Compacted):
                store.changes("", before)
            assert await api.find(CONFIG_MAP.ref("a", "default"))
            # A watch that runs goes on.
            await api.create(CONFIG_MAP, new_object(CONFIG_MAP, "b", "default"))
            names = [(await anext(events)).object["metadata"]["name"] for _ in range(2)]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert names[-1] == "b"

    run_driven(story())
    store.close()


async def test_each_pass_forgets_what_was_there_at_the_one_before_it(server: ApiServer) -> None:
    client, clock = server.local(), server.context.clock
    compactor = HistoryCompactor(server.store, clock)
    for name in ("a", "b"):
        first = (await client.create(CONFIG_MAP, new_object(CONFIG_MAP, f"{name}-1", "default")))["metadata"]
        again = await compactor.run_once()
        store_rev = server.store.rev
        await client.create(CONFIG_MAP, new_object(CONFIG_MAP, f"{name}-2", "default"))
        server.store.changes("", int(first["resourceVersion"])).close()
        await compactor.run_once()
        with pytest.raises(Compacted):
            server.store.changes("", int(first["resourceVersion"]) - 1)
        server.store.changes("", store_rev).close()

    assert again - clock.now() == timedelta(minutes=5)
