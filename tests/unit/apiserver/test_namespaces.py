"""What the namespace controller reconciles, and what it leaves in a namespace that goes."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.controllers.namespaces import ROOT_CA, NamespaceController
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.port import Change, Entry
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT

KEY = "/namespaces/team"
REF = NAMESPACE.ref("team")
REMAINING = "NamespaceContentRemaining"


def controller(server: ApiServer, root_ca: str = "PEM") -> NamespaceController:
    return NamespaceController(server.context, lambda: root_ca)


def keys(controller: NamespaceController, key: str, *, gone: bool) -> list[Any]:
    entry = Entry(key, 2, {})
    return list(controller.keys_of_change(Change(2, key, entry, None if gone else entry, entry)))


@pytest.mark.parametrize(
    ("key", "gone", "affected"),
    [
        (KEY, False, [("team",)]),
        (KEY, True, [("team",)]),
        ("example.io/namespaces/team", False, []),
        ("/serviceaccounts/team/default", True, [("team",)]),
        (f"/configmaps/team/{ROOT_CA}", True, [("team",)]),
        ("/serviceaccounts/team/default", False, []),
        ("/configmaps/team/m", True, []),
    ],
)
async def test_a_namespace_is_reconciled_when_it_changes_or_loses_what_each_has(
    server: ApiServer, key: str, gone: bool, affected: list[Any]
) -> None:
    assert keys(controller(server), key, gone=gone) == affected


async def deleted(server: ApiServer, **head: Any) -> None:
    client = server.local()
    await client.create(NAMESPACE, {"metadata": {"name": "team"}})
    await client.create(CONFIG_MAP, {"metadata": {"name": "m", **head}}, "team")
    await client.delete(REF)


async def test_a_namespace_that_goes_is_reconciled_with_each_object_of_it_that_goes(
    server: ApiServer,
) -> None:
    found = controller(server)
    await deleted(server, finalizers=["x.io/y"])
    await found.reconcile(("team",))
    meanwhile = [keys(found, f"/configmaps/{where}/m", gone=gone) for where, gone in PLACES]
    await server.local().patch(CONFIG_MAP.ref("m", "team"), {"metadata": {"finalizers": []}})
    await found.reconcile(("team",))
    await found.reconcile(("team",))

    assert meanwhile == [[("team",)], [], []]
    assert await server.local().find(REF) is None
    assert keys(found, "/configmaps/team/m", gone=True) == []


PLACES = (("team", True), ("team", False), ("other", True))


async def test_a_namespace_says_what_holds_it_and_goes_when_nothing_does(server: ApiServer) -> None:
    found, client = controller(server), server.local()
    await deleted(server, finalizers=["x.io/y"])
    await found.reconcile(("team",))
    held = await client.get(REF)
    before = server.store.rev
    await found.reconcile(("team",))

    assert held["spec"] == {"finalizers": ["kubernetes"]}
    assert held["status"]["phase"] == "Terminating"
    assert told(held) == ("True", "SomeResourcesRemain", "1 kinds of resources remain")
    assert server.store.rev == before


def told(namespace: Raw) -> tuple[str, str, str]:
    condition = find_condition(namespace["status"]["conditions"], REMAINING)
    assert condition is not None
    return condition.status, condition.reason, condition.message


async def test_a_namespace_with_a_finalizer_of_another_is_empty_and_stays(server: ApiServer) -> None:
    client = server.local()
    await client.create(NAMESPACE, {"metadata": {"name": "team", "finalizers": ["x.io/y"]}})
    await client.create(CONFIG_MAP, {"metadata": {"name": "m"}}, "team")
    await client.delete(REF)

    await controller(server).reconcile(("team",))

    raw = await client.get(REF)
    assert raw["metadata"]["finalizers"] == ["x.io/y"]
    assert raw.get("spec", {}) == {}
    assert told(raw) == ("False", "ContentRemoved", "All content successfully removed")
    assert await client.list(CONFIG_MAP, "team") == []


async def test_a_namespace_that_was_stored_without_status_or_spec_goes(server: ApiServer) -> None:
    await server.local().create(NAMESPACE, {"metadata": {"name": "team"}})
    entry = await server.store.find(KEY)
    assert entry is not None
    bare = {name: value for name, value in entry.raw.items() if name not in ("spec", "status")}
    head = {**entry.raw["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": ["x.io/y"]}
    await server.store.commit(KEY, {**bare, "metadata": head}, entry.rev)

    await controller(server).reconcile(("team",))

    raw = await server.local().get(REF)
    assert (raw["status"]["phase"], told(raw)[0]) == ("Terminating", "False")
    await server.local().patch(REF, {"metadata": {"finalizers": []}})
    await controller(server).reconcile(("team",))
    assert await server.local().find(REF) is None


@pytest.mark.parametrize(("root_ca", "maps"), [("PEM", [ROOT_CA]), ("", [])])
async def test_a_namespace_has_an_account_and_the_ca_where_there_is_one(
    server: ApiServer, root_ca: str, maps: list[str]
) -> None:
    client = server.local()
    await client.create(NAMESPACE, {"metadata": {"name": "team"}})
    for _ in range(2):
        await controller(server, root_ca).reconcile(("team",))

    assert [raw["metadata"]["name"] for raw in await client.list(SERVICE_ACCOUNT, "team")] == ["default"]
    assert [raw["metadata"]["name"] for raw in await client.list(CONFIG_MAP, "team")] == maps


async def test_a_ca_that_is_there_is_not_overwritten(server: ApiServer) -> None:
    client = server.local()
    await client.create(NAMESPACE, {"metadata": {"name": "team"}})
    await client.create(CONFIG_MAP, {"metadata": {"name": ROOT_CA}, "data": {"ca.crt": "MINE"}}, "team")

    await controller(server).reconcile(("team",))

    assert (await client.get(CONFIG_MAP.ref(ROOT_CA, "team")))["data"] == {"ca.crt": "MINE"}


async def test_at_the_start_every_namespace_is_reconciled(server: ApiServer) -> None:
    await server.local().create(NAMESPACE, {"metadata": {"name": "team"}})

    assert ("team",) in list(await controller(server).list_keys())
    await controller(server).reconcile(("absent",))


async def test_what_is_left_in_a_namespace_is_counted_by_its_kinds(server: ApiServer) -> None:
    client = server.local()
    await deleted(server, finalizers=["x.io/y"])
    found = controller(server)
    await found.reconcile(("team",))
    assert told(await client.get(REF))[2] == "1 kinds of resources remain"

    for kind, name in ((CONFIG_MAP, "n"), (SERVICE_ACCOUNT, "robot")):
        key = f"/{kind.plural}/team/{name}"
        raw = {"metadata": {"name": name, "namespace": "team", "uid": name, "finalizers": ["x.io/y"]}}
        await server.store.commit(key, raw, None)
    await found.reconcile(("team",))
    assert told(await client.get(REF))[2] == "2 kinds of resources remain"
