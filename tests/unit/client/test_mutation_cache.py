"""An informer overlaid with our own writes: what is known between the answer to a write and its watch event."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.core.rng import Rng
from windrow.kubernetes.objects import name_of, new_object, resource_version_of
from windrow.kubernetes.resources import CONFIG_MAP

REF = CONFIG_MAP.ref("a", "default")


def version_of(value):
    return value.resource_version if isinstance(value, NameOf) else resource_version_of(value)


class NameOf:
    """A reading that compares the name only."""

    def __init__(self, raw):
        self.name, self.resource_version = name_of(raw), resource_version_of(raw)

    def __eq__(self, other):
        return isinstance(other, NameOf) and self.name == other.name

    __hash__ = None


def team_of(value):
    return None if isinstance(value, NameOf) else value.get("data", {}).get("team")


class Rig:
    """A ConfigMap on a server, and an informer that reads only while `watching`."""

    def __init__(self, ttl=timedelta(minutes=10), read=dict):
        self.clock = LoopClock()
        local = ApiServer(MemoryStore(), self.clock, Rng(1)).local()
        self.client = Client(local)
        self.informer = Informer(local, CONFIG_MAP, "default", read, self.clock, Rng(1), index=team_of)
        self.cache = MutationCache(self.informer, version_of, self.clock, ttl)

    @asynccontextmanager
    async def watching(self):
        running = asyncio.ensure_future(self.informer.run())
        await asyncio.sleep(1)
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def catch_up(self):
        async with self.watching():
            pass

    async def create(self, name="a", x="1", **metadata):
        return await self.client.create(
            CONFIG_MAP, new_object(CONFIG_MAP, name, "default", data={"x": x}, **metadata)
        )

    async def patch(self, x):
        return await self.client.patch(REF, {"data": {"x": x}})

    @property
    def x(self):
        """What the cache has of `a`; both ways of asking agree."""
        found = self.cache.get(REF)
        assert [found] * (found is not None) == [raw for raw in self.cache.values() if name_of(raw) == "a"]
        return None if found is None else found["data"]["x"]


@pytest.fixture
def story():
    return run_driven


def test_a_created_object_is_there_before_its_watch_event(story):
    async def run():
        rig = Rig()
        rig.cache.mutated(await rig.create())
        assert rig.x == "1"

    story(run())


def test_a_later_write_of_ours_wins_over_the_informer(story):
    async def run():
        rig = Rig()
        await rig.create()
        await rig.catch_up()
        rig.cache.mutated(await rig.patch("2"))
        rig.cache.mutated(await rig.patch("3"))
        assert rig.x == "3"

    story(run())


def test_a_reading_that_is_equal_has_the_newest_resource_version(story):
    """A change of what is not read: a deletion at the version of before would be refused for ever."""

    async def run():
        rig = Rig(read=NameOf)
        async with rig.watching():
            await rig.create()
            changed = await rig.patch("2")
            await asyncio.sleep(1)
            return rig.cache.get(REF).resource_version == resource_version_of(changed)

    assert story(run())


def test_a_later_write_of_another_client_wins_over_ours(story):
    async def run():
        rig = Rig()
        rig.cache.mutated(await rig.create())
        await rig.patch("2")
        await rig.catch_up()
        assert rig.x == "2"

    story(run())


def test_an_object_that_another_client_deleted_is_not_kept_by_our_write(story):
    async def run():
        rig = Rig()
        await rig.create()
        await rig.catch_up()
        rig.cache.mutated(await rig.patch("2"))
        await rig.client.delete(REF)
        await rig.catch_up()
        assert rig.x is None

    story(run())


def test_an_object_that_came_and_went_between_two_lists_is_gone(story):
    async def run():
        rig = Rig()
        await rig.catch_up()
        rig.cache.mutated(await rig.create())
        await rig.client.delete(REF)
        await rig.create("b")  # so that the list is later than what we wrote
        await rig.catch_up()
        assert rig.x is None

    story(run())


def test_an_answer_that_comes_after_the_watch_event_changes_nothing(story):
    async def run():
        rig = Rig()
        async with rig.watching():
            answer = await rig.create()
            await rig.client.delete(REF)
            await asyncio.sleep(1)
            rig.cache.mutated(answer)
            assert rig.x is None
            assert rig.cache.expires(REF) is None

    story(run())


def test_a_deletion_counts_until_the_informer_has_it(story):
    async def run():
        rig = Rig()
        await rig.create()
        await rig.catch_up()
        [raw] = rig.cache.values()
        await rig.client.delete(REF)
        rig.cache.deleted(REF, resource_version_of(raw))
        assert rig.x is None
        await rig.catch_up()
        assert rig.x is None
        await rig.create(x="9")
        await rig.catch_up()
        assert rig.x == "9"

    story(run())


def test_a_creation_and_its_deletion_leave_nothing(story):
    async def run():
        rig = Rig()
        raw = await rig.create()
        rig.cache.mutated(raw)
        rig.cache.deleted(REF, resource_version_of(raw))
        assert rig.x is None

    story(run())


def test_the_removal_of_the_last_finalizer_is_the_deletion(story):
    async def run():
        rig = Rig()
        await rig.create(finalizers=["example.com/hold"])
        await rig.client.delete(REF)
        await rig.catch_up()
        rig.cache.mutated(await rig.client.patch(REF, {"metadata": {"finalizers": None}}))
        assert rig.x is None

    story(run())


def test_an_overlay_that_no_watch_confirms_expires(story):
    async def run():
        rig = Rig(ttl=timedelta(seconds=5))
        raw = await rig.create()
        await rig.client.delete(REF)
        rig.cache.mutated(raw)
        assert rig.x == "1"
        assert rig.cache.expires(REF) == rig.clock.now() + timedelta(seconds=5)
        await asyncio.sleep(5)
        assert (rig.x, rig.cache.expires(REF)) == (None, None)

    story(run())


def test_versions_that_are_not_numbers_leave_the_decision_to_the_informer(story):
    async def run():
        rig = Rig()
        await rig.create()
        await rig.catch_up()
        raw = await rig.patch("2")
        raw["metadata"]["resourceVersion"] = "x-7"
        rig.cache.mutated(raw)
        assert rig.x == "1"

    story(run())


def test_after_a_lost_answer_a_list_shows_what_came_of_the_write(story):
    async def run():
        rig = Rig()
        await rig.create()  # the answer was lost
        await rig.cache.refresh(rig.client, "default", "")
        assert rig.x == "1"

    story(run())


def test_overlays_that_the_informer_has_confirmed_are_not_kept(story):
    async def run():
        rig = Rig()
        for number in range(20):
            rig.cache.mutated(await rig.create(f"m{number}"))
        await rig.catch_up()
        rig.cache.mutated(await rig.create())
        assert [name_of(raw) for raw in rig.cache.values()].count("a") == 1
        assert all(rig.cache.expires(CONFIG_MAP.ref(f"m{number}", "default")) is None for number in range(20))

    story(run())


def test_an_object_is_found_by_its_index_before_and_after_the_informer_knows_it() -> None:
    async def story() -> None:
        rig = Rig()

        def names(team: str | None) -> list[str]:
            return [name_of(raw) for raw in rig.cache.by_index(team)]

        for name, team in (("a", "red"), ("b", "blue"), ("c", "red")):
            raw = new_object(CONFIG_MAP, name, "default")
            rig.cache.mutated(await rig.client.create(CONFIG_MAP, {**raw, "data": {"team": team}}))
        assert (names("red"), names("blue"), names("green"), names(None)) == (["a", "c"], ["b"], [], [])
        await rig.catch_up()
        assert (names("red"), names("blue")) == (["a", "c"], ["b"])
        # Its own write is ahead of the informer, which still has it under the index that it had.
        rig.cache.mutated(await rig.client.patch(REF, {"data": {"team": "blue"}}))
        assert (names("red"), names("blue")) == (["c"], ["b", "a"])
        await rig.catch_up()
        assert (names("red"), names("blue")) == (["c"], ["b", "a"])
        await rig.client.delete(REF)
        await rig.client.delete(CONFIG_MAP.ref("c", "default"))
        await rig.catch_up()
        assert (names("red"), names("blue")) == ([], ["b"])

    run_driven(story())
