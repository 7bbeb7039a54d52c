"""Watches (reference/05 §7.9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.rng import Rng
from windrow.kubernetes.errors import BadRequest, Invalid, NotFound
from windrow.kubernetes.requests import Request, WatchEvent
from windrow.kubernetes.resources import CONFIG_MAP

MAPS = "/api/v1/namespaces/default/configmaps"


def a_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def watching(path: str = MAPS, **query: str) -> Request:
    return Request("GET", path, (("watch", "true"), *query.items()))


async def take(events: AsyncIterator[WatchEvent], count: int) -> list[tuple[str, str]]:
    found = []
    async with asyncio.timeout(5):
        async for event in events:
            found.append((event.type, event.object["metadata"].get("name", "")))
            if len(found) == count:
                break
    return found


async def test_a_watch_from_nowhere_starts_with_what_is_there(server: ApiServer) -> None:
    api = server.local()
    await api.create(CONFIG_MAP, a_map("a"), "default")

    async with api.stream(watching()) as events:
        await api.create(CONFIG_MAP, a_map("b"), "default")
        await api.delete(CONFIG_MAP.ref("a", "default"))

        assert await take(events, 3) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_a_watch_from_a_version_gets_every_later_event(server: ApiServer) -> None:
    api = server.local()
    made = await api.create(CONFIG_MAP, a_map("a"), "default")
    await api.patch(CONFIG_MAP.ref("a", "default"), {"data": {"x": "y"}})
    await api.create(CONFIG_MAP, a_map("b"), "default")

    async with api.stream(watching(resourceVersion=made["metadata"]["resourceVersion"])) as events:
        assert await take(events, 2) == [("MODIFIED", "a"), ("ADDED", "b")]


async def test_a_deletion_carries_its_own_version(server: ApiServer) -> None:
    api = server.local()
    made = await api.create(CONFIG_MAP, a_map("a"), "default")
    async with api.stream(watching(resourceVersion=made["metadata"]["resourceVersion"])) as events:
        await api.delete(CONFIG_MAP.ref("a", "default"))
        event = await anext(events)

    assert int(event.object["metadata"]["resourceVersion"]) == server.store.rev


async def test_leaving_a_selection_is_a_deletion_and_entering_an_addition(server: ApiServer) -> None:
    api = server.local()
    ref = CONFIG_MAP.ref("a", "default")
    await api.create(CONFIG_MAP, a_map("a", on="yes"), "default")
    async with api.stream(watching(labelSelector="on=yes")) as events:
        await api.patch(ref, {"metadata": {"labels": {"on": "no"}}})
        await api.patch(ref, {"data": {"unseen": "x"}})
        await api.patch(ref, {"metadata": {"labels": {"on": "yes"}}})

        assert await take(events, 3) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_removing_the_last_finalizer_is_one_deleted_event(server: ApiServer) -> None:
    api = server.local()
    ref = CONFIG_MAP.ref("a", "default")
    await api.create(CONFIG_MAP, {"metadata": {"name": "a", "finalizers": ["x.io/y"]}}, "default")
    async with api.stream(watching()) as events:
        await api.delete(ref)
        answer = await api.patch(ref, {"metadata": {"finalizers": None}})

        assert await take(events, 3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert answer["metadata"]["name"] == "a"


async def test_a_version_that_is_too_old_is_an_error_event_not_a_refusal(
    a_server: Callable[..., ApiServer],
) -> None:
    store = MemoryStore()
    api = a_server(store=store).local()
    await api.create(CONFIG_MAP, a_map("a"), "default")
    await api.create(CONFIG_MAP, a_map("b"), "default")
    store.compact(store.rev)

    async with api.stream(watching(resourceVersion="1")) as stream:
        events = [event async for event in stream]

    assert [(event.type, event.object["code"], event.object["reason"]) for event in events] == [
        ("ERROR", 410, "Expired")
    ]
    assert events[0].object["message"] == f"too old resource version: 1 ({store.rev})"


async def test_a_slow_reader_is_cut_off_and_may_resume(a_server: Callable[..., ApiServer]) -> None:
    api = a_server(store=MemoryStore(backlog=2)).local()
    async with api.stream(watching()) as events:
        for name in "abcd":
            await api.create(CONFIG_MAP, a_map(name), "default")

        assert [event async for event in events] == []


async def test_initial_events_end_with_a_marked_bookmark(server: ApiServer) -> None:
    api = server.local()
    await api.create(CONFIG_MAP, a_map("a"), "default")
    asked = watching(
        sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    )

    async with api.stream(asked) as stream:
        events = [await anext(stream), await anext(stream)]

    assert [event.type for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1].object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert events[1].object["metadata"]["resourceVersion"] == events[0].object["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"sendInitialEvents": "true"}, Invalid),
        ({"resourceVersionMatch": "NotOlderThan"}, Invalid),
        ({"labelSelector": "a b c"}, BadRequest),
        ({"resourceVersion": "x"}, BadRequest),
    ],
)
async def test_a_refusal_is_raised_on_entry(
    server: ApiServer, query: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        async with server.local().stream(watching(**query)):
            pass


async def test_what_is_not_served_cannot_be_watched(server: ApiServer) -> None:
    with pytest.raises(NotFound):
        async with server.local().stream(watching("/apis/no.where/v1/things")):
            pass


async def test_two_watchers_share_no_object(server: ApiServer) -> None:
    api = server.local()
    async with api.stream(watching()) as first, api.stream(watching()) as second:
        await api.create(CONFIG_MAP, a_map("a", x="y"), "default")
        mine, theirs = await anext(first), await anext(second)
        mine.object["metadata"]["labels"]["x"] = "changed"

    assert theirs.object["metadata"]["labels"] == {"x": "y"}


def test_bookmarks_come_every_minute_until_the_time_is_over() -> None:
    async def story() -> list[tuple[float, str]]:
        clock = LoopClock()
        start = clock.now()
        api = ApiServer(MemoryStore(), clock, Rng(1)).local()
        asked = watching(allowWatchBookmarks="true", timeoutSeconds="150")
        found = []
        async with api.stream(asked) as events:
            async for event in events:
                found.append(((clock.now() - start).total_seconds(), event.type))
        return found

    assert run_driven(story()) == [(60.0, "BOOKMARK"), (120.0, "BOOKMARK"), (150.0, "BOOKMARK")]


def test_a_bookmark_never_runs_ahead_of_events_not_yet_read() -> None:
    async def story() -> tuple[int, int]:
        clock = LoopClock()
        api = ApiServer(MemoryStore(), clock, Rng(1)).local()
        async with api.stream(watching(allowWatchBookmarks="true", timeoutSeconds="90")) as events:
            await asyncio.sleep(61)  # a bookmark is due, and unread
            made = await api.create(CONFIG_MAP, a_map("a"), "default")
            first = await anext(events)
            return int(first.object["metadata"]["resourceVersion"]), int(made["metadata"]["resourceVersion"])

    bookmarked, made = run_driven(story())
    assert bookmarked < made


def test_without_the_flag_no_bookmark_is_sent() -> None:
    async def story() -> list[WatchEvent]:
        api = ApiServer(MemoryStore(), LoopClock(), Rng(1)).local()
        async with api.stream(watching(timeoutSeconds="600")) as events:
            return [event async for event in events]

    assert run_driven(story()) == []


async def test_a_table_watch_sends_one_row_each_and_columns_once(server: ApiServer) -> None:
    api = server.local()
    accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
    asked = Request("GET", MAPS, (("watch", "true"),), accept=accept)
    await api.create(CONFIG_MAP, a_map("a"), "default")
    async with api.stream(asked) as events:
        await api.create(CONFIG_MAP, a_map("b"), "default")
        tables = [(await anext(events)).object for _ in range(2)]

    assert [table["kind"] for table in tables] == ["Table", "Table"]
    assert [table["rows"][0]["cells"] for table in tables] == [["a", 0, "0s"], ["b", 0, "0s"]]
    assert tables[0]["columnDefinitions"]
    assert not tables[1]["columnDefinitions"]
