"""Metadata and TokenRequests of wrong JSON types: refused with the field in every verb, tolerated where stored."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.requests import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from windrow.kubernetes.resources import CONFIG_MAP, SERVICE_ACCOUNT

Api = Any
MAPS = "/api/v1/namespaces/default/configmaps"
WIDGETS = "/apis/example.io/v1/namespaces/default/widgets"
PLACES = {"ConfigMap": (MAPS, {}), "Widget": (WIDGETS, {"spec": {"size": 1}})}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "a"}
MALFORMED: dict[str, list[Any]] = {
    "finalizers": ["x.io/y", {"a": 1}, 7, [{}], [["x.io/y"]], [None]],
    "ownerReferences": [
        "x",
        {"a": 1},
        7,
        ["x"],
        [{}],
        [None],
        *([{**OWNER, name: bad}] for name in OWNER for bad in (["a"], {"a": 1}, 7, True)),
        [{**OWNER, "controller": "yes"}],
        [{**OWNER, "blockOwnerDeletion": [1]}],
    ],
    "labels": ["x", ["x"], 7, {"a": ["x"]}, {"a": {"b": "c"}}],
    "annotations": ["x", ["x"], 7, {"a": ["x"]}, {"a": 7}],
    "name": [["x"], {"a": 1}, 7],
    "generateName": [["x"], {"a": 1}, 7],
    "namespace": [["x"], {"a": 1}, 7],
    "uid": [["x"], {"a": 1}, 7],
    "selfLink": [["x"]],
    "deletionGracePeriodSeconds": ["x", [1], {"a": 1}],
    "generation": ["x", [1]],
    "creationTimestamp": [7, ["x"]],
    "deletionTimestamp": [7, ["x"]],
}
CASES = [(field, value) for field, values in MALFORMED.items() for value in values]


async def requests_of(api: Api, kind: str, field: str, value: Any) -> list[tuple[str, Any]]:
    """Each way to write the field: what was asked, and the reply."""
    path, rest = PLACES[kind]
    versioned = {"apiVersion": "v1" if path is MAPS else "example.io/v1", "kind": kind, **rest}
    bad = {**versioned, "metadata": {"name": "made", field: value}}
    applied = {**versioned, "metadata": {"name": "there", field: value}}
    found = await api("GET", f"{path}/there")
    stored = loads(found.body)
    changed = {**stored, "metadata": {**stored["metadata"], field: value}}
    merged = {"metadata": {field: value}}
    place = f"{path}/there"
    replies = [
        ("create", await api("POST", path, bad)),
        ("update", await api("PUT", place, changed)),
        ("merge patch", await api("PATCH", place, merged, media=MERGE_PATCH)),
        (
            "JSON patch",
            await api(
                "PATCH",
                place,
                [{"op": "add", "path": f"/metadata/{field}", "value": value}],
                media=JSON_PATCH,
            ),
        ),
        ("apply", await api("PATCH", f"{place}?fieldManager=t&force=true", applied, media=APPLY_PATCH)),
        (
            "apply of another",
            await api(
                "PATCH",
                f"{path}/made?fieldManager=t",
                {**bad, "metadata": {"name": "made", field: value}},
                media=APPLY_PATCH,
            ),
        ),
    ]
    if kind == "ConfigMap":
        replies.append(("strategic patch", await api("PATCH", place, merged, media=STRATEGIC_PATCH)))
    return replies


@pytest.mark.parametrize("kind", PLACES)
async def test_metadata_of_a_wrong_type_is_refused_with_the_field_by_every_verb(api: Api, kind: str) -> None:
    path, rest = PLACES[kind]
    version = {"ConfigMap": "v1", "Widget": "example.io/v1"}[kind]
    made = {"apiVersion": version, "kind": kind, **rest, "metadata": {"name": "there"}}
    assert (await api("POST", path, made)).status == 201

    wrong = []
    for field, value in CASES:
        for verb, reply in await requests_of(api, kind, field, value):
            text = loads(reply.body)["message"] if reply.status >= 400 else ""
            named = field in text or "does not contain declared merge key: uid" in text
            if reply.status not in (400, 409, 422) or not named:
                wrong.append((verb, field, value, reply.status, text))

    assert wrong == []


@pytest.mark.parametrize(
    "body", [{"metadata": "x"}, {"metadata": None}, {"apiVersion": ["v1"]}, {"kind": {}}]
)
async def test_a_body_of_a_wrong_shape_is_refused(api: Api, body: Any) -> None:
    await api("POST", MAPS, {"metadata": {"name": "there"}})
    typed = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there"}, **body}

    replies = [
        await api("POST", MAPS, typed),
        await api("PUT", f"{MAPS}/there", typed),
        await api("PATCH", f"{MAPS}/there?fieldManager=t", typed, media=APPLY_PATCH),
    ]

    assert {reply.status for reply in replies} == {400}


async def store_malformed(server: ApiServer, name: str, owner: dict[str, Any]) -> None:
    """An object as an older version of the server has stored it."""
    type = server.registry.find_kind(CONFIG_MAP)
    assert type is not None
    raw = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "ownerReferences": [owner]},
    }
    await server.store.commit(type.key("default", name), loads(dumps(raw)), None)


@pytest.mark.parametrize("field", ["uid", "apiVersion", "kind", "name"])
async def test_a_stored_object_with_malformed_owner_references_has_no_owners(
    server: ApiServer, run_controllers: Any, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    client = server.local()
    await server.prepare()
    await store_malformed(server, "bad", {**OWNER, field: ["a"]})

    async with run_controllers(server) as eventually:
        await client.create(
            CONFIG_MAP, {"metadata": {"name": "dependent", "ownerReferences": [OWNER]}}, "default"
        )

        async def is_collected() -> bool:
            return await client.find(CONFIG_MAP.ref("dependent", "default")) is None

        await eventually(is_collected)
        await client.delete(CONFIG_MAP.ref("bad", "default"), propagation="Foreground")

        async def is_gone() -> bool:
            return await client.find(CONFIG_MAP.ref("bad", "default")) is None

        await eventually(is_gone)

    assert "configmaps/default/bad" in caplog.text


async def test_an_object_that_a_controller_cannot_process_holds_up_no_other(
    server: ApiServer, run_controllers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = server.local()
    await server.prepare()
    type = server.registry.find_kind(SERVICE_ACCOUNT)
    assert type is not None

    async with run_controllers(server) as eventually:

        async def has_started() -> bool:
            return await client.find(SERVICE_ACCOUNT.ref("default", "default")) is not None

        await eventually(has_started)
        # No uid: no API server stores such an object.
        bare = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "a", "namespace": "default"},
        }
        entry = await server.store.commit(type.key("default", "a"), bare, None)
        await server.store.commit(entry.key, None, entry.rev)
        await client.create(
            CONFIG_MAP, {"metadata": {"name": "dependent", "ownerReferences": [OWNER]}}, "default"
        )

        async def is_collected() -> bool:
            return await client.find(CONFIG_MAP.ref("dependent", "default")) is None

        await eventually(is_collected)

    assert "serviceaccounts/default/a" in caplog.text


TOKENS = "/api/v1/namespaces/default/serviceaccounts/robot/token"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("x", "spec"),
        ({"expirationSeconds": "abc"}, "spec.expirationSeconds"),
        ({"expirationSeconds": 1e308}, "spec.expirationSeconds"),
        ({"expirationSeconds": 10**30}, "spec.expirationSeconds"),
        ({"expirationSeconds": True}, "spec.expirationSeconds"),
        ({"expirationSeconds": 3600.5}, "spec.expirationSeconds"),
        ({"audiences": "x"}, "spec.audiences"),
        ({"boundObjectRef": "str"}, "spec.boundObjectRef"),
        ({"boundObjectRef": {}}, "spec.boundObjectRef.kind"),
        ({"boundObjectRef": {"kind": ["Pod"], "name": "p"}}, "spec.boundObjectRef.kind"),
        ({"boundObjectRef": {"kind": "Pod"}}, "spec.boundObjectRef.name"),
        ({"boundObjectRef": {"kind": "Pod", "name": "p", "uid": 7}}, "spec.boundObjectRef.uid"),
        ({"boundObjectRef": {"kind": "Namespace", "name": "p"}}, "spec.boundObjectRef.kind"),
        ({"boundObjectRef": {"kind": "ServiceAccount", "name": "p"}}, "spec.boundObjectRef.kind"),
    ],
)
async def test_a_malformed_token_request_is_refused_with_the_field(
    server: ApiServer, api: Api, spec: Any, field: str
) -> None:
    await server.local().create(SERVICE_ACCOUNT, {"metadata": {"name": "robot"}}, "default")

    status, answer = await api.json("POST", TOKENS, {"spec": spec})

    assert status in (400, 422)
    assert field in answer["message"]


async def test_a_token_is_not_bound_to_another_service_account(server: ApiServer, api: Api) -> None:
    client = server.local()
    await client.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot"}}, "default")
    other = await client.create(SERVICE_ACCOUNT, {"metadata": {"name": "admin"}}, "default")
    bound = {"kind": "ServiceAccount", "name": "admin", "uid": other["metadata"]["uid"]}

    status, _ = await api.json("POST", TOKENS, {"spec": {"boundObjectRef": bound}})

    assert status == 422
