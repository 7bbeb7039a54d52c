"""The two Harvester charts in a K3s cluster: HelmChart objects, since K3s bundles neither chart.

`charts.json` names the chart repository and the versions, with their source and date. A HelmChart of the user's in
`additionalManifest` takes the place of ours: another version, a repository of the site's, or the archive itself
(`chartContent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from windrow.bootstrap.charts import (
    CLOUD_PROVIDER_CHART,
    CSI_DRIVER_CHART,
    HELM_CHART,
    NAMESPACE,
    Charts,
    list_helm_charts,
)
from windrow.core.formats import yaml
from windrow.core.formats.json import loads
from windrow.kubernetes.objects import Raw, new_object

HARVESTER_CHARTS = (CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART)


@cache
def _read() -> Mapping[str, str]:
    return loads(files("windrow.bootstrap.k3s").joinpath("charts.json").read_bytes())  # type: ignore[no-any-return]


def pinned_charts() -> Charts:
    """The versions of the charts that we install."""
    provider, storage = (_numbers(_read()[name]) for name in HARVESTER_CHARTS)
    return Charts(provider, storage)


def _numbers(version: str) -> tuple[int, int, int]:
    major, minor, patch = map(int, version.split("."))
    return major, minor, patch


def list_given_charts(manifest: str) -> frozenset[str]:
    """Which of the two charts `manifest` (YAML documents) installs, by the name of a HelmChart or of its chart.

    A manifest that is not YAML has none: the server says what is wrong with it.
    """
    named = set()
    for name, chart in list_helm_charts(manifest):
        # A chart may be given as the URL or the path of its archive.
        archive = chart.rstrip("/").rpartition("/")[2]
        named |= {ours for ours in HARVESTER_CHARTS if name == ours or archive.startswith(ours)}
    return frozenset(named)


def helm_chart(name: str, values: Mapping[str, Any]) -> Raw:
    """The HelmChart of one of the two charts.

    The job that installs the cloud provider runs before any Node is initialized, hence `bootstrap`.
    """
    spec: dict[str, Any] = {
        "repo": _read()["repo"],
        "chart": name,
        "version": _read()[name],
        "targetNamespace": NAMESPACE,
    }
    if name == CLOUD_PROVIDER_CHART:
        spec["bootstrap"] = True
    return new_object(HELM_CHART, name, NAMESPACE, spec=spec | {"valuesContent": yaml.dump(dict(values))})
