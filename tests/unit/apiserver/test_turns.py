"""Work on many objects leaves turns of the event loop to others: requests are answered between two of its writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from windrow.apiserver.controllers.events import EventExpiry
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import SqliteStore
from windrow.kubernetes.objects import Raw, owner_reference
from windrow.kubernetes.resources import CONFIG_MAP, CRD, EVENT, NAMESPACE, SECRET, ApiResource

MANY = 30
SOME = 6  # writes in one turn of the loop, by all that run: far fewer than there are objects
WIDGET = ApiResource("example.io", "v1", "Widget", "widgets")
SECRETS = "/api/v1/namespaces/default/secrets"


async def make_many(server: ApiServer, kind: ApiResource, namespace: str = "default", **fields: Any) -> None:
    client = server.local()
    for number in range(MANY):
        raw: Raw = {**fields, "metadata": {**fields.get("metadata", {}), "name": f"o{number}"}}
        await client.create(kind, raw, namespace)


async def are_gone(server: ApiServer, kind: ApiResource, namespace: str = "default") -> bool:
    return not await server.context.entries(kind, namespace)


@asynccontextmanager
async def turns(question: Callable[[], int]) -> AsyncIterator[list[int]]:
    """The answers to `question` at each turn of the loop while the block runs."""
    answers = [question()]

    async def ask() -> None:
        while True:
            await asyncio.sleep(0)
            answers.append(question())

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0)
    yield answers
    asking.cancel()


def most_at_once(revs: list[int]) -> int:
    return max(after - before for before, after in pairwise(revs))


async def test_a_collection_is_deleted_in_many_turns(server: ApiServer, api: Any) -> None:
    await make_many(server, CONFIG_MAP)

    async with turns(lambda: server.context.store.rev) as revs:
        reply = await api("DELETE", "/api/v1/namespaces/default/configmaps")

    assert reply.status == 200
    assert await are_gone(server, CONFIG_MAP)
    assert most_at_once(revs) == 1


async def test_a_namesake_made_while_a_collection_is_deleted_is_kept(server: ApiServer, api: Any) -> None:
    await make_many(server, CONFIG_MAP)
    client = server.local()
    deleting = asyncio.create_task(api("DELETE", "/api/v1/namespaces/default/configmaps"))
    await asyncio.sleep(0)
    last = max(entry.key for entry in await server.context.entries(CONFIG_MAP)).rpartition("/")[2]
    await client.delete(CONFIG_MAP.ref(last, "default"))
    namesake = await client.create(CONFIG_MAP, {"metadata": {"name": last}}, "default")

    assert (await deleting).status == 200
    assert [entry.raw for entry in await server.context.entries(CONFIG_MAP)] == [namesake]


async def test_a_namespace_is_emptied_in_many_turns(server: ApiServer, run_controllers: Any) -> None:
    client = server.local()
    await client.create(NAMESPACE, {"metadata": {"name": "team"}})
    await make_many(server, SECRET, "team")
    async with run_controllers(server) as eventually, turns(lambda: server.context.store.rev) as revs:
        await client.delete(NAMESPACE.ref("team"))
        await eventually(lambda: are_gone(server, SECRET, "team"))

    assert most_at_once(revs) <= SOME


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_dependents_are_collected_in_many_turns(
    server: ApiServer, run_controllers: Any, propagation: str
) -> None:
    client = server.local()
    owner = await client.create(CONFIG_MAP, {"metadata": {"name": "owner"}}, "default")
    owners = {"ownerReferences": [owner_reference(CONFIG_MAP, owner, block=True)]}
    await make_many(server, SECRET, metadata=owners)

    async def is_done() -> bool:
        entries = await server.context.entries(SECRET)
        return not any(entry.raw["metadata"].get("ownerReferences") for entry in entries)

    async with run_controllers(server) as eventually, turns(lambda: server.context.store.rev) as revs:
        await client.delete(CONFIG_MAP.ref("owner", "default"), propagation=propagation)
        await eventually(is_done)

    assert most_at_once(revs) <= SOME


async def test_the_objects_of_a_definition_are_deleted_in_many_turns(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    await make_many(server, WIDGET, spec={"size": 1})
    async with run_controllers(server) as eventually, turns(lambda: server.context.store.rev) as revs:
        await client.delete(CRD.ref("widgets.example.io"))
        await eventually(lambda: are_gone(server, CRD, ""))

    assert most_at_once(revs) <= SOME


async def test_events_expire_in_many_turns(server: ApiServer, clock: Any) -> None:
    involved = {"kind": "ConfigMap", "name": "a", "namespace": "default"}
    await make_many(server, EVENT, involvedObject=involved, reason="Tried")
    clock.instant += timedelta(hours=2)

    async with turns(lambda: server.context.store.rev) as revs:
        await EventExpiry(server.context).run_once()

    assert await are_gone(server, EVENT)
    assert most_at_once(revs) == 1


async def test_secrets_of_a_collection_leave_the_wal_together(
    a_server: Callable[..., ApiServer], api_as: Callable[..., Any], tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path / "db")
    server = a_server(store=store)
    await make_many(server, SECRET, stringData={"x": "hold-hold-"})
    wal = tmp_path / "db-wal"

    async with turns(lambda: wal.stat().st_size) as sizes:
        reply = await api_as(server)("DELETE", SECRETS)

    assert reply.status == 200
    assert sum(size > 0 for size in sizes) >= MANY - 2  # not truncated for each of them
    assert wal.stat().st_size == 0
    store.close()


@pytest.mark.parametrize("many", [3, 70])
async def test_a_batch_leaves_no_former_secret(tmp_path: Path, many: int) -> None:
    store = SqliteStore(tmp_path / "db")
    made = [
        await store.commit(f"/secrets/ns/o{number}", {"metadata": {}, "x": f"hold-{number}-"}, None)
        for number in range(many)
    ]

    with store.batch():
        for entry in made:
            await store.commit(entry.key, None, entry.rev)
        left = (tmp_path / "db-wal").stat().st_size

    assert left > 0
    assert not any(b"hold-" in (tmp_path / name).read_bytes() for name in ("db", "db-wal"))
    store.close()


async def test_a_write_beside_a_batch_is_answered_when_no_former_secret_is_left(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    ours = await store.commit("/secrets/ns/ours", {"metadata": {}, "x": "hold-ours"}, None)
    theirs = await store.commit("/secrets/ns/theirs", {"metadata": {}, "x": "hold-theirs"}, None)

    async def delete_theirs() -> None:
        await store.commit(theirs.key, None, theirs.rev)
        assert (tmp_path / "db-wal").stat().st_size == 0

    beside = asyncio.create_task(delete_theirs())  # before the batch begins: it is of another task
    with store.batch():
        await store.commit(ours.key, None, ours.rev)
        assert (tmp_path / "db-wal").stat().st_size > 0
        await beside
    store.close()
