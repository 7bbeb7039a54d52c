"""Decoding of request bodies: JSON, YAML, Kubernetes protobuf (reference/05 §7.4).

A body is bounded in bytes, depth and number of values before anything else sees it. One of more than
`IN_PLACE_BYTES` is decoded in a thread, and so is what is done with its object later (`work_on`): other requests go on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from windrow.apiserver import apierrors
from windrow.apiserver.protobuf import NotProtobuf, decode_object
from windrow.core.formats import fastjson, yaml
from windrow.core.formats.json import NotJson, check_bounds
from windrow.core.formats.yaml import NotYaml
from windrow.kubernetes.requests import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

T = TypeVar("T")

YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = (JSON, YAML, PROTOBUF)
CUSTOM_PATCHES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
MAX_BODY_BYTES = 3 * 1024 * 1024
# Each further value costs validation and field management; real objects have some ten thousand at most.
MAX_VALUES = 100_000
IN_PLACE_BYTES = 64 * 1024


async def work_on(size: int, work: Callable[[], T]) -> T:
    """The result of `work` on an object of `size` bytes: of another thread for a large one, so that other requests go on."""
    return await asyncio.to_thread(work) if size > IN_PLACE_BYTES else work()


def media_type_of(content_type: str) -> str:
    return content_type.split(";", 1)[0].strip().lower() or JSON


_JSON_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.S)


def _load_json(body: bytes) -> Any:
    """JSON, refused by its commas and brackets before a million lists are made: msgspec holds all threads meanwhile."""
    if len(body) > IN_PLACE_BYTES:
        marks = _JSON_TEXT.sub(b"", body)
        if max(marks.count(b","), marks.count(b"[") + marks.count(b"{")) > MAX_VALUES:
            raise NotJson(f"it has more than {MAX_VALUES} values")
    return fastjson.loads(body)


def _load_yaml(body: bytes) -> Any:
    """YAML, of which JSON is a part: kubectl sends server-side apply as JSON, which is decoded far sooner as such."""
    if body.startswith(b"{"):
        with suppress(NotJson):
            return _load_json(body)
    return yaml.load(body)


_DECODERS: dict[str, tuple[Callable[[bytes], Any], str]] = {
    JSON: (_load_json, "the body of the request is not valid JSON"),
    YAML: (_load_yaml, "error decoding YAML"),
    PROTOBUF: (decode_object, "the body of the request is not valid protobuf"),
}


def _decode_as(media: str, body: bytes, message: str = "") -> Any:
    decoder, usual = _DECODERS[media]
    try:
        value = decoder(body)
        check_bounds(value, MAX_VALUES)
        return value
    except (NotJson, NotYaml, NotProtobuf) as error:
        raise apierrors.bad_request(f"{message or usual}: {error}") from error


def decode(body: bytes | None, content_type: str, *, custom: bool = False) -> Any:
    """The object in a body; None without a body. Raises 400, 413 or 415."""
    if not body:
        return None
    if len(body) > MAX_BODY_BYTES:
        raise apierrors.status_error(413, f"Request entity too large: limit is {MAX_BODY_BYTES}")
    media = media_type_of(content_type)
    accepted = (JSON, YAML) if custom else ACCEPTED
    if media not in accepted:
        raise apierrors.unsupported_media(accepted)
    return _decode_as(media, body)


def decode_patch(body: bytes | None, content_type: str, accepted: tuple[str, ...]) -> tuple[str, Any]:
    """The media type of a patch and its value. Raises 400, 413 or 415."""
    media = media_type_of(content_type)
    if media not in accepted:
        raise apierrors.unsupported_media(accepted)
    if body and len(body) > MAX_BODY_BYTES:
        raise apierrors.status_error(413, f"Request entity too large: limit is {MAX_BODY_BYTES}")
    if not body:
        raise apierrors.bad_request("the patch is empty")
    if media == APPLY_PATCH:
        return media, _decode_as(YAML, body)
    return media, _decode_as(JSON, body, "error decoding patch")
