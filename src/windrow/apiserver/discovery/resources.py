"""Discovery of groups, versions and resources: legacy and aggregated documents (reference/05 §7.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.apiserver.types.registry import Registry, ResourceType

Raw = dict[str, Any]

_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")
_STAGES = {None: 0, "beta": 1, "alpha": 2}


def version_rank(version: str) -> tuple[int, int, int]:
    """Sorts the preferred version first: v2, v1, v1beta2, v1beta1, v1alpha1."""
    found = _VERSION.match(version)
    if not found:
        return (3, 0, 0)
    return (_STAGES[found.group(2)], -int(found.group(1)), -int(found.group(3) or 0))


@dataclass(frozen=True, slots=True)
class DiscoveredSubresource:
    """A subresource in discovery."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiscoveredResource:
    """A resource in discovery. One without verbs is listed for its subresources only."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    short: tuple[str, ...]
    categories: tuple[str, ...]
    subresources: tuple[DiscoveredSubresource, ...]


_SUBRESOURCES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    # name -> group, version, kind, verbs; no kind: that of the resource
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "binding": ("", "v1", "Binding", ("create",)),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "log": ("", "", "", ("get",)),
    "finalize": ("", "", "", ("update",)),
}
_EVERYDAY = ("", "", "", ("get", "patch", "update"))


def _sub(type: ResourceType, name: str) -> DiscoveredSubresource:
    group, version, kind, verbs = _SUBRESOURCES.get(name, _EVERYDAY)
    if kind:
        return DiscoveredSubresource(name, group, version, kind, verbs)
    return DiscoveredSubresource(name, type.kind.group, type.kind.version, type.kind.kind, verbs)


def discover_type(type: ResourceType) -> DiscoveredResource:
    kind = type.kind
    subs = tuple(_sub(type, name) for name in sorted(type.subresources))
    return DiscoveredResource(
        kind.group,
        kind.version,
        kind.plural,
        type.singular_name,
        kind.kind,
        kind.namespaced,
        type.verbs,
        type.short_names,
        type.categories,
        subs,
    )


def discover_resources(
    registry: Registry, actions: Iterable[tuple[str, str]], action_versions: Mapping[str, tuple[str, ...]]
) -> list[DiscoveredResource]:
    """All resources: the registered types, and the subresource-only resources of other groups."""
    found = [discover_type(type) for type in registry]
    grouped: dict[tuple[str, str], list[str]] = {}
    for qualified, subresource in actions:
        plural, _, group = qualified.partition(".")
        grouped.setdefault((group, plural), []).append(subresource)
    kinds = {type.kind.plural: type.kind.kind for type in registry}
    for (group, plural), names in grouped.items():
        homes = [one.version for one in found if (one.group, one.plural) == (group, plural)]
        if homes:
            continue
        kind = kinds.get(plural, plural)
        for version in action_versions.get(group, ("v1",)):
            subs = tuple(
                DiscoveredSubresource(name, group, version, kind, ("get", "update")) for name in sorted(names)
            )
            found.append(DiscoveredResource(group, version, plural, "", kind, True, (), (), (), subs))
    return sorted(found, key=lambda one: (one.group, version_rank(one.version), one.plural))


def groups_of(offered: list[DiscoveredResource]) -> dict[str, list[str]]:
    """Group -> versions, best first."""
    found: dict[str, dict[str, None]] = {}
    for one in offered:
        found.setdefault(one.group, {})[one.version] = None
    return {group: list(versions) for group, versions in found.items()}


# --- legacy -----------------------------------------------------------------------------------------------------------


def api_versions() -> Raw:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
    }


def group_document(group: str, versions: list[str], *, alone: bool = True) -> Raw:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    made: Raw = {"kind": "APIGroup", "apiVersion": "v1"} if alone else {}
    return {**made, "name": group, "versions": listed, "preferredVersion": listed[0]}


def group_list(groups: Mapping[str, list[str]]) -> Raw:
    listed = [group_document(group, versions, alone=False) for group, versions in groups.items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def resource_list(offered: list[DiscoveredResource], group: str, version: str) -> Raw | None:
    """The APIResourceList of a group version; None when it is not served."""
    mine = [one for one in offered if (one.group, one.version) == (group, version)]
    if not mine:
        return None
    made: Raw = {"kind": "APIResourceList"}
    if group:
        made["apiVersion"] = "v1"
    resources = [entry for one in mine for entry in _legacy(one)]
    return {**made, "groupVersion": f"{group}/{version}" if group else version, "resources": resources}


def _legacy(one: DiscoveredResource) -> list[Raw]:
    found: list[Raw] = []
    if one.verbs:
        main: Raw = {
            "name": one.plural,
            "singularName": one.singular,
            "namespaced": one.namespaced,
            "kind": one.kind,
            "verbs": list(one.verbs),
        }
        if one.short:
            main["shortNames"] = list(one.short)
        if one.categories:
            main["categories"] = list(one.categories)
        found.append(main)
    for sub in one.subresources:
        entry: Raw = {"name": f"{one.plural}/{sub.name}", "singularName": "", "namespaced": one.namespaced}
        if (sub.group, sub.version) != (one.group, one.version):
            entry |= {"group": sub.group, "version": sub.version}
        found.append({**entry, "kind": sub.kind, "verbs": list(sub.verbs)})
    return found


# --- aggregated -------------------------------------------------------------------------------------------------------


def aggregated(offered: list[DiscoveredResource], *, core: bool, version: str) -> Raw:
    """The APIGroupDiscoveryList of `/api` (core) or `/apis`. `version` is that of the document's own form."""
    groups: dict[str, dict[str, list[Raw]]] = {}
    for one in offered:
        if (one.group == "") == core:
            groups.setdefault(one.group, {}).setdefault(one.version, []).append(_resource(one))
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
            "versions": [
                {"version": name, "resources": resources, "freshness": "Current"}
                for name, resources in versions.items()
            ],
        }
        for group, versions in groups.items()
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _response_kind(group: str, version: str, kind: str) -> Raw:
    return {"group": group, "version": version, "kind": kind}


def _resource(one: DiscoveredResource) -> Raw:
    made: Raw = {
        "resource": one.plural,
        "responseKind": _response_kind(one.group, one.version, one.kind),
        "scope": "Namespaced" if one.namespaced else "Cluster",
        "singularResource": one.singular,
        "verbs": list(one.verbs),
    }
    if one.short:
        made["shortNames"] = list(one.short)
    if one.categories:
        made["categories"] = list(one.categories)
    if one.subresources:
        made["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": _response_kind(sub.group, sub.version, sub.kind),
                "verbs": list(sub.verbs),
            }
            for sub in one.subresources
        ]
    return made
