"""What a change of a field means for machines that exist: the one table, of the kinds' fields and of the driver's options.

The fields of a Cluster have their rows in `CLUSTER_FIELDS`, those of a HarvesterConfig in the options of the node driver,
which the manager is handed as `OptionRules`. A field of another driver's machine config is not known, so its machines are
replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from windrow.bootstrap.config.keys import MANAGED
from windrow.bootstrap.immutable_config import ImmutableKey, list_immutable_keys
from windrow.bootstrap.k3s.flags import KEYS as K3S_KEYS
from windrow.bootstrap.node_config import CLOUD_PROVIDER_NAME
from windrow.bootstrap.rke2.flags import KEYS as RKE2_KEYS
from windrow.bootstrap.spec import HasRoles
from windrow.clusters.api.manifest.supported_fields import (
    CLUSTER_FIELDS,
    HARVESTER_CONFIG_FIELDS,
    Change,
    Concerned,
    OnChange,
)
from windrow.machines.port import Problem

GLOBAL_CONFIG = "spec.rkeConfig.machineGlobalConfig"
POOL = "spec.rkeConfig.machinePools[]"

# Fields that ask for something to be done once: no machine has them, and machines have turns for them all the same.
REQUESTS = frozenset(
    {
        "spec.rkeConfig.rotateCertificates",
        "spec.rkeConfig.rotateEncryptionKeys",
        "spec.rkeConfig.rotateToken",
    }
)

# The least disruptive first: of several changes of a machine the last one counts.
CHANGES: tuple[Change, ...] = (
    "none",
    "new machines only",
    "live",
    "service restart",
    "VM restart",
    "replace",
    "refused",
)
# Those for which a machine has its turn.
TURNS: tuple[Change, ...] = ("service restart", "VM restart", "replace")
# Those that this release only tells. `update` and `rollout` take theirs out as they carry them out.
NOT_YET: frozenset[Change] = frozenset()
NOT_YET_HINT = "existing machines change in a later release"

OptionChange = Literal["live", "restart", "roll", "new_only"]

_OF_OPTIONS: Mapping[str, OnChange] = {
    "live": OnChange("none", "no machine has it"),
    "restart": OnChange("VM restart", "a VM has it from its next start on"),
    "roll": OnChange("replace", "a VM is made with it"),
    "new_only": OnChange("new machines only", "a machine is made with it"),
}
_UNKNOWN_OPTION = OnChange(
    "replace", "a machine is made with it, and its driver does not say what else could be done"
)


def _find_none(before: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, OptionChange]:
    return {}


def _refuse_none(before: Mapping[str, Any], after: Mapping[str, Any]) -> Sequence[Problem]:
    return ()


@dataclass(frozen=True, slots=True)
class OptionRules:
    """What the built-in node driver says of its options: their fields, and which of them say something else between two sets of
    options, with what that means. `"2"` is as `2`, and none as the default. And why the second of two sets cannot be had."""

    fields: frozenset[str] = frozenset()
    find_changes: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, OptionChange]] = _find_none
    find_refusals: Callable[[Mapping[str, Any], Mapping[str, Any]], Sequence[Problem]] = _refuse_none


def on_change_of_option(name: str, change: OptionChange | None = None) -> OnChange:
    """What a change of this field of a machine config means, of which its driver says `change`."""
    if change is not None:
        return _OF_OPTIONS[change]
    return HARVESTER_CONFIG_FIELDS.find_change(name) or _UNKNOWN_OPTION


def on_change_of_field(path: str) -> OnChange:
    """What a change of this field of a Cluster means; without effect where it has none. `[]` is each item of a list."""
    return CLUSTER_FIELDS.find_change(path) or OnChange("none", "it has no effect")


def is_request(path: str) -> bool:
    """Whether the field, or one above it, is of `REQUESTS`."""
    return path in REQUESTS or any(path.startswith(f"{one}.") for one in REQUESTS)


def on_change_of_key(name: str, old: Any, new: Any, distribution: str) -> OnChange:
    """What a change of this key of `machineGlobalConfig` or `machineSelectorConfig` means."""
    if name in MANAGED:
        return OnChange("none", "Windrow sets it itself")
    for key in list_immutable_keys(distribution):
        if key.name == name and _is_another(key, old, new, distribution):
            return OnChange("refused", key.why)
    usual = on_change_of_field(GLOBAL_CONFIG)
    keys = {"rke2": RKE2_KEYS, "k3s": K3S_KEYS}.get(distribution)
    if keys is not None and name in keys.server_only():
        return OnChange(usual.change, "servers read it when they start", "servers")
    return usual


def _is_another(key: ImmutableKey, old: Any, new: Any, distribution: str) -> bool:
    """Whether servers would compare it as another value: K3s' `disable` may change but for one component."""
    if key.name == CLOUD_PROVIDER_NAME:
        return True
    were, are = ({} if value is None else {key.name: value} for value in (old, new))
    return key.find_value(were, distribution, "") != key.find_value(are, distribution, "")


def concerns(concerned: Concerned, machine: HasRoles) -> bool:
    """Whether a change of what `concerned` have is one of this machine."""
    match concerned:
        case "all":
            return True
        case "servers":
            return machine.is_server
        case "API servers":
            return machine.is_control_plane
        case "etcd members":
            return machine.is_etcd
        case "cluster":
            return False


def strongest(changes: frozenset[Change]) -> Change:
    """Of several changes the most disruptive one that is carried out; "refused" where nothing else is left."""
    for change in reversed(CHANGES[:-1]):
        if change in changes and change != "none":
            return change
    return "refused" if "refused" in changes else "none"
