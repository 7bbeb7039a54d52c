"""Raw objects as JSON has them: reading their metadata and building them. Unknown fields survive a round trip."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from windrow.core.clock import parse_time
from windrow.core.text import decode_base64
from windrow.kubernetes.resources import CRD, ApiResource

Raw = dict[str, Any]

MAX_LABEL_LENGTH = 63
MAX_SUBDOMAIN_LENGTH = 253

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def name_of(raw: Mapping[str, Any]) -> str:
    return str(raw["metadata"]["name"])


def namespace_of(raw: Mapping[str, Any]) -> str:
    return str(raw["metadata"].get("namespace", ""))


def uid_of(raw: Mapping[str, Any]) -> str:
    return str(raw["metadata"].get("uid", ""))


def version_number(resource_version: str) -> int:
    """What orders the resourceVersions of one resource; 0 for what is none."""
    return int(resource_version) if resource_version.isdigit() else 0


def resource_version_of(raw: Mapping[str, Any]) -> str:
    return str(raw["metadata"].get("resourceVersion", ""))


def labels_of(raw: Mapping[str, Any]) -> dict[str, str]:
    return raw["metadata"].get("labels") or {}


def annotations_of(raw: Mapping[str, Any]) -> dict[str, str]:
    return raw["metadata"].get("annotations") or {}


def finalizers_of(raw: Mapping[str, Any]) -> list[str]:
    return raw["metadata"].get("finalizers") or []


def secret_texts(secret: Mapping[str, Any]) -> dict[str, str]:
    """The data of a Secret as text, "" for values that are none."""
    texts = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            texts[key] = decode_base64(value)
        except ValueError:
            texts[key] = ""
    return texts


def time_of(raw: Any, *path: str) -> datetime | None:
    """The instant in the field at `path`, None where it is not set."""
    text = nested(raw, *path)
    return parse_time(text) if text else None


def is_deleting(raw: Mapping[str, Any]) -> bool:
    return bool(raw["metadata"].get("deletionTimestamp"))


def flatten_list(document: Any) -> list[Any]:
    """The items of a List (of any kind whose name ends so); another document is the only item."""
    items = document.get("items") if isinstance(document, Mapping) else None
    if isinstance(items, list) and str(document.get("kind", "")).endswith("List"):
        return list(items)
    return [document]


def nested(raw: Any, *path: str | int, default: Any = None) -> Any:
    """The value at `path`, or `default` where any step is missing, null or of another shape."""
    here = raw
    for step in path:
        if isinstance(step, int):
            if not isinstance(here, Sequence) or isinstance(here, str) or not -len(here) <= step < len(here):
                return default
            here = here[step]
        else:
            if not isinstance(here, Mapping) or step not in here:
                return default
            here = here[step]
    return default if here is None else here


def mappings_at(raw: Any, *path: str | int) -> list[Mapping[str, Any]]:
    """The mappings in the list at `path`; none where there is no list. For manifests whose types are not checked yet."""
    found = nested(raw, *path)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def text_at(raw: Any, *path: str | int) -> str:
    """The text at `path`, "" where it is missing. Raises TypeError for what is no text, which is not the same as none."""
    value = nested(raw, *path, default="")
    if not isinstance(value, str):
        raise _wrong_type(path, "text", value)
    return value


def objects_at(raw: Any, *path: str | int) -> list[Raw]:
    """The list of objects at `path`, [] where it is missing. Raises TypeError for anything else."""
    value = nested(raw, *path, default=())
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise _wrong_type(path, "a list of objects", value)
    return list(value)


def _wrong_type(path: tuple[str | int, ...], wanted: str, found: Any) -> TypeError:
    return TypeError(f"wanted {wanted} in {'.'.join(map(str, path))}, found a {type(found).__name__}")


def new_object(
    kind: ApiResource,
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owners: Iterable[Raw] = (),
    finalizers: Sequence[str] = (),
    **rest: Any,
) -> Raw:
    """A raw object of `kind`; `rest` holds its other top-level fields (spec, data, …)."""
    metadata: Raw = {"name": name}
    if kind.namespaced and namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    references = list(owners)
    if references:
        metadata["ownerReferences"] = references
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}


def new_crd(
    kind: ApiResource,
    schema: Raw,
    columns: Sequence[tuple[str, str, str]] = (),
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Raw:
    """The CustomResourceDefinition of a namespaced kind. Columns are name, type and JSON path."""
    version: Raw = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    if columns:
        version["additionalPrinterColumns"] = [
            {"name": name, "type": type_, "jsonPath": path} for name, type_, path in columns
        ]
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    spec = {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]}
    return new_object(CRD, kind.group_resource, labels=labels, annotations=annotations, spec=spec)


def owner_reference(
    kind: ApiResource, raw: Mapping[str, Any], *, controller: bool = False, block: bool = False
) -> Raw:
    """The owner reference to `raw`, which must exist on the server (it needs its uid)."""
    reference: Raw = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name_of(raw),
        "uid": raw["metadata"]["uid"],
    }
    if controller:
        reference["controller"] = True
    if block:
        reference["blockOwnerDeletion"] = True
    return reference


def is_dns_subdomain(text: str) -> bool:
    """Whether `text` is a DNS-1123 subdomain: labels joined by dots, of at most 253 characters."""
    return len(text) <= MAX_SUBDOMAIN_LENGTH and all(_LABEL.fullmatch(part) for part in text.split("."))


def is_label_key(text: str) -> bool:
    """Whether an API server takes `text` as the key of a label: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    return _QUALIFIED_NAME.fullmatch(name) is not None and (not slash or is_dns_subdomain(prefix))


def is_dns_label(text: str, max_length: int | None = MAX_LABEL_LENGTH) -> bool:
    """Whether `text` is a DNS-1123 label: small letters, digits and inner dashes, of at most `max_length`."""
    return _LABEL.fullmatch(text) is not None and (max_length is None or len(text) <= max_length)
