"""Every verb beside every answer of success that is none of an API server: an error of that family, whatever it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from windrow.client.client import Client
from windrow.harvester.connection import connection_problem, is_inconclusive
from windrow.kubernetes import requests
from windrow.kubernetes.answers.replies import decode_answer
from windrow.kubernetes.errors import InvalidReply, KubeError
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import NAMESPACE, SECRET, ApiResource
from windrow.kubernetes.retry import may_still_be_carried_out

REF = SECRET.ref("a", "default")
RAW = {"metadata": {"name": "a", "namespace": "default"}}
REVIEW = ApiResource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)

VERBS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "get": lambda client: client.get(REF),
    "get of a namespace": lambda client: client.get(NAMESPACE.ref("a")),
    "find": lambda client: client.find(REF),
    "create": lambda client: client.create(SECRET, RAW, "default"),
    "update": lambda client: client.update(SECRET, RAW),
    "update of the status": lambda client: client.update(SECRET, RAW, "status"),
    "patch": lambda client: client.patch(REF, {}),
    "patch of the status": lambda client: client.patch(REF, {}, "status"),
    "json patch": lambda client: client.json_patch(REF, []),
    "strategic patch": lambda client: client.strategic_patch(REF, {}),
    "apply": lambda client: client.apply(REF, RAW, "us"),
    "delete": lambda client: client.delete(REF),
    "list": lambda client: client.list(SECRET),
}

SHAPES: dict[str, bytes] = {
    "an empty object": b"{}",
    "a list": b"[]",
    "null": b"null",
    "a text": b'"a"',
    "a number": b"1",
    "a web page": b"<html>hello</html>",
    "half an object": b'{"metadata":{"name":"a"',
    "no metadata": b'{"kind":"Secret"}',
    "metadata null": b'{"metadata":null,"items":[{"metadata":null}]}',
    "metadata a list": b'{"metadata":[],"items":[{"metadata":[]}]}',
    "metadata a text": b'{"metadata":"a","items":[{"metadata":"a"}]}',
    "no name": b'{"metadata":{},"items":[{"metadata":{}}]}',
    "a name that is a number": b'{"metadata":{"name":1},"items":[{"metadata":{"name":1}}]}',
    "a uid that is a number": b'{"metadata":{"name":"a","uid":1},"items":[{"metadata":{"name":"a","uid":1}}]}',
    "a version that is a number": b'{"metadata":{"name":"a","resourceVersion":1},"items":[]}',
    "labels that are a list": b'{"metadata":{"name":"a","labels":[]},"items":[null]}',
    "an annotation that is a number": b'{"metadata":{"name":"a","annotations":{"b":1}},"items":[1]}',
    "finalizers that are an object": b'{"metadata":{"name":"a","finalizers":{}},"items":{}}',
}


class Answering:
    def __init__(self, body: bytes) -> None:
        self.body = body

    async def send(self, request: Request) -> Reply:
        return Reply(200, self.body)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_of_a_wrong_shape_is_an_error_of_its_own(verb: str, shape: str) -> None:
    """One that says what was wanted and found, and from which nothing is concluded."""
    client = Client(Answering(SHAPES[shape]))  # type: ignore[arg-type]

    with pytest.raises(InvalidReply) as raised:
        asyncio.run(VERBS[verb](client))  # type: ignore[arg-type]

    assert "wanted" in str(raised.value)
    assert "found" in str(raised.value)
    assert is_inconclusive(raised.value)
    assert may_still_be_carried_out(raised.value)


@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS if verb not in ("list", "create", "get of a namespace")]
)
@pytest.mark.parametrize("kind", ["Secret", "SecretList", "Status"])
def test_an_object_of_another_name_is_no_answer(verb: str, kind: str) -> None:
    """Nor is a list or a Status one, but to a deletion."""
    body = b'{"kind":"%s","metadata":{"name":"%s"}}' % (kind.encode(), b"b" if kind == "Secret" else b"a")
    done = VERBS[verb](Client(Answering(body)))  # type: ignore[arg-type]
    if (verb, kind) == ("delete", "Status"):
        asyncio.run(done)  # type: ignore[arg-type]
        return
    with pytest.raises(InvalidReply):
        asyncio.run(done)  # type: ignore[arg-type]


def test_the_object_with_the_name_in_the_path_is_the_answer() -> None:
    body = b'{"metadata":{"name":"a","resourceVersion":"1"}}'
    for verb in VERBS.keys() - {"list"}:
        asyncio.run(VERBS[verb](Client(Answering(body))))  # type: ignore[arg-type]


def test_a_write_that_is_answered_with_nothing_shows_no_object() -> None:
    with pytest.raises(InvalidReply, match="found nothing"):
        asyncio.run(Client(Answering(b"")).patch(REF, {}))  # type: ignore[arg-type]
    assert decode_answer(requests.merge_patch(REF, {}), Reply(200, b"")) == {}
    with pytest.raises(InvalidReply):
        decode_answer(requests.get(REF), Reply(200, b""))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/version"),
        ("GET", "/apis"),
        ("GET", "/api/v1/namespaces/a/secrets"),
        ("PUT", "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachines/b/start"),
        ("POST", "/api/v1/namespaces/a/pods/b/eviction"),
        ("GET", "/api/v1/namespaces/a/pods/b/log"),
    ],
)
def test_what_is_no_object_is_left_to_its_reader(method: str, path: str) -> None:
    assert decode_answer(Request(method, path), Reply(200, b'{"major":"1"}')) == {"major": "1"}


def test_a_review_is_an_object_without_a_name() -> None:
    body = b'{"kind":"TokenReview","metadata":{},"status":{}}'
    asyncio.run(Client(Answering(body)).create(REVIEW, {"metadata": {}}))  # type: ignore[arg-type]


def test_the_sentence_names_server_and_credential_and_where_to_look() -> None:
    error: KubeError = InvalidReply("wanted an object, found a list")
    message, hint = connection_problem(error, "https://web", "ns:cc")
    assert message == (
        "Harvester https://web (credential Secret ns/cc) answers what no Kubernetes API does: wanted an object, found a list"
    )
    assert hint.startswith("write the URL of Harvester's own API into the kubeconfig")
