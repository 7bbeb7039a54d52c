"""What the server offers, told in the legacy form: `/api`, `/apis`, groups, resource lists (reference/05 §7.2)."""

from __future__ import annotations

import re
from typing import Any

from windrow.apiserver.types import Registry, Type

Raw = dict[str, Any]

_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")


def version_rank(version: str) -> tuple[int, int, int]:
    """Sorts the preferred version first: v2, v1, v1beta2, v1beta1, v1alpha1."""
    found = _VERSION.match(version)
    if not found:
        return (3, 0, 0)
    stage = {None: 0, "beta": 1, "alpha": 2}[found.group(2)]
    return (stage, -int(found.group(1)), -int(found.group(3) or 0))


def groups_of(registry: Registry, actions: dict[str, set[str]]) -> dict[str, list[str]]:
    """Group -> versions, best first."""
    found: dict[str, set[str]] = {}
    for one in registry:
        found.setdefault(one.kind.group, set()).add(one.kind.version)
    for group, versions in actions.items():
        found.setdefault(group, set()).update(versions)
    return {group: sorted(found[group], key=version_rank) for group in sorted(found)}


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


def group_list(groups: dict[str, list[str]]) -> Raw:
    listed = [group_document(group, versions, alone=False) for group, versions in groups.items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


SUBRESOURCE_KINDS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    # name -> group, version, kind, verbs
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "binding": ("", "v1", "Binding", ("create",)),
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "log": ("", "", "", ("get",)),
    "finalize": ("", "", "", ("update",)),
    "status": ("", "", "", ("get", "patch", "update")),
}


def resources_of(type: Type) -> list[Raw]:
    """The APIResource entries of one type: itself and its subresources."""
    main: Raw = {
        "name": type.kind.plural,
        "singularName": type.singular_name,
        "namespaced": type.kind.namespaced,
        "kind": type.kind.kind,
        "verbs": list(type.verbs),
    }
    if type.short:
        main["shortNames"] = list(type.short)
    if type.categories:
        main["categories"] = list(type.categories)
    return [main, *(_subresource(type, name) for name in sorted(type.subresources))]


def _subresource(type: Type, name: str) -> Raw:
    group, version, kind, verbs = SUBRESOURCE_KINDS.get(name, ("", "", "", ("get", "patch", "update")))
    made: Raw = {
        "name": f"{type.kind.plural}/{name}",
        "singularName": "",
        "namespaced": type.kind.namespaced,
        "kind": kind or type.kind.kind,
        "verbs": list(verbs),
    }
    if version:
        made["version"] = version
    if group:
        made["group"] = group
    return made


def resource_list(registry: Registry, group: str, version: str, actions: list[Raw]) -> Raw | None:
    """The APIResourceList of a group version; None when nothing is there."""
    types = [one for one in registry if (one.kind.group, one.kind.version) == (group, version)]
    if not types and not actions:
        return None
    resources = [
        entry for one in sorted(types, key=lambda one: one.kind.plural) for entry in resources_of(one)
    ]
    name = f"{group}/{version}" if group else version
    made: Raw = {"kind": "APIResourceList", "groupVersion": name, "resources": resources + actions}
    if group:
        made["apiVersion"] = "v1"
    return made
