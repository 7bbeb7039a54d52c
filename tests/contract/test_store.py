"""One suite for every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windrow.apiserver.storage import MemoryStore, SqliteStore
from windrow.apiserver.storage.port import Change, Compacted, Overflow, RevisionMismatch, Store

Open = Callable[..., Store]


def memory(path: Path) -> Open:
    return lambda **options: MemoryStore(**options)


def sqlite(path: Path) -> Open:
    return lambda **options: SqliteStore(path / "store.db", **options)


STORES = {"memory": memory, "sqlite": sqlite}


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    opened: list[Store] = []
    make = STORES[request.param](tmp_path)

    def open_one(**options: int) -> Store:
        opened.append(make(**options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


def thing(name: str, **rest: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name}, **rest}


def key(name: str, namespace: str = "ns") -> str:
    return f"group/things/{namespace}/{name}"


async def read(store: Store, prefix: str, after: int, count: int) -> list[Change]:
    feed = store.changes(prefix, after)
    try:
        found = [await asyncio.wait_for(feed.next(), 5) for _ in range(count)]
        return [one for one in found if one is not None]
    finally:
        feed.close()


async def test_every_commit_takes_the_next_revision_of_one_counter(open_store: Open) -> None:
    store = open_store()

    first = await store.commit(key("a"), thing("a"), None)
    second = await store.commit("other/kinds/x", thing("x"), None)

    assert (first.rev, second.rev, store.rev) == (1, 2, 2)
    assert first.raw["metadata"]["resourceVersion"] == "1"


async def test_a_create_of_what_is_there_is_stale(open_store: Open) -> None:
    store = open_store()
    await store.commit(key("a"), thing("a"), None)

    with pytest.raises(RevisionMismatch) as raised:
        await store.commit(key("a"), thing("a"), None)

    assert raised.value.current is not None
    assert raised.value.current.rev == store.rev == 1


async def test_a_write_that_names_an_old_revision_changes_nothing(open_store: Open) -> None:
    store = open_store()
    old = await store.commit(key("a"), thing("a", x="1"), None)
    await store.commit(key("a"), thing("a", x="2"), old.rev)

    with pytest.raises(RevisionMismatch):
        await store.commit(key("a"), thing("a", x="3"), old.rev)

    found = await store.find(key("a"))
    assert found is not None
    assert found.raw["x"] == "2"


async def test_removing_what_is_not_there_is_stale(open_store: Open) -> None:
    with pytest.raises(RevisionMismatch):
        await open_store().commit(key("a"), None, None)


async def test_a_range_is_in_key_order_and_keeps_to_its_prefix(open_store: Open) -> None:
    store = open_store()
    for name, namespace in (("b", "ns"), ("a", "ns"), ("c", "other"), ("d", "ns2")):
        await store.commit(key(name, namespace), thing(name), None)

    page = await store.range("group/things/ns/")
    everywhere = await store.range("group/things/")

    assert [entry.key for entry in page.entries] == [key("a"), key("b")]
    assert len(everywhere.entries) == 4


async def test_a_limited_range_says_how_many_remain_and_goes_on_from_a_key(open_store: Open) -> None:
    store = open_store()
    for name in "abcde":
        await store.commit(key(name), thing(name), None)

    first = await store.range("group/things/", limit=2)
    rest = await store.range("group/things/", start=first.entries[-1].key + "\0")

    assert ([entry.key[-1] for entry in first.entries], first.remaining) == (["a", "b"], 3)
    assert [entry.key[-1] for entry in rest.entries] == ["c", "d", "e"]


async def test_a_range_at_a_past_revision_shows_what_stood_there(open_store: Open) -> None:
    store = open_store()
    first = await store.commit(key("a"), thing("a", x="1"), None)
    await store.commit(key("b"), thing("b"), None)
    then = store.rev
    await store.commit(key("a"), thing("a", x="2"), first.rev)
    await store.commit(key("b"), None, 2)
    await store.commit(key("c"), thing("c"), None)

    page = await store.range("group/things/", at=then)

    assert [(entry.key[-1], entry.raw.get("x")) for entry in page.entries] == [("a", "1"), ("b", None)]
    assert page.rev == then


async def test_a_removal_is_a_change_whose_last_state_carries_the_removals_revision(open_store: Open) -> None:
    store = open_store()
    made = await store.commit(key("a"), thing("a", x="1"), None)
    await store.commit(key("a"), None, made.rev)

    _, gone = await read(store, "group/things/", 0, 2)

    assert gone.after is None
    assert gone.last.raw["x"] == "1"
    assert gone.last.raw["metadata"]["resourceVersion"] == "2"
    assert await store.find(key("a")) is None


async def test_changes_start_with_history_and_go_on_live_without_a_gap(open_store: Open) -> None:
    store = open_store()
    await store.commit(key("a"), thing("a"), None)
    await store.commit(key("b"), thing("b"), None)
    feed = store.changes("group/things/", 1)
    await store.commit(key("c"), thing("c"), None)

    seen = [await feed.next() for _ in range(2)]

    assert [change.rev for change in seen if change] == [2, 3]
    feed.close()


async def test_the_empty_prefix_hears_everything(open_store: Open) -> None:
    store = open_store()
    await store.commit(key("a"), thing("a"), None)
    feed = store.changes("", 0)
    await store.commit("core/kinds/x", thing("x"), None)

    seen = [await feed.next() for _ in range(2)]

    assert [change.key for change in seen if change] == [key("a"), "core/kinds/x"]
    feed.close()


async def test_history_before_what_is_kept_is_refused(open_store: Open) -> None:
    store = open_store(history=3)
    rev = None
    for number in range(6):
        rev = (await store.commit(key("a"), thing("a", x=str(number)), rev)).rev

    with pytest.raises(Compacted) as raised:
        store.changes("group/things/", 1)
    with pytest.raises(Compacted):
        await store.range("group/things/", at=1)

    assert raised.value.oldest == 3
    assert len(await read(store, "group/things/", 3, 3)) == 3


async def test_a_reader_that_falls_behind_is_dropped(open_store: Open) -> None:
    store = open_store(backlog=2)
    feed = store.changes("group/things/", 0)
    for name in "abcd":
        await store.commit(key(name), thing(name), None)

    with pytest.raises(Overflow):
        await feed.next()


async def test_a_nudge_wakes_a_reader_without_a_change(open_store: Open) -> None:
    feed = open_store().changes("group/things/", 0)
    feed.wake()

    assert await feed.next() is None
    feed.close()


async def test_closing_the_store_ends_its_feeds(open_store: Open) -> None:
    store = open_store()
    feed = store.changes("group/things/", 0)
    store.close()

    assert [change async for change in feed] == []
