"""ApiServer through LoopbackClient."""

from __future__ import annotations

import pytest

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.app.clock import SystemClock
from windrow.core.rng import Rng
from windrow.kubernetes import resources
from windrow.kubernetes.errors import AlreadyExists, Conflict, NotFound


def a_server(**options: object) -> ApiServer:
    return ApiServer(MemoryStore(), SystemClock(), Rng(1), **options)  # type: ignore[arg-type]


def a_map(name: str = "m", **data: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": data}


async def test_what_is_created_can_be_read_back() -> None:
    api = a_server().local()

    made = await api.create(resources.CONFIG_MAP, a_map(a="b"), "default")

    assert made == await api.get(resources.CONFIG_MAP.ref("m", "default"))
    assert made["data"] == {"a": "b"}
    assert made["metadata"]["uid"]


async def test_a_callers_dict_never_becomes_the_stored_one() -> None:
    api = a_server().local()
    given = a_map(a="b")
    made = await api.create(resources.CONFIG_MAP, given, "default")

    given["data"]["a"] = "changed"  # type: ignore[index]
    made["data"]["a"] = "changed too"

    assert (await api.get(resources.CONFIG_MAP.ref("m", "default")))["data"] == {"a": "b"}


async def test_a_second_create_of_one_name_is_refused() -> None:
    api = a_server().local()
    await api.create(resources.CONFIG_MAP, a_map(), "default")

    with pytest.raises(AlreadyExists, match='configmaps "m" already exists'):
        await api.create(resources.CONFIG_MAP, a_map(), "default")


async def test_content_needs_its_namespace() -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await a_server().local().create(resources.CONFIG_MAP, a_map(), "nowhere")


async def test_an_update_that_changes_nothing_keeps_the_version() -> None:
    api = a_server().local()
    made = await api.create(resources.CONFIG_MAP, a_map(a="b"), "default")

    again = await api.update(resources.CONFIG_MAP, made)

    assert again == made


async def test_an_update_of_an_old_version_conflicts() -> None:
    api = a_server().local()
    made = await api.create(resources.CONFIG_MAP, a_map(a="b"), "default")
    await api.patch(resources.CONFIG_MAP.ref("m", "default"), {"data": {"a": "c"}})

    with pytest.raises(
        Conflict, match='Operation cannot be fulfilled on configmaps "m": the object has been'
    ):
        await api.update(resources.CONFIG_MAP, {**made, "data": {"a": "d"}})
