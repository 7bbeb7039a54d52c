"""Validation of new StorageClasses, and of the sources of PersistentVolumeClaims."""

from __future__ import annotations

from typing import Any

from windrow.apiserver.apierrors import Cause, invalid_value, not_supported, required
from windrow.apiserver.types import validation
from windrow.apiserver.types.registry import key_errors
from windrow.kubernetes.objects import nested

Raw = dict[str, Any]

SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
MOST_PARAMETERS, MOST_BYTES = 512, 256 * 1024


def validate_storage_class(raw: Raw, old: Raw | None) -> list[Cause]:
    own = _new_class_causes(raw)
    return own if old is None else own + validation.validate_storage_class(raw, old)


def _new_class_causes(raw: Raw) -> list[Cause]:
    provisioner = str(raw.get("provisioner") or "")
    causes = [] if provisioner else [required("provisioner")]
    if provisioner:
        lower = provisioner.lower()
        causes += [invalid_value("provisioner", lower, why) for why in key_errors(lower)]
    causes += _parameter_causes(raw.get("parameters") or {})
    for field, offered in (
        ("reclaimPolicy", ("Delete", "Retain")),
        ("volumeBindingMode", ("Immediate", "WaitForFirstConsumer")),
    ):
        if raw.get(field) and raw[field] not in offered:
            causes.append(not_supported(field, raw[field], offered))
    return causes


def _parameter_causes(parameters: Raw) -> list[Cause]:
    if len(parameters) > MOST_PARAMETERS:
        return [_too_long("parameters", MOST_PARAMETERS)]
    causes = [invalid_value("parameters", key, "field can not be empty.") for key in parameters if not key]
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in parameters.items()) > MOST_BYTES:
        causes.append(_too_long("parameters", MOST_BYTES))
    return causes


def _too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


# --- claims -----------------------------------------------------------------------------------------------------------


def prepare_claim_source(raw: Raw) -> None:
    """`dataSource` and `dataSourceRef` say the same. A source of a kind that the first never had is dropped there."""
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        if (source.get("apiGroup") or "", source.get("kind")) in SOURCES:
            spec["dataSourceRef"] = dict(source)
        else:
            del spec["dataSource"]
    elif source is None and reference is not None and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


def validate_claim(raw: Raw, old: Raw | None) -> list[Cause]:
    """kube-apiserver applies the rules of creation twice to a change."""
    own = validation.validate_pvc(raw, None)
    created = own + _source_causes(raw.get("spec") or {})
    if old is None:
        return created
    changed = validation.validate_pvc(raw, old)[len(own) :]
    mode = nested(raw, "spec", "volumeMode") or "Filesystem"
    if mode != (nested(old, "spec", "volumeMode") or "Filesystem"):
        changed.append(invalid_value("volumeMode", mode, validation.IMMUTABLE))
    return created + created + changed


def _source_causes(spec: Raw) -> list[Cause]:
    causes = []
    for place, one in enumerate(nested(spec, "selector", "matchExpressions") or ()):
        if one.get("operator") not in OPERATORS:
            field = f"spec.selector.matchExpressions[{place}].operator"
            causes.append(invalid_value(field, one.get("operator"), "not a valid selector operator"))
    for field in ("dataSource", "dataSourceRef"):
        source = spec.get(field)
        if source is not None:
            causes += [required(f"spec.{field}.{key}") for key in ("name", "kind") if not source.get(key)]
    return causes
