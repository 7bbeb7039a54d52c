"""Open pages are told of changes: at once, seldom, by one watch for all, and again after the API was away. On a driven clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import run_driven
from tests.unit.dashboard.conftest import Dashboard, a_cluster, a_dashboard, add_cluster, add_tenant

from windrow.app.access.management import ApiUser
from windrow.clusters.api.kinds import CLUSTER
from windrow.dashboard import changes
from windrow.dashboard.changes import Away, Changed, TooManyPages
from windrow.kubernetes.errors import Unreachable


def user_of(
    dashboard: Dashboard, name: str = "admin", groups: tuple[str, ...] = ("system:masters",)
) -> ApiUser:
    return ApiUser(name, groups, dashboard.api.local(name, groups))


SCOPES = [(CLUSTER, "")]


@asynccontextmanager
async def listening(dashboard: Dashboard, user: ApiUser) -> AsyncIterator[list[Any]]:
    """What a page that listens is told."""
    told: list[Any] = []

    async def listen() -> None:
        async for news in dashboard.feed.listen(user, SCOPES):
            told.append(news)

    task = asyncio.create_task(listen())
    await asyncio.sleep(5)
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.wait({task})


def test_fifty_pages_of_one_user_share_one_watch_which_ends_with_the_last():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            user = user_of(dashboard)
            streams = [dashboard.feed.listen(user, SCOPES) for _ in range(50)]
            waiting = [asyncio.ensure_future(anext(one)) for one in streams]
            await asyncio.sleep(1)
            assert dashboard.feed.watches == 1

            await add_cluster(dashboard.api, a_cluster("prod"))
            assert [await one for one in waiting] == [Changed()] * 50

            for one in streams:
                await one.aclose()
            assert dashboard.feed.watches == 0

    run_driven(story())


def test_a_thousand_events_a_second_are_four_at_most():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            await add_cluster(dashboard.api, a_cluster("prod"))
            async with listening(dashboard, user_of(dashboard)) as told:
                for number in range(1000):
                    change = {"metadata": {"annotations": {"n": str(number)}}}
                    await dashboard.api.local().patch(CLUSTER.ref("prod", "fleet-default"), change)
                    await asyncio.sleep(0.001)
                await asyncio.sleep(1)

        assert 4 <= len(told) <= 6

    run_driven(story())


def test_nothing_is_sent_while_nothing_changes():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            await add_cluster(dashboard.api, a_cluster("prod"))
            async with listening(dashboard, user_of(dashboard)) as told:
                await asyncio.sleep(3600)
                assert told == []
            await asyncio.sleep(1)
            assert not dashboard.feed._tasks

    run_driven(story())


def test_a_page_is_told_that_the_api_is_away_and_that_it_is_back():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            away = [Unreachable("the store cannot be read")]
            user = user_of(dashboard)
            send = user.transport.send

            async def fail(request: Any) -> Any:
                if away:
                    raise away[0]
                return await send(request)

            user.transport.send = fail  # type: ignore[method-assign]
            async with listening(dashboard, user) as told:
                assert told[0] == Away("the store cannot be read")
                away.clear()
                await asyncio.sleep(60)
                assert told[-1] == Changed()

                await add_cluster(dashboard.api, a_cluster("prod"))
                await asyncio.sleep(1)
                assert told[-1] == Changed()

    run_driven(story())


def test_an_api_that_stays_away_is_asked_ever_more_seldom():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            user, asked = user_of(dashboard), []

            async def fail(request: Any) -> Any:
                asked.append(request)
                raise Unreachable("away")

            user.transport.send = fail  # type: ignore[method-assign]
            async with listening(dashboard, user):
                await asyncio.sleep(600)

        assert 15 < len(asked) < 35

    run_driven(story())


def test_a_defect_of_a_watch_ends_neither_pages_nor_the_manager():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            user, send, broken = user_of(dashboard), dashboard.api.send_as, [RuntimeError("a defect")]

            async def fail(request: Any) -> Any:
                if broken:
                    raise broken.pop()
                return await send(request, user.transport.user)  # type: ignore[attr-defined]

            user.transport.send = fail  # type: ignore[method-assign]
            async with listening(dashboard, user) as told:
                assert told == [Away("the watch failed; the log of windrow serve says why"), Changed()]

    run_driven(story())


def test_who_may_not_watch_is_told_so():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            await add_tenant(dashboard.api, "team-a", user="ann")
            async with listening(dashboard, user_of(dashboard, "ann", ())) as told:
                assert isinstance(told[0], Away)
                assert 'User "ann" cannot list resource "clusters"' in told[0].message

    run_driven(story())


def test_users_with_other_rights_share_no_watch():
    async def story() -> None:
        async with (
            a_dashboard() as dashboard,
            listening(dashboard, user_of(dashboard, "ann", ())),
            listening(dashboard, user_of(dashboard, "ann", ("system:masters",))),
        ):
            assert dashboard.feed.watches == 2

    run_driven(story())


def test_one_user_cannot_take_the_pages_of_all():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            ann, bob = user_of(dashboard, "ann"), user_of(dashboard, "bob")
            mine = [dashboard.feed.listen(ann, SCOPES) for _ in range(changes.MAX_LISTENERS_PER_USER)]
            tasks = [asyncio.ensure_future(anext(one)) for one in mine]
            await asyncio.sleep(0)

            with pytest.raises(TooManyPages):
                await anext(dashboard.feed.listen(ann, SCOPES))
            other = asyncio.ensure_future(anext(dashboard.feed.listen(bob, SCOPES)))
            await asyncio.sleep(1)
            assert not other.done()

            for task in (*tasks, other):
                task.cancel()
            await asyncio.wait({*tasks, other})
            assert (dashboard.feed.watches, dashboard.feed._listening) == (0, {})

    run_driven(story())


def test_a_stream_ends_when_its_user_signs_out():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            browser = await dashboard.signed_in()
            events = await browser.follow("/live/overview?namespace=")
            assert b"retry" in await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(1)
            await add_cluster(dashboard.api, a_cluster("prod"))
            assert await waiting == b"event: changed\ndata: {}\n\n"

            await browser.post("/sign-out", {"csrf": await browser.csrf()})
            await add_cluster(dashboard.api, a_cluster("other"))
            with pytest.raises(StopAsyncIteration):
                await anext(events)

    run_driven(story())


def test_a_message_of_the_api_cannot_end_an_event():
    """A line feed in it would begin another one."""

    async def story() -> None:
        async with a_dashboard() as dashboard:
            browser = await dashboard.signed_in("ann", ("x",))
            events = await browser.follow("/live/overview?namespace=")
            await anext(events)
            told = (await anext(events)).decode()

        assert told.startswith("event: away\ndata: {")
        assert told.count("\n") == 3

    run_driven(story())


def test_a_stream_ends_after_a_while_so_that_its_session_is_asked_for_again():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            events = await (await dashboard.signed_in()).follow("/live/overview?namespace=")
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(240)
            await add_cluster(dashboard.api, a_cluster("a"))
            assert b"changed" in await waiting
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(61)
            await add_cluster(dashboard.api, a_cluster("b"))
            assert b"changed" in await waiting
            with pytest.raises(StopAsyncIteration):
                await anext(events)

    run_driven(story())


def test_a_page_too_many_is_told_so():
    async def story() -> None:
        async with a_dashboard() as dashboard:
            browser = await dashboard.signed_in()
            streams = [
                await browser.follow("/live/activity") for _ in range(changes.MAX_LISTENERS_PER_USER + 1)
            ]
            for stream in streams:
                await anext(stream)
            waiting = [asyncio.ensure_future(anext(stream)) for stream in streams[:-1]]
            await asyncio.sleep(1)
            assert b"50 pages of admin are open; close some" in await anext(streams[-1])
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    run_driven(story())


async def test_the_more_pages_and_the_dearer_each_is_the_more_seldom_they_are_told(dashboard: Dashboard):
    """50 pages of a tenth of a second each would take five processors, four times a second."""
    feed = dashboard.feed
    for _ in range(100):
        feed.record_cost(timedelta(seconds=0.1))
    feed._listening = {"admin": 1}
    assert timedelta(seconds=0.49) < feed.interval < timedelta(seconds=0.51)
    feed._listening = {"admin": 20, "bob": 10}
    assert timedelta(seconds=14.9) < feed.interval < timedelta(seconds=15.1)
    feed._listening = {"admin": 400}
    assert feed.interval == changes.LONGEST_INTERVAL
    for _ in range(100):
        feed.record_cost(timedelta(milliseconds=1))
    feed._listening = {"admin": 10}
    assert feed.interval == changes.LEAST_INTERVAL


async def test_what_an_open_page_costs_is_measured(dashboard: Dashboard):
    browser, send = await dashboard.signed_in(), dashboard.api.send_as

    async def slowly(request: Any, user: Any) -> Any:
        dashboard.clock.advance(timedelta(seconds=8))
        return await send(request, user)

    dashboard.api.send_as = slowly  # type: ignore[method-assign]
    await browser.get("/clusters")
    dashboard.feed._listening = {"admin": 1}
    assert dashboard.feed.interval == changes.LEAST_INTERVAL  # the page itself is made once

    await browser.get("/clusters", hx_request="true")
    assert timedelta(seconds=5) <= dashboard.feed.interval < timedelta(seconds=6)
