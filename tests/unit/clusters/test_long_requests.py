"""Requests that go on beside the reconciles: one of a name at a time, and the next reconcile once one is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from windrow.clusters.context import StalePlan
from windrow.clusters.execute.servers.requests import LongRequests
from windrow.core.errors import UserError


class Site:
    def __init__(self) -> None:
        self.under_way: dict[str, set[str]] = {}
        self.finished: list[str] = []
        self.requests = LongRequests(self.under_way, self.on_finished)

    def on_finished(self, uid: str) -> None:
        assert "a" not in self.under_way.get(uid, ())  # or the reconcile that follows would find it there
        self.finished.append(uid)


def on_a_site(story: Callable[[Site], Awaitable[None]]) -> Site:
    site = Site()

    async def run() -> None:
        owner = asyncio.create_task(site.requests.run())
        await asyncio.sleep(0)
        await story(site)
        owner.cancel()
        await asyncio.wait([owner])

    asyncio.run(run())
    return site


def test_one_of_a_name_is_begun_at_a_time_and_its_end_brings_the_next_reconcile() -> None:
    async def story(site: Site) -> None:
        begun, end = [], asyncio.Event()

        async def work() -> None:
            begun.append("a")
            await end.wait()

        for _ in range(2):
            site.requests.begin("uid", "a", work)
        site.requests.begin("other", "a", work)
        await asyncio.sleep(0)
        assert begun == ["a", "a"]
        assert site.under_way == {"uid": {"a"}, "other": {"a"}}
        assert site.finished == []
        end.set()
        await site.requests.wait()
        assert (sorted(site.finished), site.under_way) == (["other", "uid"], {})

    on_a_site(story)


@pytest.mark.parametrize("error", [StalePlan(), UserError("no bucket", "name one"), RuntimeError("a defect")])
def test_one_that_fails_ends_no_other(error: Exception) -> None:
    async def story(site: Site) -> None:
        async def fail() -> None:
            raise error

        site.requests.begin("uid", "a", fail)
        await site.requests.wait()
        assert site.finished == ["uid"]
        site.requests.begin("uid", "b", fail)
        await site.requests.wait()
        assert site.finished == ["uid", "uid"]

    on_a_site(story)


def test_the_end_of_the_manager_cancels_them_and_none_is_begun_then() -> None:
    ended = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("a")

    async def story(site: Site) -> None:
        site.requests.begin("uid", "a", wait)
        await asyncio.sleep(0)

    site = on_a_site(story)
    assert (ended, site.finished, site.under_way) == (["a"], [], {})
    with pytest.raises(StalePlan):
        site.requests.begin("uid", "a", wait)
