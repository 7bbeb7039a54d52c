"""The manifests of a new server for the Helm controller: chart values, and the guest credential as a Secret.

The credential is delivered twice. As a file it is where Rancher users expect it and where older charts look; as the
Secret `CREDENTIAL_SECRET` in kube-system it can be renewed through the cluster's own API, without touching a node. The
Secret has one key, named as the CSI driver's mount needs it; the cloud provider chart gets that name as a value.

Which chart versions an RKE2 release bundles is from the `charts/chart_versions.yaml` of its tag, as of August 2026. A
chart version such as `0.2.1100` is upstream 0.2.11, build 00.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.bootstrap.spec import GuestCredential
from windrow.core.formats import yaml
from windrow.core.formats.version import Version
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.resources import SECRET, ApiResource

HELM_CHART_CONFIG = ApiResource("helm.cattle.io", "v1", "HelmChartConfig", "helmchartconfigs")
NAMESPACE = "kube-system"
CREDENTIAL_SECRET = "harvester-cloud-provider-config"
CREDENTIAL_KEY = "cloud-provider-config"
CLOUD_PROVIDER_CHART = "harvester-cloud-provider"
CSI_DRIVER_CHART = "harvester-csi-driver"


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


# The first releases that bundle each pair, one for each line of RKE2.
_FIRST_RELEASES = {
    "1.21.5": Charts((0, 1, 2), (0, 1, 3)),
    "1.21.7 1.22.4": Charts((0, 1, 3), (0, 1, 4)),
    "1.21.8 1.22.5 1.23.1": Charts((0, 1, 8), (0, 1, 9)),
    "1.21.10 1.22.7 1.23.4": Charts((0, 1, 10), (0, 1, 10)),
    "1.21.12 1.22.9 1.23.6 1.24.1": Charts((0, 1, 11), (0, 1, 11)),
    "1.22.12 1.23.9 1.24.3 1.25.0 1.26.0": Charts((0, 1, 13), (0, 1, 11)),
    "1.23.16 1.24.10 1.25.6 1.26.1": Charts((0, 1, 14), (0, 1, 15)),
    "1.24.12 1.25.8 1.26.3 1.27.1": Charts((0, 1, 14), (0, 1, 16)),
    "1.24.15 1.25.11 1.26.6 1.27.3 1.28.1": Charts((0, 2, 2), (0, 1, 16)),
    "1.26.14 1.27.11 1.28.7 1.29.2": Charts((0, 2, 2), (0, 1, 17)),
    "1.27.13 1.28.9 1.29.4 1.30.0": Charts((0, 2, 3), (0, 1, 17)),
    "1.27.15 1.28.11 1.29.6 1.30.2": Charts((0, 2, 4), (0, 1, 17)),
    "1.27.16+rke2r2 1.28.13 1.29.8 1.30.4": Charts((0, 2, 4), (0, 1, 18)),
    "1.28.14 1.29.9 1.30.5 1.31.0": Charts((0, 2, 6), (0, 1, 18)),
    "1.28.15 1.29.10 1.30.6 1.31.1+rke2r2": Charts((0, 2, 6), (0, 1, 20)),
    "1.29.12 1.30.8 1.31.4 1.32.0": Charts((0, 2, 6), (0, 1, 21)),
    "1.29.13 1.30.9 1.31.5 1.32.1": Charts((0, 2, 9), (0, 1, 22)),
    "1.29.14 1.30.10 1.31.6 1.32.2 1.33.0": Charts((0, 2, 9), (0, 1, 23)),
    "1.30.13 1.31.9 1.32.5 1.33.1": Charts((0, 2, 10), (0, 1, 23)),
    "1.30.14+rke2r2 1.31.11 1.32.7 1.33.3 1.34.1": Charts((0, 2, 10), (0, 1, 24)),
    "1.31.14 1.32.10 1.33.6 1.34.2 1.35.0": Charts((0, 2, 11), (0, 1, 25)),
    "1.33.11 1.34.7 1.35.4 1.36.0": Charts((0, 2, 11), (0, 1, 28)),
    "1.33.13+rke2r2 1.34.10 1.35.7 1.36.3": Charts((0, 2, 14), (0, 1, 30)),
}
BUNDLED = sorted(
    (Version.parse(text), charts) for texts, charts in _FIRST_RELEASES.items() for text in texts.split()
)


def find_charts(version: Version) -> Charts | None:
    """The charts that `version` of RKE2 bundles; None before the table begins.

    A line newer than the table is assumed to bundle what the newest known release does.
    """
    newest = BUNDLED[-1][0].line
    if version.line > newest:
        return BUNDLED[-1][1]
    # A release is written here without its revision where that is the first, which sorts before any revision.
    older = [charts for first, charts in BUNDLED if first.line == version.line and first <= version]
    return older[-1] if older else None


def harvester_values(
    given: Mapping[str, Any], *, cluster: str, credential_file: str, charts: Charts | None
) -> dict[str, Any]:
    """`chartValues` with what the two Harvester charts need to find Harvester. What the user set stays as set.

    The path that Rancher's form fills in counts as not set, since it is the same for everybody.
    """
    values = {name: dict(chart or {}) for name, chart in given.items()}
    provider = _overlay(
        {"global": {"cattle": {"clusterName": cluster}}}, values.get(CLOUD_PROVIDER_CHART, {})
    )
    provider.setdefault("cloudConfigPath", credential_file)
    if charts and charts.cloud_provider_reads_secret and provider["cloudConfigPath"] == credential_file:
        secret = {"cloudConfig": {"secretName": CREDENTIAL_SECRET, "secretKey": CREDENTIAL_KEY}}
        provider = _overlay(secret, provider)
    storage = values.get(CSI_DRIVER_CHART, {})
    if charts and charts.csi_driver_reads_secret and not nested(storage, "cloudConfig", "hostPath"):
        storage = _overlay({"cloudConfig": {"secretName": CREDENTIAL_SECRET}}, storage)
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


def _overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both maps in one; where both have a value that is no map, `above` wins."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        result[key] = _overlay(under, value) if both else value  # type: ignore[arg-type]
    return result
