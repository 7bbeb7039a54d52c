"""Bodies and query parameters of wrong types: refused before they are used, by every verb and subresource.

Verdicts and texts are those of kube-apiserver 1.34, but for the bodies of DELETE, resourceVersion of get and watch, and
the target of a binding, where it answers 500 with the same texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.requests import APPLY_PATCH, JSON, MERGE_PATCH
from windrow.kubernetes.resources import CONFIG_MAP, DEPLOYMENT, POD, SERVICE_ACCOUNT

Api = Any
NS = "/api/v1/namespaces/default"
MAPS = f"{NS}/configmaps"
AUTH = "/apis/authorization.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
WRONG: tuple[Any, ...] = ("x", 7, True, 1.5, [], ["x"], {}, {"a": 1}, [{}], [None], 10**30, -1)

# method, path, a right body.
BODIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "delete": (
        "DELETE",
        f"{MAPS}/there?dryRun=All",
        {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 1,
            "preconditions": {"uid": "u", "resourceVersion": "1"},
            "orphanDependents": True,
            "propagationPolicy": "Orphan",
            "dryRun": ["All"],
        },
    ),
    "deletecollection": (
        "DELETE",
        f"{NS}/secrets?dryRun=All",
        {"gracePeriodSeconds": 1, "preconditions": {"uid": "u"}, "dryRun": ["All"]},
    ),
    "eviction": (
        "POST",
        f"{NS}/pods/p/eviction?dryRun=All",
        {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": {"name": "p", "namespace": "default"},
            "deleteOptions": {
                "gracePeriodSeconds": 1,
                "preconditions": {"uid": "u", "resourceVersion": "1"},
                "orphanDependents": True,
                "propagationPolicy": "Orphan",
                "dryRun": ["All"],
            },
        },
    ),
    "binding": (
        "POST",
        f"{NS}/pods/p/binding?dryRun=All",
        {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": "p", "namespace": "default"},
            "target": {"kind": "Node", "name": "n", "namespace": "", "uid": "", "fieldPath": ""},
        },
    ),
    "finalize": (
        "PUT",
        "/api/v1/namespaces/default/finalize?dryRun=All",
        {
            "kind": "Namespace",
            "apiVersion": "v1",
            "metadata": {"name": "default"},
            "spec": {"finalizers": ["kubernetes"]},
        },
    ),
    "token": (
        "POST",
        f"{NS}/serviceaccounts/robot/token",
        {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"audiences": ["a"], "expirationSeconds": 600, "boundObjectRef": {"kind": "Pod", "name": "p"}},
        },
    ),
    "scale": (
        "PUT",
        "/apis/apps/v1/namespaces/default/deployments/d/scale?dryRun=All",
        {"metadata": {"name": "d", "resourceVersion": "1"}, "spec": {"replicas": 1}},
    ),
    "access review": (
        "POST",
        f"{AUTH}/subjectaccessreviews",
        {
            "spec": {
                "user": "u",
                "groups": ["g"],
                "uid": "1",
                "extra": {"a": ["b"]},
                "resourceAttributes": {"verb": "get", "group": "", "resource": "pods", "name": "p"},
                "nonResourceAttributes": {"path": "/", "verb": "get"},
            }
        },
    ),
    "rules review": ("POST", f"{AUTH}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}),
    "token review": (
        "POST",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {"spec": {"token": "t", "audiences": ["a"]}},
    ),
    "Role": (
        "POST",
        f"{RBAC}/roles?dryRun=All",
        {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    ),
    "RoleBinding": (
        "POST",
        f"{RBAC}/rolebindings?dryRun=All",
        {
            "metadata": {"name": "r"},
            "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "u", "namespace": ""}],
        },
    ),
    "Secret": (
        "POST",
        f"{NS}/secrets?dryRun=All",
        {"metadata": {"name": "s"}, "type": "Opaque", "data": {"a": "YQ=="}, "stringData": {"b": "c"}, "immutable": True},
    ),
    "PodDisruptionBudget": (
        "POST",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets?dryRun=All",
        {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": []}}},
    ),
}  # fmt: skip


def changed(value: Any) -> Iterator[Any]:
    """The value with each of its parts replaced by each wrong one."""
    yield from WRONG
    if isinstance(value, dict):
        for name, inner in value.items():
            for wrong in changed(inner):
                yield {**value, name: wrong}
    if isinstance(value, list):
        for index, inner in enumerate(value):
            for wrong in changed(inner):
                yield [*value[:index], wrong, *value[index + 1 :]]


@pytest.fixture
async def served(server: ApiServer) -> ApiServer:
    client = server.local()
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create(CONFIG_MAP, {"metadata": {"name": "there"}}, "default")
    await client.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot"}}, "default")
    await client.create(POD, {"metadata": {"name": "p"}, "spec": template["spec"]}, "default")
    await client.create(DEPLOYMENT, {"metadata": {"name": "d"}, "spec": spec}, "default")
    return server


@pytest.mark.parametrize("case", BODIES)
async def test_a_body_with_any_field_of_any_type_is_answered_by_no_500(
    served: ApiServer, api: Api, case: str
) -> None:
    method, path, right = BODIES[case]
    failed = []
    for body in [right, *changed(right)]:
        try:
            reply = await api(method, path, body, media=JSON)
        except Exception as error:  # what HTTP answers with 500
            failed.append((body, repr(error)))
        else:
            failed += [(body, reply.body)] if reply.status >= 500 else []

    assert failed == []


def options(**fields: Any) -> dict[str, Any]:
    return fields


@pytest.mark.parametrize(
    ("case", "body", "text"),
    [
        ("delete", options(gracePeriodSeconds="x"), "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        ("delete", options(gracePeriodSeconds=1.5), "json: cannot unmarshal number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        ("delete", options(preconditions=7), "json: cannot unmarshal number into Go struct field DeleteOptions.preconditions of type v1.Preconditions"),
        ("delete", options(dryRun="x"), "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string"),
        ("delete", options(dryRun=[{}]), "json: cannot unmarshal object into Go struct field DeleteOptions.dryRun of type string"),
        ("delete", options(preconditions={"resourceVersion": 7}), "json: cannot unmarshal number into Go struct field Preconditions.preconditions.resourceVersion of type string"),
        ("eviction", {"metadata": {"name": "p"}, "deleteOptions": "x"}, 'Eviction in version "v1" cannot be handled as a Eviction: json: cannot unmarshal string into Go struct field Eviction.deleteOptions of type v1.DeleteOptions'),
        ("eviction", {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": True}}, 'Eviction in version "v1" cannot be handled as a Eviction: json: cannot unmarshal bool into Go struct field DeleteOptions.deleteOptions.gracePeriodSeconds of type int64'),
        ("eviction", {"metadata": {"name": "other"}}, "name in URL does not match name in Eviction object"),
        ("binding", {"target": {"name": "n"}}, "name in URL does not match name in Binding object"),
        ("binding", {"metadata": {"name": "p", "namespace": "o"}, "target": {"name": "n"}}, "the namespace of the provided object does not match the namespace sent on the request"),
        ("binding", {"target": {"kind": 7}}, 'Binding in version "v1" cannot be handled as a Binding: json: cannot unmarshal number into Go struct field ObjectReference.target.kind of type string'),
        ("finalize", {"metadata": {"name": "default"}, "spec": {"finalizers": [{}]}}, 'Namespace in version "v1" cannot be handled as a Namespace: json: cannot unmarshal object into Go struct field NamespaceSpec.spec.finalizers of type v1.FinalizerName'),
        ("finalize", {}, "the name of the object (default based on URL) was undeterminable: name must be provided"),
        ("token review", {"spec": "x"}, 'TokenReview in version "v1" cannot be handled as a TokenReview: json: cannot unmarshal string into Go struct field TokenReview.spec of type v1.TokenReviewSpec'),
    ],
)  # fmt: skip
async def test_the_400_names_the_field_as_go_does(
    served: ApiServer, api: Api, case: str, body: Any, text: str
) -> None:
    method, path, _ = BODIES[case]

    status, answer = await api.json(method, path, body)

    assert (status, answer["message"]) == (400, text)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", f"{MAPS}?limit=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("GET", f"{MAPS}?limit=", 400, 'strconv.ParseInt: parsing "": invalid syntax'),
        ("GET", f"{MAPS}?limit=²", 400, 'strconv.ParseInt: parsing "²": invalid syntax'),
        ("GET", f"{MAPS}?limit=9999999999999999999999", 400, "value out of range"),
        ("GET", f"{MAPS}?limit={'9' * 5000}", 400, "value out of range"),
        ("GET", f"{MAPS}?timeoutSeconds=1.5", 400, 'strconv.ParseInt: parsing "1.5": invalid syntax'),
        ("GET", f"{MAPS}?resourceVersion=²", 400, 'strconv.ParseUint: parsing "²": invalid syntax'),
        ("GET", f"{MAPS}?resourceVersion={'9' * 5000}", 400, "value out of range"),
        ("GET", f"{MAPS}/there?resourceVersion=x", 400, 'strconv.ParseUint: parsing "x": invalid syntax'),
        # {"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets/"}, and of revision 999999999
        ("GET", f"{MAPS}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi9zZWNyZXRzLyJ9", 400, "continue key is not valid: ../../secrets/"),
        ("GET", f"{MAPS}?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTk5OTk5OTk5LCJzdGFydCI6IngifQ", 504, "Too large resource version: 999999999"),
        ("DELETE", f"{MAPS}/there?gracePeriodSeconds=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("DELETE", f"{NS}/secrets?dryRun=x", 422, 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
        ("DELETE", f"{NS}/secrets?propagationPolicy=x", 422, 'Unsupported value: "x": supported values: "Foreground"'),
        ("DELETE", f"{MAPS}/there?dryRun=", 422, 'dryRun: Unsupported value: [""]: supported values: "All"'),
    ],
)  # fmt: skip
async def test_a_query_parameter_of_a_wrong_type_is_refused(
    served: ApiServer, api: Api, method: str, path: str, status: int, text: str
) -> None:
    reply = await api(method, path)

    assert reply.status == status
    assert text in loads(reply.body)["message"]


async def test_a_negative_limit_is_none(served: ApiServer, api: Api) -> None:
    assert (await api("GET", f"{MAPS}?limit=-1")).status == 200


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (f"fieldManager={'x' * 129}", "fieldManager: Too long: may not be more than 128 bytes"),
        ("fieldManager=\x07", "invalid character U+0007 (at position 0)"),
        ("dryRun=x", 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
    ],
)
async def test_options_of_each_write_are_checked(served: ApiServer, api: Api, query: str, text: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}}
    place = f"{MAPS}/there"
    replies = [
        await api("POST", f"{MAPS}?{query}", body),
        await api("PUT", f"{place}?{query}", body),
        await api("PATCH", f"{place}?{query}", {}, media=MERGE_PATCH),
        await api("PATCH", f"{place}?{query}", body, media=APPLY_PATCH),
    ]

    texts = [loads(reply.body)["message"] for reply in replies]
    assert [reply.status for reply in replies] == [422] * 4
    assert all(text in one for one in texts)


async def test_force_is_of_apply_patches_only(served: ApiServer, api: Api) -> None:
    status, answer = await api.json("PATCH", f"{MAPS}/there?force=true", {}, media=MERGE_PATCH)

    assert status == 422
    assert "force: Forbidden: may not be specified for non-apply patch" in answer["message"]


async def test_a_dry_run_of_a_binding_or_of_finalize_writes_nothing(served: ApiServer, api: Api) -> None:
    before = served.store.rev

    for case in ("binding", "finalize"):
        method, path, body = BODIES[case]
        assert (await api(method, path, dumps(body))).status in (200, 201)

    assert served.store.rev == before


async def test_no_grace_period_and_no_timeout_is_beyond_the_clock(a_server: Any, api_as: Any) -> None:
    server = a_server(graceful_pod_deletion=True)
    api = api_as(server)
    for name, seconds in (("a", 2**62), ("b", -5)):
        spec = {
            "nodeName": "n",
            "terminationGracePeriodSeconds": seconds,
            "containers": [{"name": "c", "image": "i"}],
        }
        await server.local().create(POD, {"metadata": {"name": name}, "spec": spec}, "default")

    replies = [
        await api("DELETE", f"{NS}/pods/a"),
        await api("DELETE", f"{NS}/pods/b?gracePeriodSeconds=9223372036854775807"),
    ]

    assert {reply.status for reply in replies} == {200}
