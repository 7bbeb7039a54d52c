"""What Clusters need keeps the finalizer until they are gone, and no longer where it is deleted alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG
from windrow.clusters.api.names import CLUSTER_FINALIZER, IN_USE_FINALIZER
from windrow.clusters.context import ReconcileContext
from windrow.clusters.protection import ProtectionController, list_needed, needs_finalizer
from windrow.core.rng import Rng
from windrow.kubernetes.objects import Raw, finalizers_of, new_object
from windrow.kubernetes.resources import NAMESPACE, SECRET

SECRET_REF = SECRET.ref("cc", "team")
USER = CLUSTER.ref("orchard", "team")
NEEDED = frozenset({SECRET_REF})


def a_raw_cluster(credential: str, config: Any = None, **status: Any) -> Raw:
    pools = [{"machineConfigRef": config}] if config is not None else []
    spec = {"cloudCredentialSecretName": credential, "rkeConfig": {"machinePools": pools}}
    raw = new_object(CLUSTER, "orchard", "team", spec=spec)
    raw["metadata"]["finalizers"] = [CLUSTER_FINALIZER]
    return {**raw, "status": status}


@pytest.mark.parametrize(
    ("raw", "needed"),
    [
        (a_raw_cluster("team:cc"), {SECRET_REF}),
        (a_raw_cluster("global:cc"), set()),
        (a_raw_cluster("team:a/../b"), set()),
        (a_raw_cluster("", {"name": "nc"}), {HARVESTER_CONFIG.ref("nc", "team")}),
        (a_raw_cluster("", {"name": "nc", "kind": "DigitaloceanConfig"}), set()),
        (a_raw_cluster("", {"name": "../secrets/x"}), set()),
        (a_raw_cluster("", {}), set()),
        (a_raw_cluster("", guestServiceAccount={"credential": "team:cc"}), {SECRET_REF}),
    ],
)
def test_a_cluster_needs_what_it_names_in_its_own_namespace(raw: Raw, needed: Any) -> None:
    assert list_needed(raw) == needed
    assert list_needed({**raw, "metadata": {**raw["metadata"], "finalizers": []}}) == set()


@pytest.mark.parametrize(
    ("is_needed", "is_deleting", "is_namespace_deleting", "wanted"),
    [
        (True, False, False, True),
        (True, True, True, True),
        (True, True, False, False),  # it alone is deleted
        (False, False, False, False),
        (False, True, True, False),
    ],
)
def test_the_finalizer_follows_the_use_and_the_namespace(
    is_needed: bool, is_deleting: bool, is_namespace_deleting: bool, wanted: bool
) -> None:
    found = needs_finalizer(
        is_needed=is_needed, is_deleting=is_deleting, is_namespace_deleting=is_namespace_deleting
    )
    assert found == wanted


def driven(scene: Callable[[Client, ProtectionController], Awaitable[None]]) -> None:
    """A scene with Secret team/cc; the controller runs from its first wait on."""

    async def run() -> None:
        clock, rng = LoopClock(), Rng(0)
        client = Client(ApiServer(MemoryStore(), clock, rng).local())
        await client.create(NAMESPACE, {"metadata": {"name": "team", "finalizers": ["x.io/y"]}})
        await client.create(SECRET, new_object(SECRET, "cc", "team"))
        context: Any = ReconcileContext(client, *(None,) * 3, clock, rng, None)  # type: ignore[arg-type]
        protection = ProtectionController(context)
        running = asyncio.create_task(protection.controller.run())
        try:
            await scene(client, protection)
        finally:
            running.cancel()

    run_driven(run())


async def held(client: Client) -> bool | None:
    """Whether the Secret has the finalizer; None where there is no Secret."""
    await asyncio.sleep(1)
    raw = await client.find(SECRET_REF)
    return None if raw is None else IN_USE_FINALIZER in finalizers_of(raw)


def test_two_users_hold_an_object_until_the_second_is_gone() -> None:
    async def scene(client: Client, protection: ProtectionController) -> None:
        other = CLUSTER.ref("other", "team")
        protection.on_user(USER, NEEDED)
        protection.on_user(other, NEEDED)
        assert await held(client) is True
        protection.on_user(USER, frozenset())
        assert await held(client) is True
        protection.on_user(other, frozenset())
        assert await held(client) is False

    driven(scene)


def test_in_a_namespace_that_is_deleted_an_object_stays_until_its_user_is_gone() -> None:
    async def scene(client: Client, protection: ProtectionController) -> None:
        protection.on_user(USER, NEEDED)
        assert await held(client) is True
        await client.delete(NAMESPACE.ref("team"))
        await client.delete(SECRET_REF)
        protection.on_object(SECRET_REF, frozenset({IN_USE_FINALIZER}))
        assert await held(client) is True
        protection.on_user(USER, frozenset())
        assert await held(client) is None

    driven(scene)


def test_after_a_restart_a_finalizer_without_a_user_is_removed_and_one_with_a_user_stays() -> None:
    async def scene(client: Client, protection: ProtectionController) -> None:
        await client.patch(SECRET_REF, {"metadata": {"finalizers": [IN_USE_FINALIZER]}})
        protection.on_user(USER, NEEDED)
        protection.on_object(SECRET_REF, frozenset({IN_USE_FINALIZER}))
        assert await held(client) is True
        protection.on_user(USER, frozenset())
        assert await held(client) is False
        await client.patch(SECRET_REF, {"metadata": {"finalizers": [IN_USE_FINALIZER]}})
        protection.on_object(SECRET_REF, frozenset({IN_USE_FINALIZER}))
        assert await held(client) is False

    driven(scene)


def test_an_object_of_no_user_is_left_alone() -> None:
    async def scene(client: Client, protection: ProtectionController) -> None:
        before = await client.get(SECRET_REF)
        protection.on_object(SECRET_REF, frozenset({"x.io/y"}))
        assert await held(client) is False
        assert await client.get(SECRET_REF) == before

    driven(scene)
