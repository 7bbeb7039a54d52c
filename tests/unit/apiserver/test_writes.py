"""Create, update, patch: what the server owns, and what it refuses (reference/05 §7.6, §7.7, §7.10, §7.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windrow.apiserver.admission import AdmissionRequest
from windrow.apiserver.apierrors import bad_request
from windrow.apiserver.server import ApiServer
from windrow.kubernetes.requests import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
WIDGETS = "/apis/example.io/v1/namespaces/default/widgets"
Api = Any


def a_map(name: str = "m", **rest: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **rest}


def widget(
    name: str = "w", *, meta: dict[str, Any] | None = None, status: Any = None, **spec: Any
) -> dict[str, Any]:
    raw = {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {"name": name, **(meta or {})},
        "spec": {"size": 1, **spec},
    }
    return raw | ({"status": status} if status is not None else {})


async def test_a_create_answers_201_and_what_the_server_owns_is_its_own(api: Api) -> None:
    sent = a_map(
        metadata={
            "name": "m",
            "uid": "mine",
            "resourceVersion": "7000",
            "creationTimestamp": "2000-01-01T00:00:00Z",
        }
    )

    status, made = await api.json("POST", MAPS, sent)

    head = made["metadata"]
    assert status == 201
    assert head["uid"] != "mine"
    assert head["resourceVersion"] != "7000"
    assert head["creationTimestamp"] == "2026-01-01T12:00:00Z"
    assert head["namespace"] == "default"


async def test_a_generated_name_is_its_base_and_five_characters(api: Api) -> None:
    _, made = await api.json("POST", MAPS, {"metadata": {"generateName": "x" * 70}})

    assert made["metadata"]["name"].startswith("x" * 58)
    assert len(made["metadata"]["name"]) == 63


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "message"),
    [
        (
            "POST",
            MAPS,
            {"metadata": {}},
            422,
            'ConfigMap "" is invalid: metadata.name: Required value: name or',
        ),
        (
            "POST",
            MAPS,
            {"metadata": {"name": "A_b"}},
            422,
            'metadata.name: Invalid value: "A_b": a lowercase RFC 1123',
        ),
        (
            "POST",
            MAPS,
            {"metadata": {"name": "m", "namespace": "other"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "POST",
            MAPS,
            {"metadata": {"name": "m", "labels": {"a": "b c"}}},
            422,
            "metadata.labels: Invalid value",
        ),
        ("POST", MAPS, b"{", 400, "not valid JSON"),
        ("POST", "/api/v1/namespaces/no/configmaps", a_map(), 404, 'namespaces "no" not found'),
        ("GET", MAPS + "/x", None, 404, 'configmaps "x" not found'),
        ("GET", "/apis/nowhere/v1/things", None, 404, "the server could not find the requested resource"),
        (
            "PUT",
            MAPS + "/x",
            a_map("y"),
            400,
            "the name of the object (y) does not match the name on the URL (x)",
        ),
        (
            "POST",
            WIDGETS,
            widget(size=0),
            422,
            'Widget.example.io "w" is invalid: spec.size: Invalid value: 0',
        ),
        ("POST", "/api/v1/configmaps", a_map(), 405, "the server does not allow this method"),
        ("DELETE", "/api/v1/namespaces/kube-system", None, 403, "this namespace may not be deleted"),
        ("POST", MAPS, a_map(data={"a": 1}), 400, "json: cannot unmarshal number into Go struct field"),
        (
            "POST",
            "/api/v1/namespaces/default/secrets",
            {"metadata": {"name": "s"}, "data": {"a": "*"}},
            400,
            "illegal base64 data at input byte 0",
        ),
    ],
)
async def test_an_error_has_the_code_and_message_of_kube_apiserver(
    api: Api, method: str, path: str, body: Any, code: int, message: str
) -> None:
    status, answer = await api.json(method, path, body)

    assert status == answer["code"] == code
    assert answer["kind"] == "Status"
    assert message in answer["message"]


async def test_an_update_without_a_version_is_for_built_in_types_only(api: Api) -> None:
    await api("POST", MAPS, a_map())
    await api("POST", WIDGETS, widget())

    built_in, _ = await api.json("PUT", MAPS + "/m", a_map(data={"a": "b"}))
    custom, answer = await api.json("PUT", WIDGETS + "/w", widget(size=2))

    assert (built_in, custom) == (200, 422)
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in answer["message"]


async def test_a_foreign_uid_conflicts(api: Api) -> None:
    _, made = await api.json("POST", MAPS, a_map())

    status, answer = await api.json("PUT", MAPS + "/m", a_map(metadata={"name": "m", "uid": "other"}))

    assert status == 409
    assert f"UID in precondition: other, UID in object meta: {made['metadata']['uid']}" in answer["message"]


async def test_the_main_url_ignores_status_and_the_status_url_all_else(api: Api) -> None:
    _, made = await api.json("POST", WIDGETS, widget(status={"phase": "sent"}))
    version = {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"x": "y"}}

    _, after = await api.json(
        "PUT", WIDGETS + "/w/status", widget(meta=version, status={"phase": "up"}, size=9)
    )
    _, last = await api.json("PATCH", WIDGETS + "/w", {"status": {"phase": "no"}}, media=MERGE_PATCH)

    assert "status" not in made
    assert after["status"] == last["status"] == {"phase": "up"}
    assert after["spec"]["size"] == 1
    assert "labels" not in after["metadata"]


async def test_the_generation_counts_changes_of_spec_not_of_status(api: Api) -> None:
    await api("POST", WIDGETS, widget())
    await api("PATCH", WIDGETS + "/w/status", {"status": {"phase": "up"}}, media=MERGE_PATCH)
    await api("PATCH", WIDGETS + "/w", {"metadata": {"labels": {"a": "b"}}}, media=MERGE_PATCH)

    _, before = await api.json("GET", WIDGETS + "/w")
    _, after = await api.json("PATCH", WIDGETS + "/w", {"spec": {"size": 2}}, media=MERGE_PATCH)

    assert (before["metadata"]["generation"], after["metadata"]["generation"]) == (1, 2)


async def test_without_the_subresource_status_is_plain_data(
    a_server: Callable[..., ApiServer], api_as: Any, widget_crd: Any
) -> None:
    api = api_as(a_server(crds=[widget_crd(status=False)]))

    _, made = await api.json("POST", WIDGETS, widget(status={"phase": "sent"}))
    _, after = await api.json("PATCH", WIDGETS + "/w", {"status": {"phase": "up"}}, media=MERGE_PATCH)
    missing, _ = await api.json("GET", WIDGETS + "/w/status")

    assert made["status"] == {"phase": "sent"}
    assert after["metadata"]["generation"] == 2
    assert missing == 404


@pytest.mark.parametrize(
    ("path", "raw", "unknown"),
    [
        (MAPS, {"metadata": {"name": "a", "lables": {"b": "c"}}}, "metadata.lables"),
        (MAPS, {"metadata": {"name": "a"}, "Data": {"b": "c"}}, "Data"),
        (SECRETS, {"metadata": {"name": "a"}, "stringDate": {"b": "c"}}, "stringDate"),
    ],
)
async def test_strict_validation_refuses_unknown_fields_of_built_in_kinds_and_of_metadata(
    api: Api, path: str, raw: dict[str, Any], unknown: str
) -> None:
    status, answer = await api.json("POST", f"{path}?fieldValidation=Strict", raw)

    assert (status, answer["message"].partition(": ")[2]) == (
        400,
        f'strict decoding error: unknown field "{unknown}"',
    )


async def test_unknown_fields_warn_are_dropped_or_refused(api: Api) -> None:
    warned = await api("POST", WIDGETS, widget("a", foo=1))
    silent = await api("POST", WIDGETS + "?fieldValidation=Ignore", widget("b", foo=1))
    strict, answer = await api.json("POST", WIDGETS + "?fieldValidation=Strict", widget("c", foo=1))

    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.foo\\""'
    assert b"foo" not in warned.body
    assert "Warning" not in silent.headers
    assert strict == 400
    assert answer["message"].endswith('strict decoding error: unknown field "spec.foo"')


async def test_a_dry_run_stores_nothing_and_takes_no_name(api: Api) -> None:
    status, made = await api.json("POST", MAPS + "?dryRun=All", a_map())
    refused, _ = await api.json("POST", MAPS + "?dryRun=Some", a_map())
    missing, _ = await api.json("GET", MAPS + "/m")

    assert (status, refused, missing) == (201, 422, 404)
    assert made["metadata"]["uid"]


async def test_a_json_patch_tests_adds_and_removes(api: Api) -> None:
    _, made = await api.json("POST", MAPS, a_map(data={"a": "b"}))
    steps = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/data/c", "value": "d"},
        {"op": "remove", "path": "/data/a"},
    ]

    _, after = await api.json("PATCH", MAPS + "/m", steps, media=JSON_PATCH)
    status, failed = await api.json("PATCH", MAPS + "/m", steps, media=JSON_PATCH)

    assert after["data"] == {"c": "d"}
    assert status == 422
    assert failed["message"] == "the server rejected our request due to an error in our request"


async def test_a_patch_that_names_an_old_version_conflicts(api: Api) -> None:
    _, made = await api.json("POST", MAPS, a_map())
    await api("PATCH", MAPS + "/m", {"data": {"a": "b"}}, media=MERGE_PATCH)
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "c"}}

    status, answer = await api.json("PATCH", MAPS + "/m", old, media=MERGE_PATCH)

    assert (status, answer["reason"]) == (409, "Conflict")


async def test_custom_resources_have_no_strategic_patch(api: Api) -> None:
    await api("POST", WIDGETS, widget())

    status, answer = await api.json("PATCH", WIDGETS + "/w", {}, media=STRATEGIC_PATCH)

    assert status == 415
    assert answer["message"].endswith(
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


async def test_a_yaml_body_is_as_good_as_json_and_other_types_are_not(api: Api) -> None:
    status, _ = await api.json("POST", MAPS, b"metadata: {name: m}\ndata: {a: b}\n", media="application/yaml")
    refused, answer = await api.json("POST", MAPS, b"<xml/>", media="application/xml")
    proto, _ = await api.json("POST", WIDGETS, b"k8s\0", media="application/vnd.kubernetes.protobuf")

    assert (status, refused, proto) == (201, 415, 415)
    assert "application/json, application/yaml, application/vnd.kubernetes.protobuf" in answer["message"]


async def test_a_body_over_three_mebibytes_is_refused(api: Api) -> None:
    status, answer = await api.json("POST", MAPS, b" " * (3 * 1024 * 1024 + 1))

    assert (status, answer["message"]) == (413, "Request entity too large: limit is 3145728")


async def test_an_admission_hook_may_change_or_refuse(server: ApiServer, api: Api) -> None:
    seen: list[AdmissionRequest] = []

    async def hook(operation: AdmissionRequest) -> None:
        seen.append(operation)
        if operation.object is not None:
            operation.object.setdefault("data", {})["hooked"] = "yes"

    server.admission.append(hook)
    _, made = await api.json("POST", MAPS, a_map())
    await api("DELETE", MAPS + "/m")

    assert made["data"] == {"hooked": "yes"}
    assert [(one.verb, one.kind.kind, one.namespace, one.name) for one in seen] == [
        ("create", "ConfigMap", "default", "m"),
        ("delete", "ConfigMap", "default", "m"),
    ]
    assert seen[0].user.username == "system:admin"


async def test_a_hook_cannot_reach_the_stored_object(server: ApiServer, api: Api) -> None:
    async def hook(operation: AdmissionRequest) -> None:
        if operation.old_object is not None and operation.object is not None:
            operation.old_object["spec"]["size"] = 99
            operation.object.setdefault("status", {})["phase"] = "touched"
            raise bad_request("no")

    await api("POST", WIDGETS, widget())
    await api("PATCH", WIDGETS + "/w/status", {"status": {"phase": "up"}}, media=MERGE_PATCH)
    server.admission.append(hook)
    refused, _ = await api.json("PATCH", WIDGETS + "/w", {"spec": {"size": 2}}, media=MERGE_PATCH)

    _, kept = await api.json("GET", WIDGETS + "/w")

    assert refused == 400
    assert (kept["spec"]["size"], kept["status"]) == (1, {"phase": "up"})


async def test_string_data_becomes_data(api: Api) -> None:
    body = {"metadata": {"name": "s"}, "stringData": {"a": "b"}}

    _, made = await api.json("POST", "/api/v1/namespaces/default/secrets", body)

    assert (made["data"], made["type"], "stringData" in made) == ({"a": "Yg=="}, "Opaque", False)


async def test_repeated_owner_references_are_dropped_with_a_warning(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}

    reply = await api("POST", MAPS, a_map(metadata={"name": "m", "ownerReferences": [owner, owner]}))

    assert reply.body.count(b'"uid":"u"') == 1
    assert "duplicate" in reply.headers["Warning"]


async def test_one_event_has_two_faces(api: Api) -> None:
    body = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Node", "name": "n"},
        "note": "hello",
        "reason": "R",
    }
    await api("POST", "/apis/events.k8s.io/v1/namespaces/default/events", body)

    _, core = await api.json("GET", "/api/v1/namespaces/default/events/e")
    _, new = await api.json("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e")

    assert (core["apiVersion"], core["involvedObject"]["name"], core["message"]) == ("v1", "n", "hello")
    assert (new["apiVersion"], new["regarding"]["name"], new["note"]) == ("events.k8s.io/v1", "n", "hello")


async def test_a_role_reference_is_immutable(api: Api) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    body = {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "x"}}
    await api("POST", path, body)

    status, answer = await api.json(
        "PUT", path + "/b", {**body, "roleRef": {"kind": "ClusterRole", "name": "y"}}
    )

    assert status == 422
    assert "cannot change roleRef" in answer["message"]


async def test_an_object_on_its_way_out_takes_no_new_finalizer(api: Api) -> None:
    await api("POST", MAPS, a_map(metadata={"name": "m", "finalizers": ["example.io/a"]}))
    await api("DELETE", MAPS + "/m")
    more = {"metadata": {"finalizers": ["example.io/a", "example.io/b"]}}

    status, answer = await api.json("PATCH", MAPS + "/m", more, media=MERGE_PATCH)

    assert status == 422
    assert "no new finalizers can be added if the object is being deleted" in answer["message"]


async def test_what_counts_can_be_scaled(
    a_server: Callable[..., ApiServer], api_as: Any, widget_crd: Any
) -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    api = api_as(a_server(crds=[widget_crd(subresources={"status": {}, "scale": paths})]))
    await api("POST", WIDGETS, widget())

    _, after = await api.json("PATCH", WIDGETS + "/w/scale", {"spec": {"replicas": 4}}, media=MERGE_PATCH)
    refused, _ = await api.json("PATCH", WIDGETS + "/w/scale", {"spec": {"replicas": 0}}, media=MERGE_PATCH)
    _, changed = await api.json("GET", WIDGETS + "/w")

    assert (after["kind"], after["spec"], after["status"]) == ("Scale", {"replicas": 4}, {"replicas": 0})
    assert refused == 422
    assert (changed["spec"]["size"], changed["metadata"]["generation"]) == (4, 2)


LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "message"),
    [
        (
            "POST",
            MAPS,
            a_map(data={"a b": "1"}),
            422,
            'data[a b]: Invalid value: "a b": a valid config key must consist',
        ),
        (
            "POST",
            MAPS,
            a_map(metadata={"name": "m", "finalizers": ["bad"]}),
            422,
            'metadata.finalizers[0]: Invalid value: "bad": name is neither a standard finalizer name nor',
        ),
        (
            "POST",
            MAPS,
            {**a_map(), "kind": "Secret"},
            400,
            'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap)',
        ),
        (
            "POST",
            WIDGETS,
            {**widget(), "apiVersion": "example.io/v2"},
            400,
            "the API version in the data (example.io/v2) does not match the expected API version (example.io/v1)",
        ),
        ("POST", WIDGETS, {"metadata": {"name": "w"}}, 400, "Object 'Kind' is missing in"),
        ("POST", WIDGETS, widget(size=None), 422, "spec.size: Required value"),
        ("POST", WIDGETS, widget(tags=["a", "a"]), 422, 'spec.tags[1]: Duplicate value: "a"'),
        ("POST", MAPS + "?fieldValidation=Bad", a_map(), 422, 'fieldValidation: Unsupported value: "Bad"'),
        (
            "POST",
            MAPS + "?dryRun=Some",
            a_map(),
            422,
            'dryRun: Unsupported value: ["Some"]: supported values: "All"',
        ),
        ("PUT", MAPS, a_map(), 405, "the server does not allow this method"),
        ("POST", MAPS + "/m", a_map(), 405, "the server does not allow this method"),
        ("GET", WIDGETS + "/w/nope", None, 404, 'widgets.example.io "w" not found'),
    ],
)
async def test_what_a_real_server_was_seen_to_refuse_is_refused(
    api: Api, method: str, path: str, body: Any, code: int, message: str
) -> None:
    status, answer = await api.json(method, path, body)

    assert status == code
    assert message in answer["message"]


async def test_a_put_makes_a_lease_that_is_not_there(api: Api) -> None:
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}

    assert (await api("PUT", LEASE, body)).status == 201
    assert (await api("PUT", LEASE, body)).status == 200
