"""Deletes, finalizers, ownership, namespaces (reference/05 §7.11)."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.controllers.gc import GarbageCollector
from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.server import ApiServer
from windrow.kubernetes.errors import AlreadyExists, Conflict, Forbidden, NotFound
from windrow.kubernetes.objects import owner_reference
from windrow.kubernetes.requests import MERGE_PATCH
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    CRD,
    EVENT,
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
    ApiResource,
)

MAPS = "/api/v1/namespaces/default/configmaps"
WIDGET = ApiResource("example.io", "v1", "Widget", "widgets")
Api = Any


def ref(name: str) -> Any:
    return CONFIG_MAP.ref(name, "default")


async def make(
    client: LoopbackClient, name: str, *owners: Any, finalizers: tuple[str, ...] = (), block: bool = False
) -> Any:
    references = [owner_reference(CONFIG_MAP, owner, block=block) for owner in owners]
    raw = {"metadata": {"name": name, "ownerReferences": references, "finalizers": list(finalizers)}}
    return await client.create(CONFIG_MAP, raw, "default")


def is_gone(client: LoopbackClient, *names: str) -> Any:
    async def question() -> bool:
        return all([await client.find(ref(name)) is None for name in names])

    return question


async def test_a_plain_delete_answers_with_a_status(api: Api) -> None:
    _, made = await api.json("POST", MAPS, {"metadata": {"name": "m"}})

    status, answer = await api.json("DELETE", MAPS + "/m")
    again, _ = await api.json("DELETE", MAPS + "/m")

    assert (status, again, answer["status"]) == (200, 404, "Success")
    assert answer["details"] == {"name": "m", "kind": "configmaps", "uid": made["metadata"]["uid"]}


async def test_a_kind_that_answers_with_what_was_deleted_does_so(api: Api) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    _, made = await api.json("POST", accounts, {"metadata": {"name": "a"}})

    status, answer = await api.json("DELETE", f"{accounts}/a")

    assert (status, answer["kind"], answer["metadata"]["uid"]) == (
        200,
        "ServiceAccount",
        made["metadata"]["uid"],
    )


async def test_a_finalizer_holds_the_object_until_it_is_taken_away(server: ApiServer) -> None:
    client = server.local()
    await make(client, "m", finalizers=("x.io/y",))

    marked = await client.delete(ref("m"))
    again = await client.delete(ref("m"))
    with pytest.raises(AlreadyExists, match=r"^object is being deleted: "):
        await make(client, "m")
    await client.patch(ref("m"), {"metadata": {"finalizers": []}})

    assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:00Z"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert again == marked
    assert await client.find(ref("m")) is None


async def test_preconditions_protect_a_namesake(server: ApiServer) -> None:
    client = server.local()
    await make(client, "m")

    with pytest.raises(
        Conflict, match=r"the UID in the precondition \(other\) does not match the UID in record"
    ):
        await client.delete(ref("m"), uid="other")


async def test_options_may_come_in_the_query(api: Api) -> None:
    await api("POST", MAPS, {"metadata": {"name": "m"}})

    _, answer = await api.json("DELETE", MAPS + "/m?propagationPolicy=Foreground")
    odd, _ = await api.json("DELETE", MAPS + "/m?propagationPolicy=Sideways")

    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert odd == 422


async def test_a_background_delete_takes_back_a_pending_foreground_one(api: Api) -> None:
    await api("POST", MAPS, {"metadata": {"name": "m"}})
    await api("DELETE", MAPS + "/m", {"propagationPolicy": "Foreground"})

    kept, _ = await api.json("DELETE", MAPS + "/m")
    await api("DELETE", MAPS + "/m", {"propagationPolicy": "Background"})

    assert kept == 200
    assert (await api("GET", MAPS + "/m")).status == 404


async def test_a_collection_is_deleted_by_selection(api: Api) -> None:
    for name, labels in (("a", {"go": "yes"}), ("b", {}), ("c", {"go": "yes"})):
        await api("POST", MAPS, {"metadata": {"name": name, "labels": labels}})

    _, answer = await api.json("DELETE", MAPS + "?labelSelector=go")
    _, left = await api.json("GET", MAPS)

    assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "c"]
    assert [item["metadata"]["name"] for item in left["items"]] == ["b"]


async def test_a_dependent_is_deleted_with_its_last_owner(server: ApiServer, run_controllers: Any) -> None:
    client = server.local()
    one, two = await make(client, "one"), await make(client, "two")
    await make(client, "both", one, two)
    child = await make(client, "child", one)
    await make(client, "grandchild", child)
    async with run_controllers(server) as eventually:
        await client.delete(ref("one"))
        await eventually(is_gone(client, "child", "grandchild"))
        both = await client.get(ref("both"))
        assert [owner["name"] for owner in both["metadata"]["ownerReferences"]] == ["two"]

        await client.delete(ref("two"))
        await eventually(is_gone(client, "both"))


async def test_an_owner_of_another_uid_is_no_owner(server: ApiServer, run_controllers: Any) -> None:
    client = server.local()
    owner = await make(client, "owner")
    owner["metadata"]["uid"] = "of-another-life"
    async with run_controllers(server) as eventually:
        await make(client, "child", owner)
        await eventually(is_gone(client, "child"))


async def test_a_namesake_of_what_the_collector_has_read_is_not_deleted(server: ApiServer) -> None:
    client = server.local()
    owner = await make(client, "owner")
    await make(client, "child", owner)
    collector = GarbageCollector(server.context)
    (key,) = [key for key, *_ in await collector.list_keys() if key.endswith("/child")]
    entry = await server.context.store.find(key)
    await client.delete(ref("child"))
    namesake = await make(client, "child")
    type = server.context.registry.find_resource("", "configmaps")
    assert entry is not None
    assert type is not None

    with pytest.raises(Conflict, match="UID in the precondition"):
        await collector.delete(type, entry)

    assert await client.find(ref("child")) == namesake


async def test_an_owner_of_a_kind_that_is_not_served_counts_as_present(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    owner = {"apiVersion": "no.where/v1", "kind": "Thing", "name": "x", "uid": "u"}
    async with run_controllers(server) as eventually:
        await client.create(
            CONFIG_MAP, {"metadata": {"name": "child", "ownerReferences": [owner]}}, "default"
        )
        orphan = await make(client, "orphan", {"metadata": {"name": "gone", "uid": "gone"}})
        await eventually(is_gone(client, orphan["metadata"]["name"]))

        assert await client.find(ref("child")) is not None


async def test_in_the_foreground_blocking_dependents_go_first(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    owner = await make(client, "owner")
    await make(client, "held", owner, finalizers=("x.io/y",), block=True)
    async with run_controllers(server) as eventually:
        await client.delete(ref("owner"), propagation="Foreground")

        async def held_is_leaving() -> bool:
            return "deletionTimestamp" in (await client.get(ref("held")))["metadata"]

        await eventually(held_is_leaving)
        assert await client.find(ref("owner")) is not None
        # The dependent's own finalizer goes; the one of the collector stays its own business.
        held = await client.get(ref("held"))
        left = [one for one in held["metadata"]["finalizers"] if one != "x.io/y"]
        await client.patch(ref("held"), {"metadata": {"finalizers": left}})
        await eventually(is_gone(client, "held", "owner"))


async def test_in_the_foreground_the_owner_does_not_wait_for_dependents_that_do_not_block(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    owner = await make(client, "owner")
    await make(client, "held", owner, finalizers=("x.io/y",))
    async with run_controllers(server) as eventually:
        await client.delete(ref("owner"), propagation="Foreground")
        await eventually(is_gone(client, "owner"))

        held = await client.get(ref("held"))
        assert "deletionTimestamp" in held["metadata"]
        assert held["metadata"]["finalizers"] == ["x.io/y"]


async def test_a_dependent_that_is_being_deleted_is_not_deleted_again(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    owner = await make(client, "owner")
    await make(client, "a-held", owner, finalizers=("x.io/y",), block=True)
    await make(client, "b-next", owner)
    held = await client.delete(ref("a-held"), propagation="Background")
    async with run_controllers(server) as eventually:
        await client.delete(ref("owner"), propagation="Foreground")
        await eventually(is_gone(client, "b-next"))

        assert await client.get(ref("a-held")) == held


async def test_orphans_are_kept_without_the_owner_reference(server: ApiServer, run_controllers: Any) -> None:
    client = server.local()
    owner = await make(client, "owner")
    await make(client, "child", owner)
    async with run_controllers(server) as eventually:
        await client.delete(ref("owner"), propagation="Orphan")
        await eventually(is_gone(client, "owner"))

        assert "ownerReferences" not in (await client.get(ref("child")))["metadata"]


async def test_a_deleted_namespace_is_emptied_and_then_removed(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    async with run_controllers(server) as eventually:
        await client.create(NAMESPACE, {"metadata": {"name": "team"}})
        await client.create(CONFIG_MAP, {"metadata": {"name": "m", "finalizers": ["x.io/y"]}}, "team")
        await client.create(SECRET, {"metadata": {"name": "s"}}, "team")

        leaving = await client.delete(NAMESPACE.ref("team"))
        assert leaving["status"]["phase"] == "Terminating"

        async def only_the_held_one_is_left() -> bool:
            return await client.find(SECRET.ref("s", "team")) is None

        await eventually(only_the_held_one_is_left)
        with pytest.raises(
            Forbidden, match="unable to create new content in namespace team because it is being term"
        ):
            await client.create(CONFIG_MAP, {"metadata": {"name": "late"}}, "team")
        await client.patch(CONFIG_MAP.ref("m", "team"), {"metadata": {"finalizers": None}})

        async def namespace_is_gone() -> bool:
            return await client.find(NAMESPACE.ref("team")) is None

        await eventually(namespace_is_gone)


async def test_every_namespace_gets_an_account_and_the_ca(server: ApiServer, run_controllers: Any) -> None:
    server.root_ca = "PEM"
    client = server.local()
    async with run_controllers(server) as eventually:
        await client.create(NAMESPACE, {"metadata": {"name": "team"}})

        async def furnished() -> bool:
            bundle = await client.find(CONFIG_MAP.ref("kube-root-ca.crt", "team"))
            account = await client.find(SERVICE_ACCOUNT.ref("default", "team"))
            return account is not None and bundle is not None and bundle["data"] == {"ca.crt": "PEM"}

        await eventually(furnished)


async def test_a_definition_takes_its_objects_along(server: ApiServer, run_controllers: Any) -> None:
    client = server.local()
    await client.create(WIDGET, {"metadata": {"name": "w"}, "spec": {"size": 1}}, "default")
    async with run_controllers(server) as eventually:
        await client.delete(CRD.ref("widgets.example.io"))

        async def not_served() -> bool:
            return await client.find(CRD.ref("widgets.example.io")) is None

        await eventually(not_served)
        with pytest.raises(NotFound, match="the server could not find the requested resource"):
            await client.list(WIDGET, "default")


async def test_an_object_of_another_namespace_is_no_dependent(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    for name in ("team-a", "team-b"):
        await client.create(NAMESPACE, {"metadata": {"name": name}})
    owner = await client.create(CONFIG_MAP, {"metadata": {"name": "owner"}}, "team-a")
    foreign = {
        "metadata": {
            "name": "foreign",
            "ownerReferences": [owner_reference(CONFIG_MAP, owner, block=True)],
            "finalizers": ["x.io/hold"],
        }
    }

    await client.create(CONFIG_MAP, foreign, "team-b")
    async with run_controllers(server) as eventually:
        await client.delete(CONFIG_MAP.ref("owner", "team-a"), propagation="Foreground")

        async def is_deleted() -> bool:
            return await client.find(CONFIG_MAP.ref("owner", "team-a")) is None

        await eventually(is_deleted)


async def foreign_owner_events(client: LoopbackClient) -> list[tuple[str, str, str]]:
    return [
        (event["metadata"]["namespace"], event["involvedObject"]["name"], event["message"])
        for event in await client.list(EVENT)
        if event["reason"] == "OwnerRefInvalidNamespace"
    ]


async def test_a_cluster_scoped_object_with_a_namespaced_owner_is_kept(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    owner = await make(client, "owner")
    gone = {"metadata": {"name": "gone", "uid": "gone"}}
    async with run_controllers(server) as eventually:
        for name, one in (("kept", owner), ("kept-too", gone)):
            references = [owner_reference(CONFIG_MAP, one), owner_reference(NAMESPACE, gone)]
            raw = {"metadata": {"name": name, "ownerReferences": references}}
            await client.create(CLUSTER_ROLE, raw)

        async def is_recorded() -> bool:
            return bool(await foreign_owner_events(client))

        await eventually(is_recorded)
        await make(client, "last", {"metadata": {"name": "gone", "uid": "gone"}})
        await eventually(is_gone(client, "last"))

        found = [await client.get(CLUSTER_ROLE.ref(name)) for name in ("kept", "kept-too")]
        assert [len(one["metadata"]["ownerReferences"]) for one in found] == [2, 2]
        uid = owner["metadata"]["uid"]
        text = f'ownerRef [v1/ConfigMap, namespace: , name: owner, uid: {uid}] does not exist in namespace ""'
        assert await foreign_owner_events(client) == [("default", "kept", text)]


async def test_the_kind_of_an_owner_is_recorded_with_its_group(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    raw = {"metadata": {"name": "owner"}, "spec": {"size": 1}}
    owner = await client.create(WIDGET, raw, "default")
    async with run_controllers(server) as eventually:
        await client.create(
            CLUSTER_ROLE, {"metadata": {"name": "kept", "ownerReferences": [owner_reference(WIDGET, owner)]}}
        )

        async def is_recorded() -> bool:
            return bool(await foreign_owner_events(client))

        await eventually(is_recorded)
        ((_, _, message),) = await foreign_owner_events(client)
        assert message.startswith("ownerRef [example.io/v1/Widget, namespace: , name: owner, ")


async def test_an_owner_in_another_namespace_is_recorded_and_its_dependent_deleted(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    await client.create(NAMESPACE, {"metadata": {"name": "other"}})
    owner = await make(client, "owner")
    name = "a" * 253
    async with run_controllers(server) as eventually:
        raw = {"metadata": {"name": name, "ownerReferences": [owner_reference(CONFIG_MAP, owner)]}}
        await client.create(CONFIG_MAP, raw, "other")

        async def is_deleted() -> bool:
            return await client.find(CONFIG_MAP.ref(name, "other")) is None

        await eventually(is_deleted)

        uid = owner["metadata"]["uid"]
        place = f"v1/ConfigMap, namespace: other, name: owner, uid: {uid}"
        text = f'ownerRef [{place}] does not exist in namespace "other"'
        assert await foreign_owner_events(client) == [("other", name, text)]


async def test_the_collector_s_index_holds_no_owner_of_a_deleted_object(server: ApiServer) -> None:
    client = server.local()
    await make(client, "first")
    collector = GarbageCollector(server.context)
    await collector.list_keys()
    feed = server.context.store.changes("", server.context.store.rev)
    before = index_size(collector)
    invented = [{"metadata": {"name": "x", "uid": f"invented-{number}"}} for number in range(50)]
    await make(client, "updated", *invented)
    await client.patch(ref("updated"), {"metadata": {"ownerReferences": None}})
    await client.delete(ref("updated"))
    await make(client, "deleted", *invented, finalizers=("x.io/y",))
    await client.delete(ref("deleted"))
    await client.patch(ref("deleted"), {"metadata": {"finalizers": None}})
    owner = await make(client, "owner")
    await make(client, "child", owner)
    await client.delete(ref("owner"))
    await client.delete(ref("child"))
    sizes = []
    while server.context.store.rev:
        change = await feed.next()
        assert change is not None
        collector.keys_of_change(change)
        sizes.append(index_size(collector))
        if change.rev == server.context.store.rev:
            break

    assert max(sizes) > before  # it was counted
    assert sizes[-1] == before


def index_size(collector: GarbageCollector) -> int:
    """How many objects the collector refers to, of every kind that it makes."""
    return sum(len(value) for value in vars(collector).values() if isinstance(value, dict))


async def test_owner_references_are_bounded_in_number(api: Api) -> None:
    def owners(count: int) -> list[dict[str, str]]:
        one = {"apiVersion": "v1", "kind": "Node", "name": "n"}
        return [{**one, "uid": f"u{number}"} for number in range(count)]

    status, answer = await api.json("POST", MAPS, {"metadata": {"name": "m", "ownerReferences": owners(101)}})
    made = await api("POST", MAPS, {"metadata": {"name": "m", "ownerReferences": owners(100)}})
    grown, _ = await api.json(
        "PATCH", MAPS + "/m", {"metadata": {"ownerReferences": owners(101)}}, media=MERGE_PATCH
    )

    assert (status, made.status, grown) == (422, 201, 422)
    assert answer["details"]["causes"] == [
        {
            "reason": "FieldValueTooMany",
            "message": "Too many: 101: must have at most 100 items",
            "field": "metadata.ownerReferences",
        }
    ]


async def test_an_object_with_more_owners_from_before_can_still_be_written(
    server: ApiServer, api: Api
) -> None:
    owners = [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": f"u{number}"} for number in range(102)]
    await api("POST", MAPS, {"metadata": {"name": "m"}})
    (entry,) = await server.context.entries(CONFIG_MAP)
    raw = {**entry.raw, "metadata": {**entry.raw["metadata"], "ownerReferences": owners}}
    await server.context.store.commit(entry.key, raw, entry.rev)

    kept = await api("PATCH", MAPS + "/m", {"data": {"x": "y"}}, media=MERGE_PATCH)
    fewer = await api("PATCH", MAPS + "/m", {"metadata": {"ownerReferences": owners[1:]}}, media=MERGE_PATCH)
    more = await api("PATCH", MAPS + "/m", {"metadata": {"ownerReferences": owners}}, media=MERGE_PATCH)

    assert (kept.status, fewer.status, more.status) == (200, 200, 422)
