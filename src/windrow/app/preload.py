"""The objects that an emulated Harvester must have so that given manifests can come up.

A manifest names images, networks, storage classes, key pairs, namespaces and credentials of the user's Harvester.
`read_preload` collects those names and nothing else; `Preload.lines` lists what is created, since none of it is the
user's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.core.json import NotJson, loads
from windrow.kubernetes.objects import nested


@dataclass(frozen=True, slots=True)
class Preload:
    """Names as manifests write them, `namespace/name` where the kind is namespaced."""

    namespaces: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    storage_classes: frozenset[str] = frozenset()
    key_pairs: frozenset[str] = frozenset()
    credentials: frozenset[str] = frozenset()

    def __or__(self, other: Preload) -> Preload:
        return Preload(*(getattr(self, field.name) | getattr(other, field.name) for field in fields(Preload)))

    def lines(self) -> list[str]:
        """One line for each kind of object that is named."""
        return [
            f"{field.name.replace('_', ' ')}: {', '.join(sorted(getattr(self, field.name)))}"
            for field in fields(Preload)
            if getattr(self, field.name)
        ]


def _structured(value: Any) -> Any:
    """A field that may be structured YAML or JSON in a string; what cannot be read counts as empty.

    The manager reports malformed fields.
    """
    if isinstance(value, str):
        try:
            return loads(value) if value.strip() else {}
        except NotJson:
            return {}
    return value


def _entries(config: Mapping[str, Any], field: str, list_name: str) -> list[Mapping[str, Any]]:
    value = _structured(config.get(field))
    found = nested(value, list_name, default=[]) if isinstance(value, Mapping) else value
    return [entry for entry in found or () if isinstance(entry, Mapping)]


def _named(names: Iterable[Any], namespace: str) -> frozenset[str]:
    texts = (str(name) for name in names if name)
    return frozenset(text if "/" in text else f"{namespace}/{text}" for text in texts)


def _preload_of_config(config: Mapping[str, Any]) -> Preload:
    namespace = str(config.get("vmNamespace") or "default")
    disks = _entries(config, "diskInfo", "disks")
    nics = _entries(config, "networkInfo", "interfaces")
    images = _named([disk.get("imageName") for disk in disks] + [config.get("imageName")], namespace)
    networks = _named([nic.get("networkName") for nic in nics] + [config.get("networkName")], namespace)
    key_pairs = _named([config.get("keyPairName")], namespace)
    namespaces = {name.split("/", 1)[0] for name in images | networks | key_pairs} | {namespace}
    classes = frozenset(str(disk["storageClassName"]) for disk in disks if disk.get("storageClassName"))
    return Preload(frozenset(namespaces), images, networks, classes, key_pairs)


def _preload_of_cluster(cluster: Mapping[str, Any]) -> Preload:
    pools = nested(cluster, "spec", "rkeConfig", "machinePools", default=[])
    named = [nested(cluster, "spec", "cloudCredentialSecretName")]
    named += [pool.get("cloudCredentialSecretName") for pool in pools if isinstance(pool, Mapping)]
    return Preload(credentials=frozenset(str(name) for name in named if name))


def read_preload(documents: Iterable[Mapping[str, Any]]) -> Preload:
    """Everything that the Clusters and HarvesterConfigs in `documents` name."""
    preload = Preload()
    for document in documents:
        match document.get("kind"):
            case "HarvesterConfig":
                preload |= _preload_of_config(document)
            case "Cluster":
                preload |= _preload_of_cluster(document)
    return preload


def credential_secrets(preload: Preload, kubeconfig: str, fallback: str = "default") -> list[dict[str, Any]]:
    """The Secrets that the manifests' credentials name, in Rancher's form, each with `kubeconfig`."""
    secrets = []
    for name in sorted(preload.credentials):
        namespace, _, short = name.rpartition(":")
        secrets.append(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": short, "namespace": namespace or fallback},
                "type": "Opaque",
                "stringData": {
                    "harvestercredentialConfig-clusterType": "imported",
                    CREDENTIAL_KEY: kubeconfig,
                },
            }
        )
    return secrets
