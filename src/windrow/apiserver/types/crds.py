"""CustomResourceDefinitions: validation, defaults, and the resource types that one defines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from windrow.apiserver.apierrors import Cause, forbidden_value, invalid_value, not_supported, required
from windrow.apiserver.types.printers import AGE, NAME
from windrow.apiserver.types.registry import Column, ResourceType, ScalePaths
from windrow.apiserver.types.schema import OPEN_SCHEMA, list_unevaluated_rules
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
        if not version.get("name"):
            causes.append(required(f"spec.versions[{index}].name"))
        for at, column in enumerate(version.get("additionalPrinterColumns") or ()):
            missing = [name for name in ("name", "jsonPath") if not column.get(name)]
            causes += [required(f"spec.additionalPrinterColumns[{at}].{name}") for name in missing]
        scale = (version.get("subresources") or {}).get("scale")
        paths = (
            []
            if scale is None
            else [name for name in ("specReplicasPath", "statusReplicasPath") if not scale.get(name)]
        )
        causes += [required(f"spec.subresources.scale.{name}") for name in paths]
        for at, field in enumerate(version.get("selectableFields") or ()):
            if not field.get("jsonPath"):
                causes.append(required(f"spec.selectableFields[{at}].jsonPath"))
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            causes.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
            continue
        # kube-apiserver moves what all versions share to the top before it validates.
        path = "spec.validation" if len(spec["versions"]) == 1 else f"spec.versions[{index}].schema"
        causes += _find_unserved_keywords(version["schema"]["openAPIV3Schema"], f"{path}.openAPIV3Schema")
    wanted = f"{names.get('plural')}.{spec['group']}"
    if raw["metadata"].get("name") != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        causes.insert(0, invalid_value("metadata.name", raw["metadata"].get("name"), text))
    return causes


def warnings_of(raw: Raw) -> list[str]:
    """What a definition says and this server does not enforce."""
    return [
        f"spec.versions[{index}].schema.openAPIV3Schema.{rule} is not evaluated by this server"
        for index, version in enumerate(raw["spec"]["versions"])
        for rule in list_unevaluated_rules(version["schema"]["openAPIV3Schema"])
    ]


_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_FORBIDDEN = ("$ref", "dependencies", "patternProperties", "definitions", "additionalItems")
_LIST_TYPES = ("atomic", "set", "map")


def _find_unserved_keywords(schema: Raw, path: str) -> Iterator[Cause]:
    """What no schema of a definition may say: kube-apiserver refuses it, and `types.schema` would not enforce it."""
    kind, list_type = schema.get("type", ""), schema.get("x-kubernetes-list-type", "atomic")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden_value(f"{path}.uniqueItems", text)
    for name in _FORBIDDEN:
        if schema.get(name):
            yield forbidden_value(f"{path}.{name}", f"{name} is not supported")
    if list_type not in _LIST_TYPES:
        yield not_supported(f"{path}.x-kubernetes-list-type", list_type, _LIST_TYPES)
    if list_type == "map" and not schema.get("x-kubernetes-list-map-keys"):
        text = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{path}.x-kubernetes-list-map-keys", text)
    if kind == "array" and schema.get("items") is None:
        yield required(f"{path}.items", "must be specified")
    if schema.get("multipleOf") == 0:
        yield invalid_value(f"{path}.multipleOf", 0, "must be greater than 0")
    inner = [(f"{path}.properties[{name}]", one) for name, one in (schema.get("properties") or {}).items()]
    inner += [(f"{path}.{name}", schema.get(name)) for name in ("items", "additionalProperties", "not")]
    for name in ("allOf", "anyOf", "oneOf"):
        inner += [(f"{path}.{name}[{index}]", one) for index, one in enumerate(schema.get(name) or ())]
    for place, one in inner:
        if isinstance(one, dict):
            yield from _find_unserved_keywords(one, place)


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
