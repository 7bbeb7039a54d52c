"""A user's affinity as the Go driver reads it: keys in any case at every level, and unknown ones have no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.core.formats.json import NotJson, loads
from windrow.nodedriver.config import Configuration

# Kubernetes' types by their keys: a mapping is an object, a tuple a list of what it holds, None any value.
_REQUIREMENTS = ({"key": None, "operator": None, "values": None},)
_SELECTOR = {"matchLabels": None, "matchExpressions": _REQUIREMENTS}
_NODE_TERM = {"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}
_POD_TERM = {
    "labelSelector": _SELECTOR,
    "namespaceSelector": _SELECTOR,
    "namespaces": None,
    "topologyKey": None,
    "matchLabelKeys": None,
    "mismatchLabelKeys": None,
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_POD = {REQUIRED: (_POD_TERM,), PREFERRED: ({"weight": None, "podAffinityTerm": _POD_TERM},)}
_AFFINITY: Mapping[str, Any] = {
    "nodeAffinity": {
        REQUIRED: {"nodeSelectorTerms": (_NODE_TERM,)},
        PREFERRED: ({"weight": None, "preference": _NODE_TERM},),
    },
    "podAffinity": _POD,
    "podAntiAffinity": _POD,
}
AFFINITIES = tuple(_AFFINITY)


def read_affinity(configuration: Configuration) -> Any:
    """The affinity the user gave, in Kubernetes' spelling and without keys that it does not have; None where there is
    none (also for the JSON word `null`), and what is no object as it is."""
    return _canonical(parse_affinity(configuration), _AFFINITY, "", [])


def find_unknown_keys(configuration: Configuration) -> list[str]:
    """The paths of the affinity's keys that Kubernetes does not have in any spelling."""
    unknown: list[str] = []
    _canonical(parse_affinity(configuration), _AFFINITY, "", unknown)
    return unknown


def parse_affinity(configuration: Configuration) -> Any:
    """The affinity as it was given."""
    try:
        return loads(configuration.vm_affinity) if configuration.vm_affinity else None
    except NotJson:
        return configuration.vm_affinity


def _canonical(value: Any, shape: Any, path: str, unknown: list[str]) -> Any:
    match value, shape:
        case dict(), Mapping():
            names = {name.lower(): name for name in shape}
            found = {}
            for key, inner in value.items():
                name = names.get(str(key).lower())
                if name is None:
                    unknown.append(f"{path}{key}")
                else:
                    found[name] = _canonical(inner, shape[name], f"{path}{name}.", unknown)
            return found
        case list(), (entry,):
            return [
                _canonical(each, entry, f"{path[:-1]}[{index}].", unknown) for index, each in enumerate(value)
            ]
    return value
