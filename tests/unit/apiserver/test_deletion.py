"""Deletes, finalizers, ownership, namespaces (reference/05 §7.11)."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.server import ApiServer
from windrow.kubernetes.errors import AlreadyExists, Conflict, Forbidden, NotFound
from windrow.kubernetes.objects import owner_reference
from windrow.kubernetes.resources import CONFIG_MAP, CRD, NAMESPACE, SECRET, SERVICE_ACCOUNT, ApiResource

MAPS = "/api/v1/namespaces/default/configmaps"
WIDGET = ApiResource("example.io", "v1", "Widget", "widgets")
Ask = Any


def ref(name: str) -> Any:
    return CONFIG_MAP.ref(name, "default")


async def make(
    api: LoopbackClient, name: str, *owners: Any, finalizers: tuple[str, ...] = (), block: bool = False
) -> Any:
    references = [owner_reference(CONFIG_MAP, owner, block=block) for owner in owners]
    raw = {"metadata": {"name": name, "ownerReferences": references, "finalizers": list(finalizers)}}
    return await api.create(CONFIG_MAP, raw, "default")


def is_gone(api: LoopbackClient, *names: str) -> Any:
    async def question() -> bool:
        return all([await api.find(ref(name)) is None for name in names])

    return question


async def test_a_plain_delete_answers_with_a_status(ask: Ask) -> None:
    _, made = await ask.json("POST", MAPS, {"metadata": {"name": "m"}})

    status, answer = await ask.json("DELETE", MAPS + "/m")
    again, _ = await ask.json("DELETE", MAPS + "/m")

    assert (status, again, answer["status"]) == (200, 404, "Success")
    assert answer["details"] == {"name": "m", "kind": "configmaps", "uid": made["metadata"]["uid"]}


async def test_a_finalizer_holds_the_object_until_it_is_taken_away(server: ApiServer) -> None:
    api = server.local()
    await make(api, "m", finalizers=("x.io/y",))

    marked = await api.delete(ref("m"))
    again = await api.delete(ref("m"))
    with pytest.raises(AlreadyExists, match=r"^object is being deleted: "):
        await make(api, "m")
    await api.patch(ref("m"), {"metadata": {"finalizers": []}})

    assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:00Z"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert again == marked
    assert await api.find(ref("m")) is None


async def test_preconditions_protect_a_namesake(server: ApiServer) -> None:
    api = server.local()
    await make(api, "m")

    with pytest.raises(
        Conflict, match=r"the UID in the precondition \(other\) does not match the UID in record"
    ):
        await api.delete(ref("m"), uid="other")


async def test_options_may_come_in_the_query(ask: Ask) -> None:
    await ask("POST", MAPS, {"metadata": {"name": "m"}})

    _, answer = await ask.json("DELETE", MAPS + "/m?propagationPolicy=Foreground")
    odd, _ = await ask.json("DELETE", MAPS + "/m?propagationPolicy=Sideways")

    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert odd == 422


async def test_a_background_delete_takes_back_a_pending_foreground_one(ask: Ask) -> None:
    await ask("POST", MAPS, {"metadata": {"name": "m"}})
    await ask("DELETE", MAPS + "/m", {"propagationPolicy": "Foreground"})

    kept, _ = await ask.json("DELETE", MAPS + "/m")
    await ask("DELETE", MAPS + "/m", {"propagationPolicy": "Background"})

    assert kept == 200
    assert (await ask("GET", MAPS + "/m")).status == 404


async def test_a_collection_is_deleted_by_selection(ask: Ask) -> None:
    for name, labels in (("a", {"go": "yes"}), ("b", {}), ("c", {"go": "yes"})):
        await ask("POST", MAPS, {"metadata": {"name": name, "labels": labels}})

    _, answer = await ask.json("DELETE", MAPS + "?labelSelector=go")
    _, left = await ask.json("GET", MAPS)

    assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "c"]
    assert [item["metadata"]["name"] for item in left["items"]] == ["b"]


async def test_what_is_owned_goes_with_its_last_owner(server: ApiServer, running: Any) -> None:
    api = server.local()
    one, two = await make(api, "one"), await make(api, "two")
    await make(api, "both", one, two)
    child = await make(api, "child", one)
    await make(api, "grandchild", child)
    async with running(server) as comes_true:
        await api.delete(ref("one"))
        await comes_true(is_gone(api, "child", "grandchild"))
        both = await api.get(ref("both"))
        assert [owner["name"] for owner in both["metadata"]["ownerReferences"]] == ["two"]

        await api.delete(ref("two"))
        await comes_true(is_gone(api, "both"))


async def test_an_owner_of_another_uid_is_no_owner(server: ApiServer, running: Any) -> None:
    api = server.local()
    owner = await make(api, "owner")
    owner["metadata"]["uid"] = "of-another-life"
    async with running(server) as comes_true:
        await make(api, "child", owner)
        await comes_true(is_gone(api, "child"))


async def test_an_owner_of_a_kind_not_served_is_unknown_not_gone(server: ApiServer, running: Any) -> None:
    api = server.local()
    owner = {"apiVersion": "no.where/v1", "kind": "Thing", "name": "x", "uid": "u"}
    async with running(server) as comes_true:
        await api.create(CONFIG_MAP, {"metadata": {"name": "child", "ownerReferences": [owner]}}, "default")
        stray = await make(api, "stray", {"metadata": {"name": "gone", "uid": "gone"}})
        await comes_true(is_gone(api, stray["metadata"]["name"]))

        assert await api.find(ref("child")) is not None


async def test_in_the_foreground_blocking_dependents_go_first(server: ApiServer, running: Any) -> None:
    api = server.local()
    owner = await make(api, "owner")
    await make(api, "held", owner, finalizers=("x.io/y",), block=True)
    async with running(server) as comes_true:
        await api.delete(ref("owner"), propagation="Foreground")

        async def held_is_leaving() -> bool:
            return "deletionTimestamp" in (await api.get(ref("held")))["metadata"]

        await comes_true(held_is_leaving)
        assert await api.find(ref("owner")) is not None
        # The dependent's own finalizer goes; the one of the collector stays its own business.
        held = await api.get(ref("held"))
        left = [one for one in held["metadata"]["finalizers"] if one != "x.io/y"]
        await api.patch(ref("held"), {"metadata": {"finalizers": left}})
        await comes_true(is_gone(api, "held", "owner"))


async def test_orphans_stay_and_forget_their_owner(server: ApiServer, running: Any) -> None:
    api = server.local()
    owner = await make(api, "owner")
    await make(api, "child", owner)
    async with running(server) as comes_true:
        await api.delete(ref("owner"), propagation="Orphan")
        await comes_true(is_gone(api, "owner"))

        assert "ownerReferences" not in (await api.get(ref("child")))["metadata"]


async def test_a_deleted_namespace_is_emptied_and_then_gone(server: ApiServer, running: Any) -> None:
    api = server.local()
    async with running(server) as comes_true:
        await api.create(NAMESPACE, {"metadata": {"name": "team"}})
        await api.create(CONFIG_MAP, {"metadata": {"name": "m", "finalizers": ["x.io/y"]}}, "team")
        await api.create(SECRET, {"metadata": {"name": "s"}}, "team")

        leaving = await api.delete(NAMESPACE.ref("team"))
        assert leaving["status"]["phase"] == "Terminating"

        async def only_the_held_one_is_left() -> bool:
            return await api.find(SECRET.ref("s", "team")) is None

        await comes_true(only_the_held_one_is_left)
        with pytest.raises(
            Forbidden, match="unable to create new content in namespace team because it is being term"
        ):
            await api.create(CONFIG_MAP, {"metadata": {"name": "late"}}, "team")
        await api.patch(CONFIG_MAP.ref("m", "team"), {"metadata": {"finalizers": None}})

        async def namespace_is_gone() -> bool:
            return await api.find(NAMESPACE.ref("team")) is None

        await comes_true(namespace_is_gone)


async def test_every_namespace_gets_an_account_and_the_ca(server: ApiServer, running: Any) -> None:
    server.root_ca = "PEM"
    api = server.local()
    async with running(server) as comes_true:
        await api.create(NAMESPACE, {"metadata": {"name": "team"}})

        async def furnished() -> bool:
            bundle = await api.find(CONFIG_MAP.ref("kube-root-ca.crt", "team"))
            account = await api.find(SERVICE_ACCOUNT.ref("default", "team"))
            return account is not None and bundle is not None and bundle["data"] == {"ca.crt": "PEM"}

        await comes_true(furnished)


async def test_a_definition_takes_its_objects_along(server: ApiServer, running: Any) -> None:
    api = server.local()
    await api.create(WIDGET, {"metadata": {"name": "w"}, "spec": {"size": 1}}, "default")
    async with running(server) as comes_true:
        await api.delete(CRD.ref("widgets.example.io"))

        async def not_served() -> bool:
            return await api.find(CRD.ref("widgets.example.io")) is None

        await comes_true(not_served)
        with pytest.raises(NotFound, match="the server could not find the requested resource"):
            await api.list(WIDGET, "default")
