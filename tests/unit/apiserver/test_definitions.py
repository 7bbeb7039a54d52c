"""CustomResourceDefinitions that are malformed or say what is not enforced: refused, or not served where they are stored."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from windrow.apiserver.controllers.definitions import CrdFinalizer
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.port import Change, Entry
from windrow.core.formats.fastjson import dumps, loads
from windrow.core.rng import Rng
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.resources import CONFIG_MAP, CRD, ApiResource

Api = Any
WIDGET = ApiResource("example.io", "v1", "Widget", "widgets")
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.io/v1/namespaces/default/widgets"
WRONG: tuple[Any, ...] = ("x", 7, True, [], ["x"], {}, {"a": 1}, [{}], [None], None)
MORE = {
    "subresources": {
        "status": {},
        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
    },
    "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.color", "priority": 1}],
    "selectableFields": [{"jsonPath": ".spec.color"}],
}


def with_schema(crd: dict[str, Any], schema: Any) -> dict[str, Any]:
    made = deepcopy(crd)
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = {
        "a": schema
    }
    return made


def changed(value: Any) -> list[Any]:
    """The value with each of its parts replaced by each wrong one."""
    made = list(WRONG)
    if isinstance(value, dict):
        made += [{**value, name: wrong} for name, inner in value.items() for wrong in changed(inner)]
    if isinstance(value, list):
        made += [
            [*value[:index], wrong, *value[index + 1 :]]
            for index, inner in enumerate(value)
            for wrong in changed(inner)
        ]
    return made


async def test_a_definition_with_any_field_of_any_type_ends_nothing(
    a_server: Callable[..., ApiServer], api_as: Callable[..., Api], widget_crd: Callable[..., dict[str, Any]]
) -> None:
    server = a_server()
    api = api_as(server)
    right = widget_crd(**MORE)
    widget = {"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
    failed = []
    for spec in [right["spec"], *changed(right["spec"])]:
        try:
            made = await api("POST", PATH, {**right, "spec": spec})
            replies = [made]
            if made.status == 201:
                replies.append(await api("POST", f"{WIDGETS}?dryRun=All", widget))
                replies.append(
                    await api("GET", WIDGETS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
                )
                entry = await server.store.find(f"{CRD.group}/{CRD.plural}/widgets.example.io")
                assert entry is not None
                await server.store.commit(entry.key, None, entry.rev)
        except Exception as error:  # what HTTP answers with 500
            failed.append((spec, repr(error)))
        else:
            failed += [(spec, reply.body) for reply in replies if reply.status >= 500]

    assert failed == []


A = "spec.validation.openAPIV3Schema.properties[spec].properties[a]"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "strin"}, f'{A}.type: Unsupported value: "strin": supported values: "array", "boolean", "integer", "number", "object", "string"'),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, f"{A}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"),
        ({"type": "array"}, f"{A}.items: Required value: must be specified"),
        ({"type": "object", "patternProperties": {"a": {"type": "string"}}}, f"{A}.patternProperties: Forbidden: patternProperties is not supported"),
        ({"type": "object", "dependencies": {"a": ["b"]}}, f"{A}.dependencies: Forbidden: dependencies is not supported"),
        ({"$ref": "x"}, f"{A}.$ref: Forbidden: $ref is not supported"),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "foo"}, f'{A}.x-kubernetes-list-type: Unsupported value: "foo": supported values: "atomic", "set", "map"'),
        ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}, f"{A}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"),
    ],
)  # fmt: skip
async def test_a_keyword_that_is_not_enforced_is_refused(
    a_server: Callable[..., ApiServer],
    api_as: Callable[..., Api],
    widget_crd: Callable[..., dict[str, Any]],
    schema: Any,
    text: str,
) -> None:
    status, answer = await api_as(a_server()).json("POST", PATH, with_schema(widget_crd(), schema))

    assert status == 422
    assert text in answer["message"]


async def test_a_stored_definition_that_cannot_be_read_is_not_served_and_ends_nothing_else(
    server: ApiServer, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    for name, spec in (("a", "x"), ("b", {"group": "b.io", "names": [], "versions": 7}), ("c", None)):
        raw = {"metadata": {"name": name, "uid": name}, "spec": spec}
        await server.store.commit(f"{CRD.group}/{CRD.plural}/{name}", loads(dumps(raw)), None)

    made = await server.local().create(CONFIG_MAP, {"metadata": {"name": "m"}}, "default")

    assert made["metadata"]["name"] == "m"
    assert (await api("GET", WIDGETS)).status == 200
    for name in "abc":
        assert f"customresourcedefinitions/{name} is malformed" in caplog.text


@pytest.mark.parametrize("finalizers", [{}, {"finalizers": None}, {"finalizers": ["x.io/y"]}])
async def test_a_definition_that_the_finalizer_does_not_hold_is_left_alone(
    server: ApiServer, finalizers: dict[str, Any]
) -> None:
    key = f"{CRD.group}/{CRD.plural}/widgets.example.io"
    await server.prepare()
    entry = await server.store.find(key)
    assert entry is not None
    head = {name: value for name, value in entry.raw["metadata"].items() if name != "finalizers"}
    head |= {"deletionTimestamp": "2026-01-01T12:00:00Z", **finalizers}
    marked = await server.store.commit(key, {**entry.raw, "metadata": head}, entry.rev)

    await CrdFinalizer(server.context).reconcile((key,))

    left = await server.store.find(key)
    assert left is not None
    assert left.rev == marked.rev


async def test_a_deleted_definition_that_is_not_served_goes(server: ApiServer) -> None:
    key = f"{CRD.group}/{CRD.plural}/widgets.example.io"
    await server.local().delete(CRD.ref("widgets.example.io"))
    for type in [one for one in server.registry if one.kind.plural == "widgets"]:
        server.registry.remove(type)

    await CrdFinalizer(server.context).reconcile((key,))

    assert await server.store.find(key) is None


def change(key: str, raw: dict[str, Any], *, gone: bool = False) -> Change:
    entry = Entry(key, 2, raw)
    return Change(2, key, entry, None if gone else entry, entry)


async def test_a_definition_that_is_deleted_is_reconciled_with_each_object_of_it_that_goes(
    server: ApiServer,
) -> None:
    client, controller = server.local(), CrdFinalizer(server.context)
    key = f"{CRD.group}/{CRD.plural}/widgets.example.io"
    head = {"name": "w", "finalizers": ["x.io/y"]}
    await client.create(WIDGET, {"metadata": head, "spec": {"size": 1}}, "default")
    widget = "example.io/widgets/default/w"
    before = list(controller.keys_of_change(change(widget, {}, gone=True)))
    await client.delete(CRD.ref("widgets.example.io"))
    await controller.reconcile((key,))

    assert before == []
    assert list(controller.keys_of_change(change(widget, {}, gone=True))) == [(key,)]
    assert list(controller.keys_of_change(change(widget, {}))) == []
    assert list(controller.keys_of_change(change("other.io/widgets/default/w", {}, gone=True))) == []
    assert list(controller.keys_of_change(change(key, {}))) == [(key,)]
    assert list(controller.keys_of_change(change(f"x.io/{CRD.plural}/widgets.example.io", {}))) == []
    assert await server.store.find(key) is not None
    assert (await client.get(WIDGET.ref("w", "default")))["metadata"]["deletionTimestamp"]

    await client.patch(WIDGET.ref("w", "default"), {"metadata": {"finalizers": []}})
    await controller.reconcile((key,))

    assert await server.store.find(key) is None
    assert server.registry.find_resource("example.io", "widgets") is None
    assert list(controller.keys_of_change(change(widget, {}, gone=True))) == []


async def test_a_definition_with_random_numbers_of_its_own_changes_no_other_uid(
    a_server: Callable[..., ApiServer], widget_crd: Callable[..., dict[str, Any]]
) -> None:
    plain, other, third = a_server(), a_server(), a_server()
    other.install_crd(widget_crd(), Rng("apart"))
    third.install_crd(widget_crd())
    made = {"metadata": {"name": "x"}}

    uids = [
        (await server.local().create(CONFIG_MAP, made, "default"))["metadata"]["uid"]
        for server in (plain, other, third)
    ]

    assert uids[0] == uids[1] != uids[2]


async def test_after_the_objects_were_replaced_the_definitions_among_them_are_served(
    a_server: Callable[..., ApiServer], widget_crd: Callable[..., dict[str, Any]]
) -> None:
    server = a_server()
    server.install_crd(widget_crd())
    await server.prepare()
    type = server.registry.find_kind(CRD)
    assert type is not None
    entry = await server.store.find(type.key("", WIDGET.group_resource))
    assert entry is not None
    await server.store.commit(entry.key, None, entry.rev)
    server.forget_definitions()
    with pytest.raises(NotFound):
        await server.local().list(WIDGET)

    await server.store.commit(entry.key, entry.raw, None)
    server.forget_definitions()

    assert await server.local().list(WIDGET) == []
