"""The custom resources that RKE2 and K3s bring along: Helm charts and their settings."""

from __future__ import annotations

from windrow.emulator.definitions import definition
from windrow.kubernetes.resources import ApiResource

HELM_CHART = ApiResource("helm.cattle.io", "v1", "HelmChart", "helmcharts")
HELM_CHART_CONFIG = ApiResource("helm.cattle.io", "v1", "HelmChartConfig", "helmchartconfigs")
HELM_CRDS = tuple(definition(kind, has_status_subresource=True) for kind in (HELM_CHART, HELM_CHART_CONFIG))
