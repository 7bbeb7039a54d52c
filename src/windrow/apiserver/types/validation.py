"""Validation of built-in types beyond their schema: required and immutable fields."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from windrow.apiserver.apierrors import Cause, forbidden_value, invalid_value, not_supported, required
from windrow.apiserver.types.go_syntax import kind_of, syntax_error
from windrow.apiserver.types.registry import key_errors, name_errors
from windrow.core.formats.json import NotJson, loads
from windrow.core.formats.quantity import Quantity
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


STANDARD_FINALIZERS = (
    "customresourcecleanup.apiextensions.k8s.io",
    "foregroundDeletion",
    "kubernetes",
    "orphan",
)


def finalizer_name_errors(field: str, finalizers: Sequence[str]) -> list[Cause]:
    return [invalid_value(field, one, text) for one in finalizers for text in key_errors(one)]


def finalizer_errors(field: str, finalizers: Sequence[str]) -> list[Cause]:
    """Every validation error of a built-in object's finalizers."""
    return finalizer_name_errors(field, finalizers) + finalizer_domain_errors(field, finalizers)


def finalizer_domain_errors(field: str, finalizers: Sequence[str]) -> list[Cause]:
    """Of those that have no domain and are no standard ones."""
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid_value(f"{field}[{index}]", one, text)
        for index, one in enumerate(finalizers)
        if "/" not in one and one not in STANDARD_FINALIZERS
    ]


def validate_namespace(raw: Raw, old: Raw | None) -> list[Cause]:
    finalizers = nested(raw, "spec", "finalizers") or ()
    return finalizer_errors("spec.finalizers", finalizers) if old is None else []


def validate_secret(raw: Raw, old: Raw | None) -> list[Cause]:
    causes = _validate_keys(raw, "data")
    if raw.get("type") == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        if not nested(raw, "metadata", "annotations", name):
            causes.append(required(f"metadata.annotations[{name}]"))
    causes += _secret_type_causes(str(raw.get("type") or ""), raw.get("data") or {})
    if old is None:
        return causes
    return causes + _validate_unchanged(raw, old, "type") + _validate_immutable(raw, old, "data")


MAX_SECRET_BYTES = 1 << 20
REDACTED = "<secret contents redacted>"
_DOCKER_CONFIGS = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}


def _secret_type_causes(type_: str, data: Raw) -> list[Cause]:
    """The size, and what the Secret's type requires."""
    causes = []
    if sum(_decoded_length(str(text or "")) for text in data.values()) > MAX_SECRET_BYTES:
        text = f"Too long: may not be more than {MAX_SECRET_BYTES} bytes"
        causes.append(Cause("data", "FieldValueTooLong", text))
    if (key := _DOCKER_CONFIGS.get(type_)) is not None:
        if key not in data:
            causes.append(required(f"data[{key}]"))
        elif why := _not_json_object(b64decode(data[key] or "")):
            causes.append(invalid_value(f"data[{key}]", REDACTED, why))
    elif type_ == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        causes += [required("data[username]"), required("data[password]")]
    elif type_ == "kubernetes.io/ssh-auth" and not data.get("ssh-privatekey"):
        causes.append(required("data[ssh-privatekey]"))
    elif type_ == "kubernetes.io/tls":
        causes += [required(f"data[{name}]") for name in ("tls.crt", "tls.key") if name not in data]
    return causes


def _decoded_length(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def _not_json_object(text: bytes) -> str:
    """Why the text is no JSON object, as Go says it."""
    try:
        found = loads(text)
    except NotJson:
        return syntax_error(text.decode(errors="replace"))
    if found is None or isinstance(found, dict):
        return ""
    return f"json: cannot unmarshal {kind_of(found)} into Go value of type map[string]interface {{}}"


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
    return [] if old is None else _class_change(raw, old)


def _class_change(raw: Raw, old: Raw) -> list[Cause]:
    causes = [
        forbidden_value(field, f"updates to {field} are forbidden.")
        for field in ("parameters", "provisioner", "reclaimPolicy")
        if raw.get(field) != old.get(field)
    ]
    if raw.get("volumeBindingMode") != old.get("volumeBindingMode"):
        causes.append(invalid_value("volumeBindingMode", raw.get("volumeBindingMode"), "field is immutable"))
    return causes


ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def validate_pvc(raw: Raw, old: Raw | None) -> list[Cause]:
    spec = raw.get("spec") or {}
    modes = [str(one) for one in spec.get("accessModes") or ()]
    causes = []
    if not modes:
        causes.append(required("spec.accessModes", "at least 1 access mode is required"))
    causes += [
        not_supported("spec.accessModes", one, ACCESS_MODES) for one in modes if one not in ACCESS_MODES
    ]
    if "ReadWriteOncePod" in modes and len(set(modes) & set(ACCESS_MODES)) > 1:
        causes.append(
            forbidden_value("spec.accessModes", "may not use ReadWriteOncePod with other access modes")
        )
    causes += _size_causes(spec)
    storage_class = str(spec.get("storageClassName") or "")
    if storage_class:
        faults = name_errors("subdomain", storage_class)
        causes += [invalid_value("spec.storageClassName", storage_class, fault) for fault in faults]
    if spec.get("volumeMode") is not None and spec["volumeMode"] not in VOLUME_MODES:
        causes.append(not_supported("spec.volumeMode", spec["volumeMode"], VOLUME_MODES))
    return causes if old is None else [*causes, *_claim_change(spec, old)]


def _size_of(spec: Raw) -> Quantity | None:
    return _amount(nested(spec, "resources", "requests", "storage"))


def _size_causes(spec: Raw) -> list[Cause]:
    written = nested(spec, "resources", "requests", "storage")
    if written is None:
        return [required("spec.resources[storage]")]
    size = _size_of(spec)
    if size is not None and size.nanos <= 0:
        return [invalid_value("spec.resources[storage]", str(size), "must be greater than zero")]
    return []


def _claim_change(spec: Raw, old: Raw) -> list[Cause]:
    before = old.get("spec") or {}
    causes = []
    is_bound = nested(old, "status", "phase") == "Bound"
    if _is_changed(spec, before, is_bound=is_bound):
        causes.append(forbidden_value("spec", CLAIM_SPEC))
    size, size_before = _size_of(spec) or Quantity(0), _size_of(before) or Quantity(0)
    capacity = _amount(nested(old, "status", "capacity", "storage")) or Quantity(0)
    # A claim that could not be enlarged may take its wish back.
    if size < size_before and size <= capacity:
        text = "field can not be less than status.capacity"
        causes.append(forbidden_value("spec.resources.requests.storage", text))
    return causes


def _is_changed(spec: Raw, before: Raw, *, is_bound: bool) -> bool:
    """Whether a claim's spec has changed where it may not: a volume and a class are given once; a bound claim may grow."""
    new, old = _compared(spec), _compared(before)
    if not before.get("volumeName"):
        old["volumeName"] = new["volumeName"]
    if before.get("storageClassName") is None and spec.get("storageClassName") is not None:
        old["storageClassName"] = new["storageClassName"]
    if is_bound and nested(spec, "resources", "requests") is not None:
        new["requests"] = {**new["requests"], "storage": old["requests"].get("storage")}
    if is_bound and spec.get("volumeAttributesClassName") is not None:
        new["volumeAttributesClassName"] = old["volumeAttributesClassName"]
    return new != old


def _compared(spec: Raw) -> Raw:
    """Nothing and the empty value of a field are one, but for classes; amounts are numbers."""
    made = {
        name: value for name, value in spec.items() if value not in (None, {}, []) and name != "resources"
    }
    for name in ("volumeName", "storageClassName", "volumeAttributesClassName"):
        made.setdefault(name, "" if name == "volumeName" else None)
    for name in ("limits", "requests"):
        made[name] = {key: _amount(value) for key, value in (nested(spec, "resources", name) or {}).items()}
    return made


def _amount(written: Any) -> Quantity | None:
    try:
        return Quantity.parse(str(written).strip())
    except ValueError:
        return None


def validate_pod(raw: Raw, old: Raw | None) -> list[Cause]:
    if not nested(raw, "spec", "containers"):
        return [required("spec.containers")]
    return []
