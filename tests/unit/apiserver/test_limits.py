"""What bounds the memory of a server: the size of objects, and the bytes of the watch history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore, SqliteStore
from windrow.apiserver.storage.port import Compacted, Overflow
from windrow.kubernetes.requests import JSON_PATCH, STRATEGIC_PATCH
from windrow.kubernetes.resources import CONFIG_MAP

KEY = "group/things/ns/a"
MAPS = "/api/v1/namespaces/default/configmaps"


def thing(kib: int, name: str = "a") -> dict[str, object]:
    return {"metadata": {"name": name}, "data": "x" * (kib * 1024)}


def config_map(kib: int, name: str = "big") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"x": "x" * (kib * 1024)},
    }


async def test_the_history_is_bounded_by_bytes():
    store = MemoryStore(history_bytes=1024 * 1024)
    rev = None
    for _ in range(50):
        rev = (await store.commit(KEY, thing(100), rev)).rev

    assert store.changes("group/things/", 45)
    with pytest.raises(Compacted):
        store.changes("group/things/", 10)


async def test_deletions_of_large_objects_count_too():
    store = MemoryStore(history_bytes=1024 * 1024)
    for number in range(20):
        made = await store.commit(f"{KEY}{number}", thing(100), None)
        await store.commit(f"{KEY}{number}", None, made.rev)

    with pytest.raises(Compacted):
        store.changes("group/things/", 20)


async def test_a_watch_that_is_not_read_ends_before_it_holds_more_than_the_history():
    store = MemoryStore(history_bytes=1024 * 1024)
    feed = store.changes("group/things/", 0)
    rev = None
    for _ in range(50):
        rev = (await store.commit(KEY, thing(100), rev)).rev

    with pytest.raises(Overflow):
        await feed.next()


async def test_a_watch_that_is_read_goes_on_however_much_has_passed():
    store = MemoryStore(history_bytes=1024 * 1024)
    feed = store.changes("group/things/", 0)
    rev = None
    for number in range(1, 50):
        rev = (await store.commit(KEY, thing(100), rev)).rev
        change = await feed.next()
        assert change is not None
        assert change.rev == number


async def test_history_of_a_file_is_bounded_by_bytes_at_a_restart_too(tmp_path: Path):
    store = SqliteStore(tmp_path / "db")
    rev = None
    for _ in range(50):
        rev = (await store.commit(KEY, thing(100), rev)).rev
    store.close()

    again = SqliteStore(tmp_path / "db", history_bytes=1024 * 1024)

    with pytest.raises(Compacted):
        again.changes("group/things/", 10)
    again.close()


async def test_an_object_above_etcd_s_limit_is_refused_in_its_words(server: ApiServer, api: Any):
    status, answer = await api.json("POST", MAPS, config_map(1600))

    assert (status, answer["message"]) == (500, "etcdserver: request is too large")
    assert "reason" not in answer  # so kubectl prints: Error from server: etcdserver: request is too large
    assert (await api("GET", f"{MAPS}/big")).status == 404
    assert (await api("POST", MAPS, config_map(1500))).status == 201


async def test_an_object_does_not_grow_above_the_limit_by_patches(api: Any):
    await api("POST", MAPS, config_map(1000))

    status, answer = await api.json(
        "PATCH", f"{MAPS}/big", {"data": {"y": "y" * 1024 * 1024}}, media="application/merge-patch+json"
    )

    assert (status, answer["message"]) == (500, "etcdserver: request is too large")
    assert "y" not in (await api.json("GET", f"{MAPS}/big"))[1]["data"]


async def test_a_body_above_three_mebibytes_is_refused_before_it_is_parsed(
    a_server: Callable[..., ApiServer], api: Any
):
    status, answer = await api.json("POST", MAPS, config_map(3073))

    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")
    assert answer["message"] == "Request entity too large: limit is 3145728"


def finalizers(prefix: str, count: int) -> list[str]:
    return [f"{prefix}.example/{number}" for number in range(count)]


def owners(prefix: str, count: int) -> list[dict[str, Any]]:
    fields = {"apiVersion": "v1", "kind": "ConfigMap"}
    return [{**fields, "name": f"n{number}", "uid": f"{prefix}-{number}"} for number in range(count)]


@pytest.mark.parametrize(
    ("field", "items", "count", "answers"),
    [("finalizers", finalizers, 10_000, (201, 200)), ("ownerReferences", owners, 2_000, (422, 422))],
)
async def test_a_list_of_many_items_takes_time_in_proportion_to_it(
    server: ApiServer,
    api: Any,
    field: str,
    items: Callable[[str, int], list[Any]],
    count: int,
    answers: tuple[int, int],
):
    """Each item was compared with each other: an object of the largest size held all requests for two minutes."""
    began = time.process_time()
    raw = {**config_map(0), "metadata": {"name": "big", field: items("a", count)}}
    made = await api("POST", MAPS, raw)
    if made.status == 422:  # stored by an earlier version, which had no bound
        await api("POST", MAPS, config_map(0))
        (stored,) = await server.context.entries(CONFIG_MAP, "default")
        head = {**stored.raw["metadata"], field: items("a", count)}
        await server.context.store.commit(stored.key, {**stored.raw, "metadata": head}, stored.rev)
    patch = {"metadata": {field: items("b", count)}}
    merged = await api("PATCH", f"{MAPS}/big", patch, media=STRATEGIC_PATCH)

    assert (made.status, merged.status) == answers
    assert time.process_time() - began < 1.5


async def test_copies_of_a_json_patch_are_bounded(api: Any):
    """Each step doubles the document: thirty steps would make terabytes of ten kilobytes."""
    await api("POST", MAPS, config_map(10))
    steps = [{"op": "copy", "from": "/data", "path": f"/data/y{number}"} for number in range(18)]
    began = time.process_time()

    reply = await api("PATCH", f"{MAPS}/big", steps, media=JSON_PATCH)

    assert reply.status == 422
    assert time.process_time() - began < 1.5


async def test_other_requests_go_on_while_a_large_object_is_validated(
    server: ApiServer, api: Any, widget_crd: Callable[..., dict[str, Any]]
):
    words = {"type": "array", "items": {"type": "string", "pattern": "^[a-z0-9]+$", "maxLength": 63}}
    spec = {"type": "object", "properties": {"words": words}}
    crd = widget_crd()
    crd["spec"]["versions"][0]["schema"] = {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}
    }
    server.install_crd(crd)
    raw = {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {"name": "big"},
        "spec": {"words": [f"w{number}" for number in range(40_000)]},
    }
    async with loop_gaps() as gaps:
        reply = await api("POST", "/apis/example.io/v1/namespaces/default/widgets", raw)

    assert reply.status == 201
    assert max(gaps) < 0.1


async def test_other_requests_go_on_while_a_large_object_is_written_as_yaml(api: Any):
    data = {f"k{number}": "x" for number in range(6_000)}
    assert (await api("POST", MAPS, {**config_map(0), "data": data})).status == 201

    async with loop_gaps() as gaps:
        reply = await api("GET", f"{MAPS}/big", accept="application/yaml")

    assert reply.body.startswith(b"apiVersion: v1\n")
    assert max(gaps) < 0.1


@asynccontextmanager
async def loop_gaps() -> AsyncIterator[list[float]]:
    """Seconds of processor time that the event loop's thread takes between two of its steps while the block runs."""
    gaps = [0.0]

    async def measure() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            gaps.append(time.thread_time() - before)
            before = time.thread_time()

    measuring = asyncio.create_task(measure())
    await asyncio.sleep(0)
    yield gaps
    await asyncio.sleep(0.002)
    measuring.cancel()
