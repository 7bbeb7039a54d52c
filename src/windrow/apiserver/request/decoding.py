"""Decoding of request bodies: JSON, YAML, Kubernetes protobuf (reference/05 §7.4)."""

from __future__ import annotations

from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.protobuf import NotProtobuf, decode_object
from windrow.core import fastjson, yaml
from windrow.core.json import NotJson
from windrow.core.yaml import NotYaml
from windrow.kubernetes.requests import APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = (JSON, YAML, PROTOBUF)
CUSTOM_PATCHES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
MAX_BODY_BYTES = 3 * 1024 * 1024


def media_type_of(content_type: str) -> str:
    return content_type.split(";", 1)[0].strip().lower() or JSON


def decode_json(body: bytes) -> Any:
    try:
        return fastjson.loads(body)
    except NotJson as error:
        raise apierrors.bad_request(f"the body of the request is not valid JSON: {error}") from error


def decode_yaml(body: bytes) -> Any:
    try:
        return yaml.load(body)
    except NotYaml as error:
        raise apierrors.bad_request(f"error decoding YAML: {error}") from error


def decode_protobuf(body: bytes) -> Any:
    try:
        return decode_object(body)
    except NotProtobuf as error:
        raise apierrors.bad_request(f"the body of the request is not valid protobuf: {error}") from error


def decode(body: bytes | None, content_type: str, *, custom: bool = False) -> Any:
    """The object in a body; None without a body. Raises 400, 413 or 415."""
    if not body:
        return None
    if len(body) > MAX_BODY_BYTES:
        raise apierrors.status_error(413, f"Request entity too large: limit is {MAX_BODY_BYTES}")
    media = media_type_of(content_type)
    if media == JSON:
        return decode_json(body)
    if media == YAML:
        return decode_yaml(body)
    if media == PROTOBUF and not custom:
        return decode_protobuf(body)
    accepted = (JSON, YAML) if custom else ACCEPTED
    raise apierrors.unsupported_media(accepted)


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
        return media, decode_yaml(body)
    try:
        return media, fastjson.loads(body)
    except NotJson as error:
        raise apierrors.bad_request(f"error decoding patch: {error}") from error
