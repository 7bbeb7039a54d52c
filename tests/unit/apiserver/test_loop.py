"""What the server's own controllers have in common: keys, deletions by uid, finalizers, and what another write undoes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.controllers.definitions import CrdFinalizer
from windrow.apiserver.controllers.loop import Key, StoreController, controller_user, split_key
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.apiserver.storage.port import Change, Entry
from windrow.core.clock import sleep
from windrow.core.rng import Rng
from windrow.kubernetes.errors import Conflict, Unreachable
from windrow.kubernetes.resources import CONFIG_MAP

REF = CONFIG_MAP.ref("m", "default")
KEY = "/configmaps/default/m"


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("/nodes/n1", ("", "nodes", "", "n1")),
        ("/configmaps/default/m", ("", "configmaps", "default", "m")),
        ("apps/deployments/team/web", ("apps", "deployments", "team", "web")),
        ("storage.k8s.io/csinodes/n1", ("storage.k8s.io", "csinodes", "", "n1")),
    ],
)
def test_a_store_key_is_group_resource_namespace_and_name(key: str, parts: tuple[str, ...]) -> None:
    assert split_key(key) == parts


def test_a_controller_is_a_service_account_that_may_do_everything() -> None:
    user = controller_user("garbage-collector")

    assert user.username == "system:serviceaccount:kube-system:garbage-collector"
    assert user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated",
        "system:masters",
    )


async def stored(server: ApiServer, *finalizers: str) -> Entry:
    head = {"name": "m", "finalizers": list(finalizers)} if finalizers else {"name": "m"}
    await server.local().create(CONFIG_MAP, {"metadata": head}, "default")
    found = await server.store.find(KEY)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("finalizers", "is_removed", "left"),
    [
        (["x.io/a"], True, None),
        (["x.io/a", "x.io/b"], False, ["x.io/b"]),
        (["x.io/b", "x.io/a"], False, ["x.io/b"]),
    ],
)
async def test_the_object_goes_with_its_last_finalizer(
    server: ApiServer, finalizers: list[str], is_removed: bool, left: list[str] | None
) -> None:
    entry = await stored(server, *finalizers)

    assert await CrdFinalizer(server.context).remove_finalizer(entry, "x.io/a") == is_removed

    raw = await server.local().find(REF)
    assert (None if raw is None else raw["metadata"]["finalizers"]) == left


async def test_what_was_written_meanwhile_is_neither_removed_nor_overwritten(server: ApiServer) -> None:
    controller = CrdFinalizer(server.context)
    entry = await stored(server, "x.io/a")
    await server.local().patch(REF, {"data": {"a": "new"}})

    assert not await controller.remove_finalizer(entry, "x.io/a")
    assert not await controller.commit(entry, {**entry.raw, "data": {"a": "stale"}})

    raw = await server.local().get(REF)
    assert (raw["data"], raw["metadata"]["finalizers"]) == ({"a": "new"}, ["x.io/a"])


@pytest.mark.parametrize(("policy", "finalizers"), [("", ["x.io/a"]), ("Orphan", ["x.io/a", "orphan"])])
async def test_a_controller_deletes_with_the_policy_that_it_names(
    server: ApiServer, policy: str, finalizers: list[str]
) -> None:
    entry, type = await stored(server, "x.io/a"), server.registry.find_kind(CONFIG_MAP)
    assert type is not None

    await CrdFinalizer(server.context).delete(type, entry, policy)

    head = (await server.local().get(REF))["metadata"]
    assert (head["deletionTimestamp"][:4], head["finalizers"]) == ("2026", finalizers)


async def test_a_namesake_is_not_deleted_and_an_object_that_is_gone_is_no_error(server: ApiServer) -> None:
    controller, type = CrdFinalizer(server.context), server.registry.find_kind(CONFIG_MAP)
    entry: Any = await stored(server)
    assert type is not None
    await controller.delete(type, entry)
    await controller.delete(type, entry)
    await stored(server)

    with pytest.raises(Conflict, match="UID in the precondition"):
        await controller.delete(type, entry)

    assert await server.local().find(REF) is not None


class Unlucky(StoreController):
    """Reconciles one key, and does what is next in `fates`."""

    def __init__(self, server: ApiServer, clock: LoopClock, *fates: type[Exception] | None) -> None:
        super().__init__(server.context)
        self.fates, self._time = list(fates), clock
        self.tried: list[float] = []

    async def list_keys(self) -> Iterable[Key]:
        return [("one",)]

    def keys_of_change(self, change: Change) -> Iterable[Key]:
        return []

    async def reconcile(self, key: Key) -> None:
        self.tried.append(self._time.monotonic().total_seconds())
        if self.fates and (fate := self.fates.pop(0)) is not None:
            raise fate("no")
        if self.fates:
            self._queue.add_after(key, timedelta(seconds=60))


@pytest.mark.parametrize(
    ("fates", "pauses"),
    [
        ((ValueError, ValueError, ValueError, None), [1, 2, 4]),
        # A success ends the back-off.
        ((ValueError, ValueError, None, ValueError, None), [1, 2, 60, 1]),
        # What the server answers is no defect.
        ((Unreachable, Unreachable, Unreachable, None), [1, 1, 1]),
        ((ValueError,) * 12, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]),
    ],
)
def test_a_key_that_fails_is_tried_again_later_each_time_until_it_succeeds(
    fates: tuple[type[Exception] | None, ...], pauses: list[int]
) -> None:
    async def story() -> list[int]:
        clock = LoopClock()
        controller = Unlucky(ApiServer(MemoryStore(), clock, Rng(1)), clock, *fates)
        running = asyncio.create_task(controller.run())
        await sleep(clock, timedelta(hours=1))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return [round(late - early) for early, late in pairwise(controller.tried)]

    assert run_driven(story()) == pauses
