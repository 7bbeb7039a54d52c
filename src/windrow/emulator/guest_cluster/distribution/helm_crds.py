"""The custom resources that RKE2 and K3s bring along: Helm charts and their settings."""

from __future__ import annotations

from windrow.emulator.definitions import definition, fields, open_record
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.resources import ApiResource

HELM_CHART = ApiResource("helm.cattle.io", "v1", "HelmChart", "helmcharts")
HELM_CHART_CONFIG = ApiResource("helm.cattle.io", "v1", "HelmChartConfig", "helmchartconfigs")
_TEXT: Raw = {"type": "string", "nullable": True}
_TRUTH: Raw = {"type": "boolean"}
_CHART_SPEC = open_record(
    **fields(
        "targetNamespace chart version repo repoCA valuesContent helmVersion chartContent jobImage failurePolicy",
        _TEXT,
    ),
    **fields("createNamespace bootstrap authPassCredentials", _TRUTH),
    set={
        "type": "object",
        "nullable": True,
        "additionalProperties": {"x-kubernetes-int-or-string": True, "nullable": True},
    },
)
_CONFIG_SPEC = open_record(valuesContent=_TEXT, failurePolicy=_TEXT)
HELM_CRDS = (
    definition(HELM_CHART, spec=_CHART_SPEC, has_status_subresource=True),
    definition(HELM_CHART_CONFIG, spec=_CONFIG_SPEC, has_status_subresource=True),
)
