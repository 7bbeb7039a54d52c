"""Lists: pages, selectors, versions (reference/05 §7.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.formats.fastjson import loads
from windrow.kubernetes.requests import MERGE_PATCH, Request

MAPS = "/api/v1/namespaces/default/configmaps"
Api = Any


async def fill(api: Api, count: int) -> None:
    for number in range(count):
        labels = {"odd": "yes"} if number % 2 else {}
        await api("POST", MAPS, {"metadata": {"name": f"m{number}", "labels": labels}})


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


async def test_an_empty_list_is_a_list(api: Api) -> None:
    status, answer = await api.json("GET", MAPS)

    assert (status, answer["kind"], answer["apiVersion"], answer["items"]) == (200, "ConfigMapList", "v1", [])
    assert answer["metadata"]["resourceVersion"].isdigit()


async def test_items_of_built_in_lists_have_no_api_version_and_kind(api: Api) -> None:
    await fill(api, 1)
    await api(
        "POST",
        "/apis/example.io/v1/namespaces/default/widgets",
        {"kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}},
    )

    _, maps = await api.json("GET", MAPS)
    _, widgets = await api.json("GET", "/apis/example.io/v1/widgets")

    assert "kind" not in maps["items"][0]
    assert "apiVersion" not in maps["items"][0]
    assert (widgets["items"][0]["kind"], widgets["items"][0]["apiVersion"]) == ("Widget", "example.io/v1")


async def test_pages_show_one_moment_whatever_happens_meanwhile(api: Api) -> None:
    await fill(api, 5)
    _, first = await api.json("GET", MAPS + "?limit=2")
    await api("DELETE", MAPS + "/m3")
    await api("POST", MAPS, {"metadata": {"name": "m9"}})

    token = first["metadata"]["continue"]
    _, second = await api.json("GET", f"{MAPS}?limit=2&continue={token}")
    _, third = await api.json("GET", f"{MAPS}?limit=2&continue={second['metadata']['continue']}")

    assert first["metadata"]["remainingItemCount"] == 3
    assert [names(page) for page in (first, second, third)] == [["m0", "m1"], ["m2", "m3"], ["m4"]]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert "continue" not in third["metadata"]


async def test_pages_of_a_selection_count_no_rest(api: Api) -> None:
    await fill(api, 7)

    _, first = await api.json("GET", MAPS + "?limit=2&labelSelector=odd")
    _, second = await api.json(
        "GET", f"{MAPS}?limit=2&labelSelector=odd&continue={first['metadata']['continue']}"
    )

    assert "remainingItemCount" not in first["metadata"]
    assert (names(first), names(second)) == (["m1", "m3"], ["m5"])


async def test_a_list_of_a_compacted_revision_expires_with_a_fresh_token(
    a_server: Callable[..., ApiServer], api_as: Any
) -> None:
    store = MemoryStore()
    api = api_as(a_server(store=store))
    await fill(api, 3)
    _, first = await api.json("GET", MAPS + "?limit=1")
    await api("PATCH", MAPS + "/m0", {"data": {"a": "b"}}, media=MERGE_PATCH)
    store.compact(store.rev)

    status, expired = await api.json("GET", f"{MAPS}?limit=1&continue={first['metadata']['continue']}")
    _, rest = await api.json("GET", f"{MAPS}?continue={expired['metadata']['continue']}")

    assert (status, expired["reason"]) == (410, "Expired")
    assert expired["message"].startswith("The provided continue parameter is too old")
    assert names(rest) == ["m1", "m2"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("labelSelector=odd", ["m1", "m3"]),
        ("labelSelector=!odd", ["m0", "m2"]),
        ("labelSelector=odd!=yes", ["m0", "m2"]),
        ("labelSelector=odd in (yes,no)", ["m1", "m3"]),
        ("fieldSelector=metadata.name=m2", ["m2"]),
        ("fieldSelector=metadata.name!=m2", ["m0", "m1", "m3"]),
        ("fieldSelector=metadata.name=m2,metadata.namespace=other", []),
    ],
)
async def test_selectors_select(api: Api, query: str, wanted: list[str]) -> None:
    await fill(api, 4)

    reply = await api.local.send(request(query))

    assert names(loads(reply.body)) == wanted


def request(query: str) -> Any:
    name, _, value = query.partition("=")
    return Request("GET", MAPS, ((name, value),))


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("labelSelector=a b c", 400, "unable to parse requirement"),
        ("fieldSelector=spec.x=1", 400, '"spec.x" is not a known field selector: only "metadata.name"'),
        ("continue=nonsense!", 400, "continue key is not valid"),
        ("resourceVersion=soon", 400, "invalid resource version"),
        ("resourceVersion=99999", 504, "Timeout: Too large resource version: 99999, current: "),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        (
            "resourceVersionMatch=Exact",
            422,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
    ],
)
async def test_odd_parameters_are_refused(api: Api, query: str, code: int, message: str) -> None:
    reply = await api.local.send(request(query))

    assert reply.status == code
    assert message in loads(reply.body)["message"]


async def test_an_exact_version_shows_the_past(api: Api) -> None:
    await fill(api, 2)
    _, then = await api.json("GET", MAPS)
    await api("DELETE", MAPS + "/m0")

    version = then["metadata"]["resourceVersion"]
    _, past = await api.json("GET", f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")

    assert names(past) == ["m0", "m1"]


async def test_a_trailing_slash_changes_nothing(api: Api) -> None:
    statuses = [
        (await api("GET", path)).status
        for path in ("/api/", "/apis/", "/version/", "/healthz", "/readyz/ping")
    ]

    assert statuses == [200] * 5
