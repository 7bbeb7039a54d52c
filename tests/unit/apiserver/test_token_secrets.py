"""Secrets of type service-account-token: filled for their ServiceAccount, and deleted with it."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.controllers.tokens import NAME, TYPE, UID, TokenSecretController
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.port import Change, Entry
from windrow.core.text import encode_base64
from windrow.kubernetes.objects import Raw, uid_of
from windrow.kubernetes.resources import SECRET, SERVICE_ACCOUNT

KEY = "/secrets/default/t"
REF = SECRET.ref("t", "default")


def change(key: str, raw: Raw, *, gone: bool = False) -> Change:
    entry = Entry(key, 2, raw)
    return Change(2, key, entry, None if gone else entry, entry)


@pytest.mark.parametrize(
    ("happened", "affected"),
    [
        (change(KEY, {"type": TYPE}), [(KEY,)]),
        (change(KEY, {"type": TYPE}, gone=True), []),
        (change(KEY, {"type": "Opaque"}), []),
        (change("/configmaps/default/t", {"type": TYPE}), []),
        (change("example.io/secrets/default/t", {"type": TYPE}), []),
        (change("/serviceaccounts/default/robot", {}), []),
        (change("/serviceaccounts/default/robot", {}, gone=True), [("account", "default", "robot")]),
        (change("example.io/serviceaccounts/default/robot", {}, gone=True), []),
    ],
)
async def test_a_secret_is_reconciled_when_it_changes_or_its_account_is_gone(
    server: ApiServer, happened: Change, affected: list[Any]
) -> None:
    assert list(controller(server).keys_of_change(happened)) == affected


def controller(server: ApiServer, root_ca: str = "PEM") -> TokenSecretController:
    return TokenSecretController(server.context, server.service_account_tokens, lambda: root_ca)


async def an_account(server: ApiServer, name: str = "robot") -> str:
    return uid_of(await server.local().create(SERVICE_ACCOUNT, {"metadata": {"name": name}}, "default"))


async def a_secret(server: ApiServer, type: str = TYPE, **annotations: str) -> None:
    raw = {"metadata": {"name": "t", "annotations": annotations}, "type": type}
    await server.local().create(SECRET, raw, "default")


async def reconciled(server: ApiServer, root_ca: str = "PEM") -> Raw | None:
    await controller(server, root_ca).reconcile((KEY,))
    return await server.local().find(REF)


@pytest.mark.parametrize("root_ca", ["PEM", ""])
async def test_a_secret_gets_namespace_ca_and_a_token_of_its_account(server: ApiServer, root_ca: str) -> None:
    uid = await an_account(server)
    await a_secret(server, **{NAME: "robot"})

    raw = await reconciled(server, root_ca)

    assert raw is not None
    assert raw["metadata"]["annotations"] == {NAME: "robot", UID: uid}
    assert sorted(raw["data"]) == (["ca.crt"] if root_ca else []) + ["namespace", "token"]
    assert raw["data"]["namespace"] == encode_base64("default")
    assert raw["data"].get("ca.crt", "") == encode_base64(root_ca)


async def test_a_secret_that_is_filled_is_not_written_again(server: ApiServer) -> None:
    await an_account(server)
    await a_secret(server, **{NAME: "robot"})
    await reconciled(server)
    before = server.store.rev

    await reconciled(server)

    assert server.store.rev == before


async def test_a_new_ca_is_written_and_the_token_and_other_data_stay(server: ApiServer) -> None:
    await an_account(server)
    await a_secret(server, **{NAME: "robot"})
    await reconciled(server)
    await server.local().patch(REF, {"data": {"more": encode_base64("mine")}})
    before = await server.local().get(REF)

    raw = await reconciled(server, "NEW")

    assert raw is not None
    assert raw["data"] == {**before["data"], "ca.crt": encode_base64("NEW")}


@pytest.mark.parametrize("annotations", [{NAME: "absent"}, {NAME: "robot", UID: "of-a-namesake"}])
async def test_a_secret_of_an_account_that_is_not_there_is_deleted(
    server: ApiServer, annotations: dict[str, str]
) -> None:
    await an_account(server)
    await a_secret(server, **annotations)

    assert await reconciled(server) is None


async def test_a_secret_that_names_no_account_is_left_alone(server: ApiServer) -> None:
    # Stored directly, whatever the API would make of it.
    raw: Raw = {"metadata": {"name": "t", "namespace": "default", "uid": "u"}, "type": TYPE}
    await server.store.commit(KEY, raw, None)

    await controller(server).reconcile((KEY,))

    found = await server.store.find(KEY)
    assert found is not None
    assert found.raw == {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(found.rev)}}


async def test_the_secrets_of_an_account_go_with_it_and_no_others(
    server: ApiServer, run_controllers: Any
) -> None:
    client = server.local()
    await an_account(server)
    await an_account(server, "other")
    async with run_controllers(server) as eventually:
        for name, type, account in (
            ("t", TYPE, "robot"),
            ("kept", TYPE, "other"),
            ("opaque", "Opaque", "robot"),
        ):
            head = {"name": name, "annotations": {NAME: account}}
            await client.create(SECRET, {"metadata": head, "type": type}, "default")

        async def is_filled() -> bool:
            return bool((await client.get(REF)).get("data"))

        async def is_gone() -> bool:
            return await client.find(REF) is None

        await eventually(is_filled)
        await client.delete(SERVICE_ACCOUNT.ref("robot", "default"))
        await eventually(is_gone)

        left = [raw["metadata"]["name"] for raw in await client.list(SECRET, "default")]
        assert left == ["kept", "opaque"]


async def test_at_the_start_every_token_secret_is_reconciled(server: ApiServer) -> None:
    await an_account(server)
    await a_secret(server, **{NAME: "robot"})
    await server.local().create(SECRET, {"metadata": {"name": "opaque"}}, "default")

    assert list(await controller(server).list_keys()) == [(KEY,)]
