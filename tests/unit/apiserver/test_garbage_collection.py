"""What the garbage collector deletes, releases and leaves alone, one object at a time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from windrow.apiserver.controllers.gc import GarbageCollector, owners_of
from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.port import Entry
from windrow.kubernetes.objects import owner_reference
from windrow.kubernetes.resources import CLUSTER_ROLE, CONFIG_MAP, EVENT, NAMESPACE, ApiResource

GONE = {"metadata": {"name": "gone", "uid": "gone"}}
UNSERVED = {"apiVersion": "no.where/v1", "kind": "Thing", "name": "x", "uid": "u"}
HELD = "x.io/held"


def by(raw: Any, kind: ApiResource = CONFIG_MAP, **more: Any) -> Any:
    return owner_reference(kind, raw, **more)


async def make(
    client: LoopbackClient, name: str, *references: Any, kind: ApiResource = CONFIG_MAP, **head: Any
) -> Any:
    raw = {"metadata": {"name": name, "ownerReferences": list(references), **head}}
    if kind is CONFIG_MAP:
        raw["data"] = {"kept": "yes"}
    return await client.create(kind, raw, "default" if kind.namespaced else "")


def ref(name: str) -> Any:
    return CONFIG_MAP.ref(name, "default")


def key(name: str, kind: ApiResource = CONFIG_MAP) -> tuple[str]:
    place = "default/" if kind.namespaced else ""
    return (f"{kind.group}/{kind.plural}/{place}{name}",)


async def collect(server: ApiServer, *keys: tuple[str]) -> GarbageCollector:
    """A collector that has listed everything, and then reconciled these."""
    collector = GarbageCollector(server.context)
    await collector.list_keys()
    for one in keys:
        await collector.reconcile(one)
    return collector


async def events(client: LoopbackClient) -> list[Any]:
    return [one for one in await client.list(EVENT) if one["reason"] == "OwnerRefInvalidNamespace"]


# --- what is not there, or not known


async def test_what_is_gone_or_no_longer_served_is_left_alone(server: ApiServer) -> None:
    raw = {"metadata": {"name": "x", "ownerReferences": [by(GONE)]}}
    await server.context.store.commit("gone.io/things/default/x", raw, None)

    await collect(server, key("never-was"), ("gone.io/things/default/x",))

    assert await server.context.store.find("gone.io/things/default/x") is not None


async def test_an_owner_of_a_kind_that_is_not_served_is_neither_absent_nor_removed(server: ApiServer) -> None:
    client = server.local()
    child = await make(client, "child", UNSERVED)
    role = await make(client, "role", UNSERVED, kind=CLUSTER_ROLE)

    await collect(server, key("child"), key("role", CLUSTER_ROLE))

    assert await client.get(ref("child")) == child
    assert await client.get(CLUSTER_ROLE.ref("role")) == role
    assert await events(client) == []


async def test_an_object_without_a_namespace_goes_with_its_last_owner(server: ApiServer) -> None:
    client = server.local()
    await make(client, "role", by(GONE, NAMESPACE), kind=CLUSTER_ROLE)

    await collect(server, key("role", CLUSTER_ROLE))

    assert await client.find(CLUSTER_ROLE.ref("role")) is None


async def test_an_object_whose_owners_are_all_there_is_not_written(server: ApiServer) -> None:
    client = server.local()
    child = await make(client, "child", by(await make(client, "owner")))

    await collect(server, key("child"))

    assert await client.get(ref("child")) == child


async def test_an_object_loses_the_references_to_absent_owners_and_nothing_else(server: ApiServer) -> None:
    client = server.local()
    owner = await make(client, "owner")
    await make(client, "child", by(owner), by(GONE))

    await collect(server, key("child"))

    child = await client.get(ref("child"))
    assert child["metadata"]["ownerReferences"] == [by(owner)]
    assert child["data"] == {"kept": "yes"}


async def test_what_is_being_deleted_keeps_the_references_to_absent_owners(server: ApiServer) -> None:
    client = server.local()
    owner = await make(client, "owner")
    await make(client, "child", by(owner), by(GONE), finalizers=[HELD])
    going = await client.delete(ref("child"))

    await collect(server, key("child"))

    assert await client.get(ref("child")) == going


async def test_what_an_older_server_left_without_finalizers_is_left_alone(server: ApiServer) -> None:
    client = server.local()
    going = await make(client, "going")
    raw = {**going, "metadata": {**going["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}}
    (entry,) = await server.context.entries(CONFIG_MAP)
    await server.context.store.commit(entry.key, raw, entry.rev)

    await collect(server, key("going"))

    assert await client.find(ref("going")) is not None


# --- deleted in the foreground


async def delete(server: ApiServer, kind: ApiResource, name: str, policy: str) -> GarbageCollector:
    """A collector that has listed the owner and its dependents, and the owner marked as being deleted."""
    collector = await collect(server)
    place = "default" if kind.namespaced else ""
    await server.local().delete(kind.ref(name, place), propagation=policy)
    return collector


@pytest.mark.parametrize("others", [0, 1])
async def test_the_owner_waits_for_a_dependent_that_blocks_it(server: ApiServer, others: int) -> None:
    client = server.local()
    owner = await make(client, "owner")
    more = [by(await make(client, f"other-{number}")) for number in range(others)]
    await make(client, "child", *more, by(owner, block=True), finalizers=[HELD])

    collector = await delete(server, CONFIG_MAP, "owner", "Foreground")
    await collector.reconcile(key("owner"))

    assert "deletionTimestamp" in (await client.get(ref("child")))["metadata"]
    assert await client.find(ref("owner")) is not None


async def test_the_owner_does_not_wait_for_a_dependent_that_blocks_another(server: ApiServer) -> None:
    client = server.local()
    owner, other = await make(client, "owner"), await make(client, "other")
    await make(client, "child", by(owner), by(other, block=True), finalizers=[HELD])

    collector = await delete(server, CONFIG_MAP, "owner", "Foreground")
    await collector.reconcile(key("owner"))

    assert await client.find(ref("owner")) is None


async def test_an_owner_without_a_namespace_has_dependents_in_all(server: ApiServer) -> None:
    client = server.local()
    role = await make(client, "role", kind=CLUSTER_ROLE)
    await make(client, "child", by(role, CLUSTER_ROLE, block=True), finalizers=[HELD])

    collector = await delete(server, CLUSTER_ROLE, "role", "Foreground")
    await collector.reconcile(key("role", CLUSTER_ROLE))

    assert "deletionTimestamp" in (await client.get(ref("child")))["metadata"]
    assert await client.find(CLUSTER_ROLE.ref("role")) is not None


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
async def test_a_dependent_that_is_gone_already_holds_nothing(server: ApiServer, policy: str) -> None:
    client = server.local()
    await make(client, "child", by(await make(client, "owner"), block=True))

    collector = await delete(server, CONFIG_MAP, "owner", policy)
    await client.delete(ref("child"))
    await collector.reconcile(key("owner"))

    assert await client.find(ref("owner")) is None


class ChangedMeanwhile:
    """A store in which, once armed, another client writes to the object at `key` as soon as that is read."""

    def __init__(self, inner: Any, key: str) -> None:
        self._inner, self._key = inner, key
        self.is_armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def find(self, key: str) -> Entry | None:
        entry: Entry | None = await self._inner.find(key)
        if entry is not None and key == self._key and self.is_armed:
            self.is_armed = False
            await self._inner.commit(key, {**entry.raw, "data": {"kept": "changed"}}, entry.rev)
        return entry


async def test_an_owner_is_kept_until_each_orphan_is_without_its_reference(server: ApiServer) -> None:
    client = server.local()
    await make(client, "child", by(await make(client, "owner")))
    store: Any = ChangedMeanwhile(server.context.store, key("child")[0])
    running = asyncio.create_task(GarbageCollector(replace(server.context, store=store)).run())
    for _ in range(100):
        await asyncio.sleep(0)

    store.is_armed = True
    await client.delete(ref("owner"), propagation="Orphan")
    for _ in range(100):
        await asyncio.sleep(0)
    running.cancel()

    assert not store.is_armed
    assert await client.find(ref("owner")) is None
    left = await client.get(ref("child"))
    assert ("ownerReferences" in left["metadata"], left["data"]) == (False, {"kept": "changed"})


# --- the index


async def test_an_owner_is_looked_at_when_a_dependent_is_gone_if_it_is_the_one_that_is_named(
    server: ApiServer,
) -> None:
    client = server.local()
    owner = await make(client, "owner")
    misnamed = {**by(await make(client, "another")), "name": "other-name"}
    await make(client, "child", by(owner), misnamed, by(GONE), UNSERVED)
    collector = await collect(server)
    feed = server.context.store.changes("", server.context.store.rev)
    await client.delete(ref("child"))
    change = await feed.next()
    assert change is not None

    assert list(collector.keys_of_change(change)) == [key("owner")]


async def test_what_is_listed_again_replaces_what_was_known(server: ApiServer) -> None:
    client = server.local()
    owner = await make(client, "owner")
    await make(client, "child", by(owner))
    collector = await collect(server)
    known = [dict(value) for value in vars(collector).values() if isinstance(value, dict)]
    await client.delete(ref("child"))
    await client.delete(ref("owner"))
    await collector.list_keys()

    after = [value for value in vars(collector).values() if isinstance(value, dict)]
    assert any(owner["metadata"]["uid"] in value for value in known)
    assert not any(owner["metadata"]["uid"] in value for value in after)


ROUND = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}


@pytest.mark.parametrize(
    "references",
    [
        None,
        5,
        "x",
        {"x": ROUND},
        [ROUND, "x"],
        ["x"],
        [ROUND, {**ROUND, "uid": 5}],
        *([{field: value for field, value in ROUND.items() if field != one}] for one in ROUND),
    ],
)
async def test_malformed_references_are_none_and_are_logged(
    server: ApiServer, references: Any, caplog: pytest.LogCaptureFixture
) -> None:
    raw = {"metadata": {"name": "odd", "uid": "odd-uid", "ownerReferences": references}}
    await server.context.store.commit(key("odd")[0], raw, None)
    await make(server.local(), "sound", by(GONE))

    with caplog.at_level(logging.WARNING):
        await collect(server, key("odd"))

    assert owners_of(raw) == []
    assert await server.context.store.find(key("odd")[0]) is not None
    told = [record.getMessage() for record in caplog.records]
    assert [key("odd")[0] in one for one in told] == ([] if references is None else [True])


# --- owners of another namespace


@pytest.mark.parametrize("kind", [CONFIG_MAP, CLUSTER_ROLE])
async def test_the_event_names_the_dependent_and_its_message_is_bounded(
    server: ApiServer, kind: ApiResource
) -> None:
    client = server.local()
    await client.create(NAMESPACE, {"metadata": {"name": "other"}})
    owner = await client.create(CONFIG_MAP, {"metadata": {"name": "owner"}}, "other")
    dependent = await make(client, "dependent", {**by(owner), "name": "n" * 2000}, kind=kind)

    await collect(server, key("dependent", kind))

    (event,) = await events(client)
    involved = {
        "kind": kind.kind,
        "name": "dependent",
        "uid": dependent["metadata"]["uid"],
        "apiVersion": kind.api_version,
    }
    told = {name: value for name, value in event.items() if name not in ("metadata", "message")}
    assert told == {
        "kind": "Event",
        "apiVersion": "v1",
        "involvedObject": involved | ({"namespace": "default"} if kind.namespaced else {}),
        "reason": "OwnerRefInvalidNamespace",
        "type": "Warning",
        "source": {"component": "garbage-collector-controller"},
        "reportingComponent": "garbage-collector-controller",
        "firstTimestamp": "2026-01-01T12:00:00Z",
        "lastTimestamp": "2026-01-01T12:00:00Z",
        "count": 1,
    }
    assert len(event["message"]) == 1024


async def test_an_owner_that_has_no_namespace_is_in_no_other(server: ApiServer) -> None:
    client = server.local()
    default = await client.get(NAMESPACE.ref("default"))
    await make(client, "child", {**by(default, NAMESPACE), "name": "misnamed"})

    await collect(server, key("child"))

    assert await client.find(ref("child")) is None
    assert await events(client) == []
