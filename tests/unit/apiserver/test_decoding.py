"""Bodies: bounded before anything else sees them, and large ones decoded beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from windrow.apiserver.request import decoding
from windrow.apiserver.server import ApiServer
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import APPLY_PATCH, JSON, MERGE_PATCH, Request

MAPS = "/api/v1/namespaces/default/configmaps"
DEEP = b"[" * 25_000
MANY = b'{"data":{' + b",".join(b'"%d":1' % number for number in range(100_001)) + b"}}"


@pytest.mark.parametrize(
    ("method", "path", "media", "body", "words"),
    [
        ("POST", MAPS, decoding.YAML, DEEP, "nested more than 200 levels deep"),
        ("POST", MAPS, JSON, b'{"a":' * 300 + b"1" + b"}" * 300, "nested more than 200 levels deep"),
        ("POST", MAPS, JSON, DEEP, "not valid JSON"),
        ("POST", MAPS, JSON, MANY, "more than 100000 values"),
        ("POST", MAPS, decoding.YAML, MANY, "more than 100000 values"),
        ("POST", MAPS, JSON, b"[" + b"[[]]," * 60_000 + b"1]", "more than 100000 values"),
        ("POST", MAPS, decoding.YAML, b"- a\n" * 700_000, "more than 50000 values"),
        ("PATCH", f"{MAPS}/m", APPLY_PATCH, DEEP, "nested more than 200 levels deep"),
        ("PATCH", f"{MAPS}/m", MERGE_PATCH, b'{"a":' * 300 + b"1" + b"}" * 300, "levels deep"),
        ("DELETE", f"{MAPS}/m", decoding.YAML, DEEP, "nested more than 200 levels deep"),
    ],
)
async def test_a_body_beyond_the_bounds_is_a_bad_request(
    a_server: Callable[..., ApiServer], method: str, path: str, media: str, body: bytes, words: str
) -> None:
    reply = await a_server(anonymous=True).send(Request(method, path, (), body, media), Peer())

    assert reply.status == 400
    assert words in loads(reply.body)["message"]


def test_commas_and_brackets_in_texts_are_no_values() -> None:
    text = ',[{"\\' * 100_001

    assert decoding.decode(dumps([text]), JSON) == [text]
    with pytest.raises(KubeError, match="not valid JSON"):
        decoding.decode(b'["' + b"," * 200_000, JSON)


@pytest.mark.parametrize("size", [10, decoding.IN_PLACE_BYTES + 1])
async def test_a_large_body_is_decoded_beside_the_event_loop(
    a_server: Callable[..., ApiServer], monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    threads: list[int] = []
    decode: Any = decoding.decode
    monkeypatch.setattr(
        decoding,
        "decode",
        lambda *args, **rest: (threads.append(threading.get_ident()), decode(*args, **rest))[1],
    )
    body = b'{"metadata":{"name":"m"},"data":{"a":"%s"}}' % (b"x" * size)

    reply = await a_server(anonymous=True).send(Request("POST", MAPS, (), body, JSON), Peer())

    assert reply.status == 201
    assert (threads == [threading.get_ident()]) == (size < decoding.IN_PLACE_BYTES)


async def test_an_apply_that_is_sent_as_json_is_decoded_as_json(
    a_server: Callable[..., ApiServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding.yaml, "load", None)
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}'
    query = (("fieldManager", "kubectl"),)

    reply = await a_server(anonymous=True).send(
        Request("PATCH", f"{MAPS}/m", query, body, APPLY_PATCH), Peer()
    )

    assert reply.status == 201
