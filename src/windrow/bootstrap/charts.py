"""The manifests of a new server for the Helm controller: chart values, and the guest credential as a Secret.

The credential is delivered twice. As a file it is where Rancher users expect it and where older charts look; as the
Secret `CREDENTIAL_SECRET` in kube-system it can be renewed through the cluster's own API, without touching a node. The
Secret has one key, named as the CSI driver's mount needs it; the cloud provider chart gets that name as a value.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.spec import BootstrapSpec, GuestCredential
from windrow.core.formats import yaml
from windrow.core.formats.bounds import abbreviate
from windrow.kubernetes.objects import Raw, flatten_list, nested, new_object
from windrow.kubernetes.resources import SECRET, ApiResource

HELM_CHART = ApiResource("helm.cattle.io", "v1", "HelmChart", "helmcharts")
HELM_CHART_CONFIG = ApiResource("helm.cattle.io", "v1", "HelmChartConfig", "helmchartconfigs")
NAMESPACE = "kube-system"
CREDENTIAL_SECRET = "harvester-cloud-provider-config"
CREDENTIAL_KEY = "cloud-provider-config"
CLOUD_PROVIDER_CHART = "harvester-cloud-provider"
CSI_DRIVER_CHART = "harvester-csi-driver"


@lru_cache(maxsize=8)
def list_helm_charts(manifest: str) -> tuple[tuple[str, str], ...]:
    """Name and `spec.chart` of each HelmChart in `manifest` (YAML documents, and Lists of objects in them).

    A manifest that is not YAML has none: the server says what is wrong with it. The last results are kept, since a Cluster
    with a large manifest is read at each of its changes.
    """
    if HELM_CHART.kind not in manifest:
        return ()
    try:
        documents = yaml.load_all(manifest)
    except yaml.NotYaml:
        return ()
    objects = (raw for document in documents for raw in flatten_list(document))
    return tuple(
        (str(nested(raw, "metadata", "name", default="")), str(nested(raw, "spec", "chart", default="")))
        for raw in objects
        if nested(raw, "kind") == HELM_CHART.kind
    )


@dataclass(frozen=True, slots=True)
class Charts:
    """The upstream versions of the two Harvester charts, as numbers to compare: 0.2.11 is (0, 2, 11)."""

    cloud_provider: tuple[int, int, int]
    csi_driver: tuple[int, int, int]

    @property
    def cloud_provider_reads_secret(self) -> bool:
        """Whether the cloud provider chart supports `cloudConfig.secretName`."""
        return self.cloud_provider >= (0, 2, 12)

    @property
    def csi_driver_reads_secret(self) -> bool:
        """Whether the CSI chart supports `cloudConfig.secretName`."""
        return self.csi_driver >= (0, 1, 9)


def harvester_values(
    given: Mapping[str, Any], *, cluster: str, credential_file: str, charts: Charts | None
) -> dict[str, Any]:
    """`chartValues` with what the two Harvester charts need to find Harvester. What the user set stays as set.

    The path that Rancher's form fills in counts as not set, since it is the same for everybody.
    """
    values = {name: dict(chart or {}) for name, chart in given.items()}
    provider = overlay({"global": {"cattle": {"clusterName": cluster}}}, values.get(CLOUD_PROVIDER_CHART, {}))
    provider.setdefault("cloudConfigPath", credential_file)
    if charts and charts.cloud_provider_reads_secret and provider["cloudConfigPath"] == credential_file:
        secret = {"cloudConfig": {"secretName": CREDENTIAL_SECRET, "secretKey": CREDENTIAL_KEY}}
        provider = overlay(secret, provider)
    storage = values.get(CSI_DRIVER_CHART, {})
    if charts and charts.csi_driver_reads_secret and not nested(storage, "cloudConfig", "hostPath"):
        storage = overlay({"cloudConfig": {"secretName": CREDENTIAL_SECRET}}, storage)
    values[CLOUD_PROVIDER_CHART] = provider
    return values | ({CSI_DRIVER_CHART: storage} if storage else {})


def chart_configs(values: Mapping[str, Any]) -> list[Raw]:
    """One HelmChartConfig for each chart."""
    return [
        new_object(HELM_CHART_CONFIG, name, NAMESPACE, spec={"valuesContent": yaml.dump(dict(chart or {}))})
        for name, chart in values.items()
    ]


def credential_secret(credential: GuestCredential) -> Raw:
    """The guest credential as the charts read it. Also what a renewal writes through the cluster's API."""
    return new_object(
        SECRET,
        CREDENTIAL_SECRET,
        NAMESPACE,
        type="Opaque",
        stringData={CREDENTIAL_KEY: credential.kubeconfig},
    )


def credential_manifest(credential: GuestCredential, directory: str) -> File:
    """The Secret as a file that a server applies."""
    return File(f"{directory}/harvester-credential.yaml", yaml.dump(credential_secret(credential)))


def check_cluster_name(spec: BootstrapSpec) -> list[str]:
    """A warning where the cloud provider would mark its load balancers with another name than the machines have."""
    given = (spec.chart_values.get(CLOUD_PROVIDER_CHART) or {}).get("global") or {}
    name = (given.get("cattle") or {}).get("clusterName")
    if not name or name == spec.cluster:
        return []
    return [
        f"chartValues give the cloud provider the cluster name {name!r}, but its machines are labelled {spec.cluster!r}, "
        "so Windrow's cloud provider initializes none of its Nodes, and load balancers that Harvester's makes stay behind "
        "when it is deleted; remove clusterName from chartValues"
    ]


def list_credential_paths(values: Mapping[str, Any], credential_file: str) -> tuple[str, ...]:
    """The files in which chart values let the two charts look for their kubeconfig, other than `credential_file`.

    `cloudConfigPath` is a file, the CSI driver's `cloudConfig.hostPath` the directory of one named CREDENTIAL_KEY.
    """
    provider, storage = nested(values, CLOUD_PROVIDER_CHART), nested(values, CSI_DRIVER_CHART)
    found = []
    if not nested(provider, "cloudConfig", "secretName"):
        found.append(nested(provider, "cloudConfigPath"))
    if not nested(storage, "cloudConfig", "secretName"):
        directory = nested(storage, "cloudConfig", "hostPath")
        found.append(posixpath.join(directory, CREDENTIAL_KEY) if isinstance(directory, str) else None)
    files = dict.fromkeys(posixpath.normpath(path) for path in found if is_file_path(path))
    return tuple(path for path in files if path != credential_file)


def is_file_path(path: object) -> bool:
    """Whether it is the absolute path of a file, and not of a directory."""
    return isinstance(path, str) and path.startswith("/") and not path.endswith("/") and "\0" not in path


def check_credential_path(spec: BootstrapSpec) -> list[str]:
    """A warning where the cloud provider's chart cannot be installed: it mounts a file of the node."""
    values = nested(spec.chart_values, CLOUD_PROVIDER_CHART)
    path = nested(values, "cloudConfigPath")
    if path in (None, "") or is_file_path(path) or nested(values, "cloudConfig", "secretName"):
        return []
    return [
        f"cloudConfigPath in chartValues of {CLOUD_PROVIDER_CHART} is {abbreviate(path)}, not the absolute path of a file, and "
        "the chart cannot mount it: no Node is initialized; remove it, or write a path such as /etc/kubernetes/cloud-config"
    ]


def overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both maps in one; where both have a value that is no map, `above` wins."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        result[key] = overlay(under, value) if both else value  # type: ignore[arg-type]
    return result
