"""Validation of built-in types beyond their schema: required and immutable fields."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Any

from windrow.apiserver.apierrors import Cause, forbidden_value, invalid_value, required
from windrow.kubernetes.objects import nested

Raw = dict[str, Any]

IMMUTABLE = "field is immutable"
CLAIM_SPEC = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def find_bad_base64(raw: Raw) -> str | None:
    """Go's error for the first value of a Secret that is not base64."""
    for value in (raw.get("data") or {}).values():
        try:
            b64decode(value or "", validate=True)
        except (binascii.Error, ValueError, TypeError):
            text = str(value)
            bad = re.search(r"[^A-Za-z0-9+/=]", text)
            return f"illegal base64 data at input byte {bad.start() if bad else len(text) - len(text) % 4}"
    return None


def _validate_unchanged(raw: Raw, old: Raw, *fields: str) -> list[Cause]:
    return [
        invalid_value(field, raw.get(field), IMMUTABLE)
        for field in fields
        if nested(raw, *field.split(".")) != nested(old, *field.split("."))
    ]


def _validate_immutable(raw: Raw, old: Raw, *fields: str) -> list[Cause]:
    """Changes of an object with `immutable: true`."""
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    causes = [] if raw.get("immutable") else [forbidden_value("immutable", text)]
    return causes + [forbidden_value(field, text) for field in fields if raw.get(field) != old.get(field)]


_IS_KEY = re.compile(r"[-._a-zA-Z0-9]+\Z")
_CONFIG_KEY_MESSAGE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _validate_keys(raw: Raw, *fields: str) -> list[Cause]:
    return [
        invalid_value(f"{field}[{key}]", key, _CONFIG_KEY_MESSAGE)
        for field in fields
        for key in raw.get(field) or {}
        if not _IS_KEY.match(key)
    ]


def validate_secret(raw: Raw, old: Raw | None) -> list[Cause]:
    causes = _validate_keys(raw, "data")
    if raw.get("type") == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        if not nested(raw, "metadata", "annotations", name):
            causes.append(required(f"metadata.annotations[{name}]"))
    if raw.get("type") == "kubernetes.io/dockerconfigjson" and ".dockerconfigjson" not in (
        raw.get("data") or {}
    ):
        causes.append(required("data[.dockerconfigjson]"))
    if raw.get("type") == "kubernetes.io/tls":
        causes += [
            required(f"data[{name}]")
            for name in ("tls.crt", "tls.key")
            if name not in (raw.get("data") or {})
        ]
    if old is None:
        return causes
    return causes + _validate_unchanged(raw, old, "type") + _validate_immutable(raw, old, "data")


def validate_config_map(raw: Raw, old: Raw | None) -> list[Cause]:
    both = sorted(set(raw.get("data") or {}) & set(raw.get("binaryData") or {}))
    causes = _validate_keys(raw, "data", "binaryData")
    causes += [
        invalid_value(f"data[{name}]", name, "duplicate of key present in binaryData") for name in both
    ]
    return causes + (_validate_immutable(raw, old, "data", "binaryData") if old else [])


def validate_binding(raw: Raw, old: Raw | None) -> list[Cause]:
    if old is not None and raw.get("roleRef") != old.get("roleRef"):
        return [invalid_value("roleRef", raw.get("roleRef"), "cannot change roleRef")]
    return []


def validate_storage_class(raw: Raw, old: Raw | None) -> list[Cause]:
    if old is None:
        return []
    return [
        forbidden_value(field, f"updates to {field} are forbidden.")
        for field in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")
        if raw.get(field) != old.get(field)
    ]


def validate_pvc(raw: Raw, old: Raw | None) -> list[Cause]:
    spec = raw.get("spec") or {}
    causes = []
    if not spec.get("accessModes"):
        causes.append(required("spec.accessModes", "at least 1 access mode is required"))
    if not nested(spec, "resources", "requests", "storage"):
        causes.append(required("spec.resources[storage]"))
    if old is not None and _immutable_claim_fields(spec) != _immutable_claim_fields(old.get("spec") or {}):
        causes.append(forbidden_value("spec", CLAIM_SPEC))
    return causes


def _immutable_claim_fields(spec: Raw) -> Raw:
    # A claim is bound once and may grow; every other field is immutable.
    changing = ("resources", "volumeName", "volumeAttributesClassName", "storageClassName")
    return {name: value for name, value in spec.items() if name not in changing}


def validate_pod(raw: Raw, old: Raw | None) -> list[Cause]:
    if not nested(raw, "spec", "containers"):
        return [required("spec.containers")]
    return []
