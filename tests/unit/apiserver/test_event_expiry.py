"""Events expire an hour after they were last written, on the server's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.controllers.events import EventExpiry
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore, SqliteStore
from windrow.apiserver.storage.port import Store
from windrow.client.client import Client
from windrow.core.clock import format_time, sleep
from windrow.core.rng import Rng
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import CONFIG_MAP, EVENT

HOUR = timedelta(hours=1)
SHARED = timedelta(minutes=1)


def an_event(name: str, **fields: Any) -> Raw:
    involved = {"kind": "ConfigMap", "name": "a", "namespace": "default"}
    return new_object(EVENT, name, "default", involvedObject=involved, reason="Tried", **fields)


def with_server(story: Callable[[Client, LoopClock], Any], store: Store | None = None) -> None:
    async def run() -> None:
        clock = LoopClock()
        server = ApiServer(store or MemoryStore(), clock, Rng(1))
        task = asyncio.create_task(server.run())
        try:
            await story(Client(server.local()), clock)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run_driven(run())


async def names(api: Client) -> list[str]:
    return [raw["metadata"]["name"] for raw in await api.list(EVENT, "default")]


def test_an_event_is_there_for_an_hour_and_no_longer():
    async def story(api: Client, clock: LoopClock) -> None:
        await api.create(EVENT, an_event("a"))
        await api.create(CONFIG_MAP, new_object(CONFIG_MAP, "kept", "default"))
        await sleep(clock, HOUR - timedelta(seconds=1))
        assert await names(api) == ["a"]
        await sleep(clock, timedelta(seconds=2) + SHARED)
        assert await names(api) == []
        assert await api.find(CONFIG_MAP.ref("kept", "default"))

    with_server(story)


def test_an_event_that_is_written_again_is_kept_for_another_hour():
    async def story(api: Client, clock: LoopClock) -> None:
        await api.create(EVENT, an_event("a", count=1))
        await sleep(clock, HOUR / 2)
        await api.patch(EVENT.ref("a", "default"), {"count": 2, "lastTimestamp": format_time(clock.now())})
        await sleep(clock, HOUR - timedelta(seconds=1))
        assert await names(api) == ["a"]
        await sleep(clock, timedelta(seconds=2) + SHARED)
        assert await names(api) == []

    with_server(story)


def test_an_event_of_before_a_restart_expires_by_its_own_times(tmp_path: Path):
    path = tmp_path / "db"

    async def before(api: Client, clock: LoopClock) -> None:
        early = format_time(clock.now() - HOUR / 2)
        for name, time in (("early", early), ("future", "2999-01-01T00:00:00Z"), ("odd", early)):
            await api.create(EVENT, an_event(name, lastTimestamp=time))
        # As an earlier version stored it, half an hour ago.
        for name in ("early", "odd"):
            entry = await store.find(f"/events/default/{name}")
            assert entry is not None
            head = {**entry.raw["metadata"], "creationTimestamp": early}
            last = entry.raw["lastTimestamp"] if name == "early" else "9" * 40
            await store.commit(entry.key, {**entry.raw, "metadata": head, "lastTimestamp": last}, entry.rev)

    async def after(api: Client, clock: LoopClock) -> None:
        assert await names(api) == ["early", "future", "odd"]
        await sleep(clock, HOUR / 2 + SHARED)
        assert await names(api) == ["future"]
        await sleep(clock, HOUR / 2 + SHARED)
        assert await names(api) == []

    store = SqliteStore(path)
    with_server(before, store)
    store.close()
    store = SqliteStore(path)
    with_server(after, store)
    store.close()


def test_a_thousand_events_cost_one_timer():
    async def story(api: Client, clock: LoopClock) -> None:
        for number in range(1000):
            await api.create(EVENT, an_event(f"e{number}"))
        await sleep(clock, HOUR + SHARED + SHARED)
        assert await names(api) == []

    with_server(story)


def test_the_next_pass_is_when_the_first_event_expires_and_a_minute_from_now_at_least():
    async def story() -> list[float]:
        clock = LoopClock()
        server = ApiServer(MemoryStore(), clock, Rng(1))
        api, expiry = server.local(), EventExpiry(server.context)

        async def pause_s() -> float:
            return ((await expiry.run_once()) - clock.now()).total_seconds()

        empty = await pause_s()
        await api.create(EVENT, an_event("a"))
        await sleep(clock, HOUR / 2)
        await api.create(EVENT, an_event("b"))
        half = await pause_s()
        await sleep(clock, HOUR / 2 - timedelta(seconds=10))
        soon = await pause_s()
        await sleep(clock, timedelta(seconds=10))
        return [empty, half, soon, await pause_s()]

    assert run_driven(story()) == [3600, 1800, 60, 1800]
