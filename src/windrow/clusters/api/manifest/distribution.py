"""The distribution of a Cluster, and its configuration: its version, `machineGlobalConfig` and `machineSelectorConfig`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap.config.values import find_doubt, find_fault
from windrow.bootstrap.k3s.flags import KEYS as K3S_KEYS
from windrow.bootstrap.rke2.flags import KEYS as RKE2_KEYS
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.manifest.supported_fields import CLUSTER_FIELDS
from windrow.clusters.api.references import parse_secret_reference
from windrow.clusters.api.version_steps import check_step
from windrow.core.formats.version import NotVersion, Version
from windrow.kubernetes.kubeconfig import BadKubeconfig, parse_kubeconfig
from windrow.machines.port import HARVESTER, Problem

# Of machineGlobalConfig and all of machineSelectorConfig; RKE2 has about 200, K3s about 130.
MAX_CONFIG_KEYS = 1000
MAX_SELECTORS = 100
# That machineGlobalConfig may have by mistake; `etcd` and the like are no keys of a distribution.
_RKE_FIELDS = {path.split(".")[2].removesuffix("[]") for path in CLUSTER_FIELDS.list_below("spec.rkeConfig.")}


def read_config(rke: Fields) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]:
    """`machineGlobalConfig` and `machineSelectorConfig`; none of either where they have too many keys together."""
    global_config = rke.mapping("machineGlobalConfig")
    for key in global_config.keys() & _RKE_FIELDS:
        place = f"spec.rkeConfig.{key}"
        rke.warn(
            "machineGlobalConfig",
            f"has {key}, which is a field of its own",
            f"write it as {place}, one level higher",
        )
    selectors = tuple(
        entry.raw
        for entry in rke.items("machineSelectorConfig", MAX_SELECTORS)
        if (entry.mapping("config") or not entry.raw.get("config")) and entry.selector("machineLabelSelector")
    )
    keys = len(global_config) + sum(len(entry.get("config") or {}) for entry in selectors)
    if keys > MAX_CONFIG_KEYS:
        rke.refuse(
            "machineGlobalConfig",
            f"and machineSelectorConfig have {keys} keys together",
            f"write {MAX_CONFIG_KEYS} at most",
        )
        return {}, ()
    return global_config, selectors


def merge_cluster_wide(
    global_config: Mapping[str, Any], selectors: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The keys that hold for every machine, in Rancher's merge order."""
    merged = dict(global_config)
    for entry in selectors:
        if not entry.get("machineLabelSelector"):
            merged.update(entry.get("config") or {})
    return merged


def find_cloud_provider(version: str, config: Mapping[str, Any], pools: Iterable[Pool]) -> str:
    """The cloud provider of the cluster, as its distribution understands the keys that hold for every machine."""
    distribution = DISTRIBUTIONS.get(find_distribution_name(version))
    if distribution is None:
        return str(config.get("cloud-provider-name") or "")  # the version is refused
    return distribution.find_cloud_provider(config, any(pool.driver == HARVESTER for pool in pools))


def read_secret_reference(value: Any, problems: ProblemCollector) -> str:
    """The `namespace:name` of `secret://namespace:name`, "" for configuration text."""
    if not isinstance(value, str) or not value.startswith("secret://"):
        return ""
    reference = value.removeprefix("secret://")
    if parse_secret_reference(reference) is None:
        problems.add(
            "spec.rkeConfig.machineSelectorConfig",
            f"cloud-provider-config is {value!r}, which names no Secret",
            "write secret://namespace:name",
        )
        return ""
    return reference


def check_guest_credentials(cluster: Cluster, problems: ProblemCollector) -> None:
    """Text in place of a path or of `secret://` becomes the file from which Harvester's cloud provider in the guest reads its
    kubeconfig; with other text there no Node is ever initialized."""
    if cluster.cloud_provider != HARVESTER:
        return
    for where, config in _list_configs(cluster):
        given = str(config.get("cloud-provider-config") or "")
        if not given or given.startswith(("/", "secret://")):
            continue
        try:
            parse_kubeconfig(given)
        except BadKubeconfig as error:
            problems.add(
                where,
                f"cloud-provider-config in {where} is the text of a file that Harvester's cloud provider cannot use: "
                f"{error.message}",
                "paste a kubeconfig, write secret://namespace:name, or remove the key to have the credential made",
            )


def check_config_values(cluster: Cluster, problems: ProblemCollector) -> None:
    """Values of another kind than their keys of the distribution take: no machine would start with them, or as was meant. What a
    key takes that neither distribution has is not known."""
    known = RKE2_KEYS.find() | K3S_KEYS.find()
    for where, config in _list_configs(cluster):
        for key in sorted(known & config.keys()):
            fault, doubt = find_fault(key, config[key]), find_doubt(key, config[key])
            if found := fault or doubt:
                message = f"{key} in {where} {found[0]}"
                problems.add(f"{where}.{key}", message, found[1], "error" if fault else "warning")


# Below these are the keys of the distribution, as fields of problems name them.
_KEYS_OF = ("spec.rkeConfig.machineGlobalConfig.", "spec.rkeConfig.machineSelectorConfig[")


def without_refused_keys(cluster: Cluster, existing: Sequence[Problem]) -> Cluster:
    """Without the keys whose values are refused: what follows from them is no second problem."""
    refused = {
        one.field.rpartition(".")[2]
        for one in existing
        if one.severity == "error" and one.field.startswith(_KEYS_OF)
    }
    selectors = tuple(
        {
            **entry,
            "config": {key: one for key, one in (entry.get("config") or {}).items() if key not in refused},
        }
        for entry in cluster.selector_config
    )
    config = {key: one for key, one in cluster.global_config.items() if key not in refused}
    return replace(cluster, global_config=config, selector_config=selectors)


def _list_configs(cluster: Cluster) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each configuration of the distribution, with its place."""
    yield "spec.rkeConfig.machineGlobalConfig", cluster.global_config
    for place, entry in enumerate(cluster.selector_config):
        yield f"spec.rkeConfig.machineSelectorConfig[{place}].config", entry.get("config") or {}


def _meant_version(text: str) -> str:
    """What the user may have meant by what is no version in Rancher's form."""
    release = f"v{text.removeprefix('v')}"
    match release.partition("+"):
        case number, "", "" if _RELEASE.fullmatch(number):
            return f"for example {number}+rke2r1 or {number}+k3s1"
        case number, _, build if _RELEASE.fullmatch(number) and _BUILD.fullmatch(build):
            return release
    return "for example v1.35.1+rke2r1 or v1.35.1+k3s1"


_RELEASE = re.compile(r"v[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")

_BUILD = re.compile(r"(rke2r|k3s)[0-9]{1,3}")


def check_version(cluster: Cluster, problems: ProblemCollector) -> None:
    where = "spec.kubernetesVersion"
    if problems.has(where):
        return
    try:
        wanted = Version.parse(cluster.version)
    except NotVersion:
        wanted = None
    if wanted is None or not cluster.version.startswith("v") or not wanted.distribution:
        problems.add(
            where,
            f"{where} is {cluster.version!r}, which is not a version in Rancher's form",
            f"write {_meant_version(cluster.version)}",
        )
    elif cluster.recorded.version and wanted.distribution != find_distribution_name(cluster.recorded.version):
        problems.add(
            where,
            f"{where} asks for {wanted.distribution}, and the cluster runs {cluster.recorded.version}",
            "a cluster keeps its distribution; make a new Cluster for the other",
        )
    elif refused := check_step(cluster.version, [cluster.recorded.version]):
        problems.add(where, refused.message, refused.hint)


def find_distribution_name(version: str) -> str:
    """The distribution of a version; "" where it is none."""
    try:
        return Version.parse(version).distribution
    except NotVersion:
        return ""
