"""Protobuf bodies as Go writes them; vectors made by `fields/main.go`."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from windrow.apiserver.protobuf import MAGIC, NotProtobuf, UnknownMessage, decode_object

VECTORS = json.loads(Path(__file__).with_name("protobuf_vectors.json").read_text())


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["kind"])
def test_a_body_gives_what_its_json_form_gives(vector: dict[str, Any]) -> None:
    assert without_nulls(decode_object(b64decode(vector["body"]))) == without_nulls(vector["json"])


@pytest.mark.parametrize("vector", VECTORS[:4], ids=lambda vector: vector["kind"])
def test_a_body_cut_anywhere_is_refused_or_shorter_but_never_a_crash(vector: dict[str, Any]) -> None:
    body = b64decode(vector["body"])
    whole = decode_object(body)
    for size in range(len(body)):
        with suppress(NotProtobuf):
            assert decode_object(body[:size]) != whole or size > len(body) - 8


@given(some.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(noise: bytes) -> None:
    body = MAGIC + b"\x0a\x0c\x0a\x02v1\x12\x06Secret\x12" + bytes([len(noise) & 0x7F]) + noise
    with suppress(NotProtobuf):
        assert decode_object(body)["kind"] == "Secret"


def test_json_is_no_protobuf() -> None:
    with pytest.raises(NotProtobuf, match="four bytes"):
        decode_object(b"{}")


def test_a_kind_without_a_table_is_named() -> None:
    with pytest.raises(UnknownMessage, match="Thing in example"):
        decode_object(MAGIC + b"\x0a\x10\x0a\x07example\x12\x05Thing")
