"""Strict field validation of a manifest before it is sent: what kubectl's `--validate=strict` asks the API server for.

The schemas are those of the management API, so both find the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from windrow.apiserver.types.builtins import BUILTINS
from windrow.apiserver.types.crds import types_from_crd
from windrow.apiserver.types.registry import Registry
from windrow.apiserver.types.schema import (
    PRESERVE,
    Schema,
    drop_unset,
    items_schema,
    property_schema,
    prune,
    validate,
)
from windrow.apiserver.verbs.metadata import METADATA_FIELDS, unknown_metadata
from windrow.bootstrap.k3s.flags import KEYS as K3S_KEYS
from windrow.bootstrap.rke2.flags import KEYS as RKE2_KEYS
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG
from windrow.clusters.api.manifest.supported_fields import HARVESTER_CONFIG_FIELDS
from windrow.kubernetes.objects import Raw
from windrow.machines.port import Problem

_STEP = re.compile(r"[^.\[\]]+|\[\d+\]")


@cache
def _management_types() -> Registry:
    from windrow.app.embedded import management_crds

    return Registry((*BUILTINS, *(type for crd in management_crds() for type in types_from_crd(crd))))


@dataclass(frozen=True, slots=True)
class UnknownField(Problem):
    """A field that its kind does not have. `meant` is the path of the one of which it is taken for a misspelling; "" where
    none is near."""

    meant: str = ""


def find_unknown_fields(raw: Raw) -> list[UnknownField]:
    """An error for each field, at every level, that the object's kind does not have; none for a kind that is not ours. Where
    the field belongs elsewhere, the hint says so."""
    type = _management_types().find_by_gvk(str(raw.get("apiVersion")), str(raw.get("kind")))
    if type is None:
        return []
    kind = type.kind.kind
    in_metadata = [_problem(path, kind, METADATA_FIELDS) for path in unknown_metadata(raw)]
    unknown = prune(type.schema, deepcopy(raw))
    found = [_problem(path, kind, _siblings(type.schema, path), _value_at(raw, path)) for path in unknown]
    moved = raw.get("spec")
    if kind == _CONFIG and isinstance(moved, dict):
        # What will be unknown once its fields are at the top level.
        top = _siblings(type.schema, "x")
        found += [_problem(f"spec.{name}", kind, top) for name in moved if name not in top]
    return in_metadata + found


def place_fields(raw: Raw) -> Raw:
    """A HarvesterConfig whose fields are below `spec`, as tutorials write it, with those that it has at the top level.

    So a check of what the fields mean tells only what remains wrong once they are moved. Other objects are as they were."""
    moved = raw.get("spec")
    if raw.get("kind") != _CONFIG or not isinstance(moved, dict):
        return raw
    return {**{name: value for name, value in moved.items() if name in _places()[_CONFIG]}, **raw}


def find_mistyped_fields(raw: Raw) -> list[Problem]:
    """An error for each value, at every level, that is of another type than its field or out of its bounds."""
    type = _management_types().find_by_gvk(str(raw.get("apiVersion")), str(raw.get("kind")))
    if type is None:
        return []
    known = deepcopy(raw)
    prune(type.schema, known)
    drop_unset(type.schema, known)
    hint = "write a value of the type that the field has"
    return [Problem(str(cause), hint, cause.field) for cause in validate(type.schema, known)]


def _problem(path: str, kind: str, siblings: frozenset[str], value: Any = None) -> UnknownField:
    parent, dot, name = path.rpartition(".")
    fault = f"{path} is not a field of {kind}"
    if hint := _find_place(path, kind, value):
        return UnknownField(fault, hint, path)
    if near := get_close_matches(name, siblings, 1):
        return UnknownField(fault, f"did you mean {near[0]}?", path, meant=f"{parent}{dot}{near[0]}")
    return UnknownField(fault, "correct its spelling, or remove it", path)


# -- fields in the wrong place -----------------------------------------------------------------------------------

_CLUSTER, _CONFIG = "Cluster", HARVESTER_CONFIG.kind
# What tutorials, Terraform and Cluster API's provider call things, by the kind that they are written in.
_CALLED = {
    (_CLUSTER, "networkConfig"): "the network plugin is the key cni in spec.rkeConfig.machineGlobalConfig",
    (_CLUSTER, "network"): "the network plugin is the key cni in spec.rkeConfig.machineGlobalConfig",
    # Of Rancher's releases 2.6 and earlier.
    (_CLUSTER, "controlPlaneConfig"): "it is spec.rkeConfig.machineGlobalConfig since Rancher 2.6",
    (_CLUSTER, "workerConfig"): "it is spec.rkeConfig.machineSelectorConfig since Rancher 2.6",
    (
        _CLUSTER,
        "hostnamePrefix",
    ): "remove it, the name of a machine begins with those of the Cluster and of its pool",
    (
        _CLUSTER,
        "defaultPodSecurityPolicyTemplateName",
    ): "remove it, Kubernetes has no PodSecurityPolicy since 1.25",
    (_CONFIG, "namespace"): "the namespace of the VMs is vmNamespace",
    (_CONFIG, "cpu"): "it is cpuCount here",
    (_CONFIG, "cpus"): "it is cpuCount here",
    (_CONFIG, "memory"): "it is memorySize here, in GiB",
    (_CONFIG, "image"): "it is the imageName of a disk in diskInfo here",
    (_CONFIG, "volumes"): "disks are in diskInfo here",
    (_CONFIG, "disks"): "disks are in diskInfo here, as {disks: [...]}",
    (_CONFIG, "storageClassName"): "it is the storageClassName of a disk in diskInfo here",
    (_CONFIG, "diskStorageClassName"): "it is the storageClassName of a disk in diskInfo here",
    (_CONFIG, "network"): "it is the networkName of an interface in networkInfo here",
    (_CONFIG, "networks"): "networks are in networkInfo here",
    (_CONFIG, "interfaces"): "interfaces are in networkInfo here, as {interfaces: [...]}",
    (_CONFIG, "networkConfig"): "addresses are networkData here, in cloud-init's format",
    (_CONFIG, "sshKeyPair"): "it is keyPairName here",
    (_CONFIG, "labels"): "labels of machines are those of the machine pool in the Cluster",
    (_CONFIG, "taints"): "taints of machines are those of the machine pool in the Cluster",
}
_GLOBAL = "spec.rkeConfig.machineGlobalConfig"
# What the manager writes, and what a snapshot of another Cluster is read with: its s3 is as that of etcd.
_NO_PLACES = ("status", "spec.rkeConfig.etcdSnapshotRestore.from")
MOST_PLACES = 2  # a name that more fields have says nothing


def _find_place(path: str, kind: str, value: Any) -> str:
    """Where an unknown field belongs, as a hint; "" where that is not known."""
    name = path.rpartition(".")[2]
    if kind == _CONFIG and path == "spec" and isinstance(value, dict):
        effects = {key: HARVESTER_CONFIG_FIELDS.find(key) for key in value if key in _places()[kind]}
        known = [key for key, effect in effects.items() if effect and effect[0] == "works"]
        return f"write {', '.join(known) or 'its fields'} at the top level, beside metadata"
    if called := _CALLED.get((kind, name)):
        return called
    if path == "type":
        return (
            "remove it, it is written by Rancher's own API at /v1; apiVersion and kind say what the object is"
        )
    if kind not in (_CLUSTER, _CONFIG):
        return ""
    for spelling in dict.fromkeys((name, _camel_case(name))):
        if 1 <= len(places := _places()[kind].get(spelling, ())) <= MOST_PLACES:
            return f"it belongs at {' or '.join(places)}"
        other = _CONFIG if kind == _CLUSTER else _CLUSTER
        if 1 <= len(places := _places()[other].get(spelling, ())) <= MOST_PLACES:
            return f"it is a field of {other}: {' or '.join(places)}"
    if kind == _CLUSTER and name.replace("_", "-") in _config_keys():
        is_entry = path.startswith("spec.rkeConfig.machineSelectorConfig[")
        where = f"config of that entry of {path.partition('[')[0]}" if is_entry else _GLOBAL
        return f"it is a configuration key of the distribution: write {name.replace('_', '-')} in {where}"
    return ""


def _camel_case(name: str) -> str:
    """`machinePools` for `machine_pools`, as Terraform writes it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@cache
def _places() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Where the fields of a name are, by kind and name."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    types = _management_types()
    for kind in (CLUSTER, HARVESTER_CONFIG):
        type = types.find_by_gvk(kind.api_version, kind.kind)
        places: dict[str, tuple[str, ...]] = {}
        for path in _paths(type.schema if type else {}):
            if not path.startswith(_NO_PLACES):
                name = path.rpartition(".")[2]
                places[name] = (*places.get(name, ()), path)
        found[kind.kind] = places
    return found


def _paths(schema: Schema, path: str = "") -> Iterator[str]:
    for name, inner in (schema.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        yield here
        yield from _paths(inner, here)
        yield from _paths(items_schema(inner), f"{here}[]")


@cache
def _config_keys() -> frozenset[str]:
    return frozenset().union(*(keys.find() for keys in (RKE2_KEYS, K3S_KEYS)))


def _value_at(raw: Any, path: str) -> Any:
    for step in _STEP.findall(path):
        try:
            raw = raw[int(step[1:-1])] if step.startswith("[") else raw[step]
        except (KeyError, IndexError, TypeError):
            return None  # a key with dots
    return raw


def _siblings(schema: Schema, path: str) -> frozenset[str]:
    """The fields that the object has which holds the field at `path`; none where its place is not clear from the path,
    as below a key with dots."""
    for step in _STEP.findall(path.rpartition(".")[0]):
        schema = items_schema(schema) if step.startswith("[") else property_schema(schema, step)
    return frozenset(schema.get("properties") or ()) if not schema.get(PRESERVE) else frozenset()
