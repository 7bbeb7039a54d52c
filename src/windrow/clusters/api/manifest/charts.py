"""`spec.rkeConfig.chartValues`: values of charts that the distribution brings, or that the user installs."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART, list_helm_charts
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.fields import ProblemCollector
from windrow.clusters.api.manifest.distribution import find_distribution_name
from windrow.kubernetes.objects import is_dns_subdomain

# Values of charts that are taken for charts when they stand one level too high.
_CHART_VALUES = frozenset(
    {"global", "cloudConfig", "cloudConfigPath", "image", "resources", "tolerations", "nodeSelector"}
)


# Values of the Harvester charts that stand one level too high, and where they belong.
_HARVESTER_VALUES = {
    "cattle": "global.cattle",
    "clusterName": "global.cattle.clusterName",
    "secretName": "cloudConfig.secretName",
    "secretKey": "cloudConfig.secretKey",
    "hostPath": "cloudConfig.hostPath",
}


# How the names of the charts begin that a distribution brings.
_CHARTS = {
    "rke2": ("rke2-", "harvester-", "rancher-vsphere-"),
    "k3s": ("traefik", "harvester-"),
}


def _is_rke2(cluster: Cluster) -> bool:
    return find_distribution_name(cluster.version) == "rke2"


def _is_chart(name: str, cluster: Cluster) -> bool:
    """Whether the distribution may bring the chart, or the user's own manifest has a HelmChart of this name."""
    begins = _CHARTS.get(find_distribution_name(cluster.version))
    if begins is None or name.startswith(begins):
        return True
    return any(name == given for given, _ in list_helm_charts(cluster.additional_manifest))


def check_charts(cluster: Cluster, problems: ProblemCollector) -> None:
    """Each chart's values become a HelmChartConfig of its name."""
    for name, values in cluster.chart_values.items():
        where = f"spec.rkeConfig.chartValues[{name}]"
        if not is_dns_subdomain(name):
            problems.add(
                where,
                f"{name!r} cannot be the name of a chart",
                "write it as the distribution names the chart, such as rke2-calico or traefik: small letters, digits, inner "
                "dashes and dots",
            )
        elif name not in _CHART_VALUES and not _is_chart(name, cluster):
            problems.add(
                where,
                f"{where}: {cluster.version} brings no chart {name}, so its values have no effect",
                (f"write rke2-{name} if RKE2's own is meant, or " if _is_rke2(cluster) else "")
                + "install a HelmChart of this name with additionalManifest",
                "warning",
            )
        if name in _CHART_VALUES:
            problems.add(
                where,
                f"{where}: {name!r} is a value of a chart, and no chart",
                "write it one level deeper, below the name of the chart, such as harvester-cloud-provider",
            )
        if not isinstance(values, Mapping | None):
            problems.add(
                where, f"the values of {name} are no map", "write keys and values below the chart's name"
            )
        elif values and set(values) <= {"valuesContent", "spec", "values"}:
            problems.add(
                where,
                f"{where} has {', '.join(values)} in place of values",
                "write the values of the chart there themselves; Windrow makes the HelmChartConfig",
            )
        elif values and name in (CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART):
            for key in values.keys() & _HARVESTER_VALUES.keys():
                problems.add(
                    f"{where}.{key}",
                    f"{where}.{key} is no value of the chart",
                    f"write it as {_HARVESTER_VALUES[key]}, where the chart reads it",
                    "warning",
                )
