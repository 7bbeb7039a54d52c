"""Forms of an answer: tables, metadata, discovery, OpenAPI (reference/05 §7.2, §7.3, §7.4, §7.13)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.core.formats.fastjson import loads
from windrow.kubernetes.requests import Reply, Request

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
Api = Any


async def test_a_list_becomes_a_table_with_ages_made_here(api: Api, clock: Any) -> None:
    await api("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "data": {"a": ""}})
    clock.instant += timedelta(minutes=5)

    _, table = await api.json("GET", "/api/v1/secrets", accept=TABLE)

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
    assert table["rows"][0]["cells"] == ["s", "Opaque", 1, "5m"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert table["metadata"]["resourceVersion"]


async def test_an_object_of_the_future_has_no_age(api: Api, clock: Any) -> None:
    await api("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    clock.instant -= timedelta(minutes=5)

    _, table = await api.json("GET", "/api/v1/secrets", accept=TABLE)

    assert table["rows"][0]["cells"][-1] == "<invalid>"


@pytest.mark.parametrize(
    ("include", "kind"), [("None", None), ("Object", "Secret"), ("Metadata", "PartialObjectMetadata")]
)
async def test_a_row_carries_what_is_asked(api: Api, include: str, kind: str | None) -> None:
    await api("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})

    _, table = await api.json("GET", f"/api/v1/secrets?includeObject={include}", accept=TABLE)

    carried = table["rows"][0]["object"]
    assert (carried and carried["kind"]) == kind


async def test_printer_columns_of_a_definition_are_used(
    a_server: Callable[..., ApiServer], api_as: Any, widget_crd: Any
) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "First", "type": "string", "jsonPath": ".spec.tags[0]"},
        {"name": "Tags", "type": "string", "jsonPath": ".spec.tags"},
        {
            "name": "Note",
            "type": "string",
            "jsonPath": r".metadata.annotations.example\.io/note",
            "priority": 1,
        },
        {"name": "Created", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    api = api_as(a_server(crds=[widget_crd(additionalPrinterColumns=columns)]))
    body = {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "annotations": {"example.io/note": "hi"}},
        "spec": {"size": 3, "tags": ["x", "y"]},
    }
    path = "/apis/example.io/v1/namespaces/default/widgets"
    await api("POST", path, body)

    _, table = await api.json("GET", path, accept=TABLE)

    assert table["rows"][0]["cells"] == ["w", 3, None, "x", '["x","y"]', "hi", "0s"]
    assert table["columnDefinitions"][5]["priority"] == 1


async def test_bare_metadata_may_be_asked_for(api: Api) -> None:
    await api(
        "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}, "data": {"a": "b"}}
    )
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

    _, answer = await api.json("GET", "/api/v1/namespaces/default/configmaps", accept=accept)

    assert answer["kind"] == "PartialObjectMetadataList"
    assert list(answer["items"][0]) == ["kind", "apiVersion", "metadata"]


@pytest.mark.parametrize(
    ("accept", "code", "media"),
    [
        ("*/*", 200, "application/json"),
        ("application/vnd.kubernetes.protobuf,application/json", 200, "application/json"),
        ("application/yaml", 200, "application/yaml"),
        ("application/vnd.kubernetes.protobuf", 406, "application/json"),
        ("text/html", 406, "application/json"),
    ],
)
async def test_the_first_form_that_can_be_served_is(api: Api, accept: str, code: int, media: str) -> None:
    reply = await api("GET", "/api/v1/namespaces", accept=accept)

    assert (reply.status, reply.content_type) == (code, media)


async def test_legacy_discovery_lists_resources_and_their_subresources(api: Api) -> None:
    _, listed = await api.json("GET", "/apis/example.io/v1")
    _, group = await api.json("GET", "/apis/example.io")

    by_name = {one["name"]: one for one in listed["resources"]}
    assert by_name["widgets"]["shortNames"] == ["wd"]
    assert by_name["widgets"]["verbs"] == [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ]
    assert by_name["widgets/status"]["kind"] == "Widget"
    assert group["preferredVersion"] == {"groupVersion": "example.io/v1", "version": "v1"}


async def test_aggregated_discovery_names_a_kind_for_everything(api: Api) -> None:
    reply: Reply = await api("GET", "/apis", accept=V2)
    again: Reply = await api("GET", "/apis", accept=V2, If_None_Match=reply.headers["ETag"])

    groups = {group["metadata"]["name"]: group for group in loads(reply.body)["items"]}
    assert reply.content_type == again.content_type == V2
    assert again.status == 304
    for group in groups.values():
        for version in group["versions"]:
            for resource in version["resources"]:
                assert resource["responseKind"]["kind"]
                assert all(sub["responseKind"]["kind"] for sub in resource.get("subresources", []))
    assert groups["example.io"]["versions"][0]["resources"][0]["scope"] == "Namespaced"


async def test_subresource_handlers_are_discovered_and_called(server: ApiServer, api: Api) -> None:
    async def start(request: Any, ref: Any, caller: Any) -> Reply:
        return Reply(
            202, f"{request.method} {ref.namespace}/{ref.name} by {caller.username}".encode(), "text/plain"
        )

    server.subresource_handlers["widgets.subresources.example.io", "start"] = start

    reply = await api("PUT", "/apis/subresources.example.io/v1/namespaces/default/widgets/w/start")
    _, listed = await api.json("GET", "/apis/subresources.example.io/v1")

    assert (reply.status, reply.body) == (202, b"PUT default/w by system:admin")
    assert [(one["name"], one["kind"]) for one in listed["resources"]] == [("widgets/start", "Widget")]


async def test_a_route_answers_everything_below_its_prefix(server: ApiServer, api: Api) -> None:
    async def answer(request: Any, caller: Any) -> Reply:
        return Reply(200, request.path.encode(), "text/plain")

    server.routes["/v3/import"] = answer

    assert (await api("GET", "/v3/import/x.yaml")).body == b"/v3/import/x.yaml"
    assert (await api("GET", "/v3/important")).status == 404


async def test_every_resource_has_the_patch_operation_that_kubectl_requires(api: Api) -> None:
    _, index = await api.json("GET", "/openapi/v3")
    _, document = await api.json("GET", index["paths"]["apis/example.io/v1"]["serverRelativeURL"])

    operation = document["paths"]["/apis/example.io/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert operation["x-kubernetes-group-version-kind"] == {
        "group": "example.io",
        "version": "v1",
        "kind": "Widget",
    }
    assert "fieldValidation" in [parameter["name"] for parameter in operation["parameters"]]


async def test_the_version_document_has_the_configured_version(
    a_server: Callable[..., ApiServer], api_as: Any
) -> None:
    _, answer = await api_as(a_server(version="v1.33.7+k3s1")).json("GET", "/version")

    assert (answer["major"], answer["minor"], answer["gitVersion"]) == ("1", "33", "v1.33.7+k3s1")


async def test_openapi_v2_is_served_to_kubectl_which_finds_no_unknown_kind_in_it(api: Api) -> None:
    """As gnostic's protobuf: swagger 2.0, info, no path."""
    reply = await api(
        "GET", "/openapi/v2", accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    )
    status, document = await api.json("GET", "/openapi/v2")

    assert reply.content_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert reply.body.startswith(b"\x0a\x032.0\x12\x1c\x0a\x0aKubernetes\x12\x0e")
    assert reply.body.endswith(b"\x42\x00")
    assert (status, document["swagger"], document["paths"]) == (200, "2.0", {})


@pytest.mark.parametrize(
    ("method", "subresource"), [("POST", "exec"), ("GET", "log"), ("POST", "portforward")]
)
async def test_what_leads_into_a_container_is_said_not_to_be_implemented(
    api: Api, method: str, subresource: str
) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    missing, _ = await api.json(method, f"/api/v1/namespaces/default/pods/p/{subresource}")
    await api("POST", "/api/v1/namespaces/default/pods", pod)

    status, answer = await api.json(method, f"/api/v1/namespaces/default/pods/p/{subresource}")

    assert (missing, status, answer["reason"]) == (404, 501, "NotImplemented")
    assert answer["message"].startswith(f"pods/{subresource} is not implemented: ")


async def test_a_server_that_cannot_store_is_alive_and_not_ready(api: Api, server: ApiServer) -> None:
    def fail() -> None:
        raise OSError("database or disk is full")

    server.store.check_writable = fail  # type: ignore[method-assign]
    full = ApiServer(server.store, server.context.clock, server.context.rng)
    answers = {
        path: await full.local().send(Request("GET", path)) for path in ("/livez", "/readyz", "/healthz")
    }

    assert {path: reply.status for path, reply in answers.items()} == {
        "/livez": 200,
        "/readyz": 500,
        "/healthz": 500,
    }
    assert b"storage failed: database or disk is full" in answers["/readyz"].body
