"""CustomResourceDefinitions: validation, defaults, and the resource types that one defines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from windrow.apiserver.apierrors import Cause, invalid_value, not_supported, required
from windrow.apiserver.types.printers import AGE, NAME
from windrow.apiserver.types.registry import Column, ResourceType, ScalePaths
from windrow.apiserver.types.schema import OPEN_SCHEMA
from windrow.kubernetes.resources import ApiResource

Raw = dict[str, Any]

METADATA_FIELDS = {"metadata.name": ("metadata", "name"), "metadata.namespace": ("metadata", "namespace")}
_FILTER = re.compile(r"^\[\?\(@\.([A-Za-z0-9_.]+)\s*==\s*[\"']([^\"']*)[\"']\)\]")


def parse_json_path(text: str) -> Callable[[Raw], Any]:
    """A reader for the JSONPath of a printer column: fields, indexes and `[?(@.type=="Ready")]`."""
    steps: list[Any] = []
    rest = text.strip().strip("{}").removeprefix("$")
    while rest:
        if found := _FILTER.match(rest):
            steps.append((tuple(found.group(1).split(".")), found.group(2)))
        elif found := re.match(r"^\.((?:\\\.|[^.\[\]])+)", rest):
            steps.append(found.group(1).replace("\\.", "."))
        elif found := re.match(r"^\[['\"](.*?)['\"]\]", rest):
            steps.append(found.group(1))
        elif found := re.match(r"^\[(-?\d+)\]", rest):
            steps.append(int(found.group(1)))
        elif found := re.match(r"^\[\*\]", rest):
            steps.append(None)
        else:
            return lambda raw: None  # an unsupported JSONPath prints as a missing value
        rest = rest[found.end() :]
    return lambda raw: _walk([raw], steps)


def _walk(here: list[Any], steps: list[Any]) -> Any:
    for step in steps:
        found: list[Any] = []
        for value in here:
            found += _step(value, step)
        here = found
    return here[0] if here else None


def _step(value: Any, step: Any) -> list[Any]:
    match step:
        case None if isinstance(value, dict):
            return list(value.values())
        case None:
            return list(value) if isinstance(value, list) else []
        case int():
            return [value[step]] if isinstance(value, list) and -len(value) <= step < len(value) else []
        case str():
            return [value[step]] if isinstance(value, dict) and value.get(step) is not None else []
        case (path, wanted):
            return [item for item in value if _matches(item, path, wanted)] if isinstance(value, list) else []
    return []


def _matches(item: Any, path: tuple[str, ...], wanted: str) -> bool:
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    return bool(item == wanted)


def columns_of(version: Raw) -> tuple[Column, ...]:
    extra = [
        Column(
            one["name"],
            parse_json_path(one["jsonPath"]),
            one.get("type", "string"),
            one.get("format", ""),
            one.get("description", ""),
            one.get("priority", 0),
        )
        for one in version.get("additionalPrinterColumns") or ()
    ]
    return (NAME, *extra) if extra else (NAME, AGE)


CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_PARTS = ("group", "names", "scope", "versions")


def validate_crd(raw: Raw, old: Raw | None) -> list[Cause]:
    """The rules of a definition that must hold before it can be served."""
    spec = raw.get("spec") or {}
    causes = [required(f"spec.{part}") for part in _PARTS if not spec.get(part)]
    if causes:
        return causes
    names = spec["names"]
    causes = [required(f"spec.names.{part}") for part in ("plural", "kind") if not names.get(part)]
    if spec["scope"] not in ("Cluster", "Namespaced"):
        causes.append(not_supported("spec.scope", spec["scope"], ("Cluster", "Namespaced")))
    if sum(bool(one.get("storage")) for one in spec["versions"]) != 1:
        causes.append(
            invalid_value(
                "spec.versions",
                len(spec["versions"]),
                "must have exactly one version marked as storage version",
            )
        )
    for index, version in enumerate(spec["versions"]):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            causes.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
    wanted = f"{names.get('plural')}.{spec['group']}"
    if raw["metadata"].get("name") != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        causes.insert(0, invalid_value("metadata.name", raw["metadata"].get("name"), text))
    return causes


def prepare_crd(raw: Raw) -> None:
    """PrepareForCreate: sets defaults, and the finalizer that keeps a definition until its objects are deleted."""
    finalizers = raw["metadata"].setdefault("finalizers", [])
    if CLEANUP_FINALIZER not in finalizers:
        finalizers.append(CLEANUP_FINALIZER)
    spec = raw.get("spec") or {}
    names = spec.get("names") or {}
    if names.get("kind"):
        names |= _complete_names(names)
        spec.setdefault("conversion", {"strategy": "None"})


def _complete_names(names: Raw) -> Raw:
    return {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List", **names}


def types_from_crd(crd: Raw) -> list[ResourceType]:
    """One Type per served version, all kept in the form of the storage version."""
    spec = crd["spec"]
    names = spec["names"]
    storage = next(
        (one["name"] for one in spec["versions"] if one.get("storage")), spec["versions"][0]["name"]
    )
    made = []
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        kind = _kind(spec, version["name"])
        made.append(
            ResourceType(
                kind,
                singular=names.get("singular") or kind.kind.lower(),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                list_kind=names.get("listKind", ""),
                subresources=frozenset(version.get("subresources") or {}),
                schema=(version.get("schema") or {}).get("openAPIV3Schema") or OPEN_SCHEMA,
                columns=columns_of(version),
                scale=_scaling((version.get("subresources") or {}).get("scale")),
                custom=True,
                stored_as=_kind(spec, storage),
                selectable_fields={
                    **METADATA_FIELDS,
                    **{
                        one["jsonPath"].lstrip("."): tuple(one["jsonPath"].lstrip(".").split("."))
                        for one in version.get("selectableFields") or ()
                    },
                },
            )
        )
    return made


def _scaling(raw: Raw | None) -> ScalePaths | None:
    if not raw:
        return None
    paths = (raw.get(name) or "" for name in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath"))
    return ScalePaths(*(tuple(filter(None, path.split("."))) for path in paths))


def _kind(spec: Raw, version: str) -> ApiResource:
    names = spec["names"]
    return ApiResource(spec["group"], version, names["kind"], names["plural"], spec.get("scope") != "Cluster")


def established_status(crd: Raw, now: str) -> Raw:
    """The status of a definition whose names are accepted and whose resources are served."""
    spec = crd["spec"]
    conditions = [
        {"type": type, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
        for type, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [one["name"] for one in spec["versions"] if one.get("storage")]
    return {
        "conditions": conditions,
        "acceptedNames": _complete_names(spec["names"]),
        "storedVersions": stored,
    }
