from __future__ import annotations

import asyncio
from typing import Any

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.clusters.mutation_cache import MutationCache
from windrow.core.rng import Rng
from windrow.kubernetes.objects import name_of, new_object, resource_version_of
from windrow.kubernetes.resources import CONFIG_MAP
from windrow.testing.clock import LoopClock, run_driven

REF = CONFIG_MAP.ref("a", "default")


class World:
    def __init__(self) -> None:
        clock = LoopClock()
        self.api = ApiServer(MemoryStore(), clock, Rng(1))
        self.client = Client(self.api.local())
        self.cache: Informer[Any] = Informer(self.api.local(), CONFIG_MAP, "default", dict, clock, Rng(1))
        self.ledger: MutationCache[Any] = MutationCache(self.cache, dict, resource_version_of)

    async def follow(self) -> None:
        """Let the cache catch up, and the ledger hear of it."""
        running = asyncio.ensure_future(self.cache.run())
        await self.cache.wait_for_sync()
        changes = self.cache.changes()
        try:
            async with asyncio.timeout(1):
                async for before, after in changes:
                    self.ledger.on_watch_event(CONFIG_MAP.ref(name_of(after or before), "default"), after)
        except TimeoutError:
            pass
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def make(self, **data: str) -> Any:
        return await self.client.create(CONFIG_MAP, new_object(CONFIG_MAP, "a", "default", data=data))

    def seen(self) -> list[Any]:
        return [raw.get("data") for raw in self.ledger.values() if name_of(raw) == "a"]


def test_what_was_written_is_seen_before_the_cache_knows_it() -> None:
    async def story() -> None:
        world = World()
        world.ledger.mutated(await world.make(x="1"))

        assert world.ledger.get(REF)["data"] == {"x": "1"}
        assert world.seen() == [{"x": "1"}]

    run_driven(story())


def test_what_others_wrote_later_wins_over_what_we_wrote() -> None:
    async def story() -> None:
        world = World()
        world.ledger.mutated(await world.make(x="1"))
        await world.client.patch(REF, {"data": {"x": "2"}})
        await world.follow()

        assert world.ledger.get(REF)["data"] == {"x": "2"}

    run_driven(story())


def test_what_we_wrote_later_wins_over_the_cache() -> None:
    async def story() -> None:
        world = World()
        await world.make(x="1")
        await world.follow()
        world.ledger.mutated(await world.client.patch(REF, {"data": {"x": "2"}}))

        assert world.ledger.get(REF)["data"] == {"x": "2"}

    run_driven(story())


def test_an_object_that_somebody_deleted_is_not_kept_alive_by_our_write() -> None:
    async def story() -> None:
        world = World()
        await world.make(x="1")
        await world.follow()
        world.ledger.mutated(await world.client.patch(REF, {"data": {"x": "2"}}))
        await world.client.delete(REF)
        await world.follow()

        assert world.ledger.get(REF) is None

    run_driven(story())


def test_taking_off_the_last_finalizer_of_a_deleted_object_is_the_end_of_it() -> None:
    async def story() -> None:
        world = World()
        raw = new_object(CONFIG_MAP, "a", "default", finalizers=["example.com/hold"])
        await world.client.create(CONFIG_MAP, raw)
        await world.client.delete(REF)
        await world.follow()
        world.ledger.mutated(await world.client.patch(REF, {"metadata": {"finalizers": None}}))

        assert world.ledger.get(REF) is None
        assert world.seen() == []

    run_driven(story())


def test_after_a_lost_answer_a_new_look_shows_what_came_of_the_write() -> None:
    async def story() -> None:
        world = World()
        await world.make(x="1")  # the answer was lost
        await world.ledger.refresh(world.client, "default", "")

        assert world.seen() == [{"x": "1"}]

    run_driven(story())
