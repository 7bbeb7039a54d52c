"""Machine configs of pools, a HarvesterConfig or that of another driver: what of them are the user's own fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.drivers.api import no_driver_fault
from windrow.machines.port import HARVESTER, NOT_OPTIONS, Problem

# Set by the node driver's caller, never by the user (reference/04 §1.6).
_NOT_USER_FIELDS = (
    frozenset({"cloudConfig", "clusterId", "clusterName", "clusterType", "kubeconfigContent"}) | NOT_OPTIONS
)


def read_options(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The user's own fields of a machine config. Rancher writes every field it knows, so empty ones are unset."""
    left_out = _NOT_USER_FIELDS if kind_of(raw) == HARVESTER_CONFIG.kind else NOT_OPTIONS
    return {
        key: value
        for key, value in sorted(raw.items())
        if key not in left_out and value is not None and value != ""
    }


def kind_of(config: Mapping[str, Any]) -> str:
    """The kind of a machine config; objects out of a list may lack it, and then are HarvesterConfigs."""
    return str(config.get("kind") or HARVESTER_CONFIG.kind)


# The name of the node driver that gives a machine config kind, or why no machine can be made by it.
ResolveDriver = Callable[[str], str | Problem]


def harvester_only(kind: str) -> str | Problem:
    """For where no catalogue of node drivers is at hand."""
    if kind == HARVESTER_CONFIG.kind:
        return HARVESTER
    unknown = no_driver_fault(kind)
    return Problem(unknown.message, unknown.hint)
