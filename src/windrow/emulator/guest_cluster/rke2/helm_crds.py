"""The custom resources that RKE2 brings along: Helm charts and their settings."""

from __future__ import annotations

from typing import Any

from windrow.kubernetes.resources import ApiResource

HELM_CHART = ApiResource("helm.cattle.io", "v1", "HelmChart", "helmcharts")
HELM_CHART_CONFIG = ApiResource("helm.cattle.io", "v1", "HelmChartConfig", "helmchartconfigs")


def _crd(kind: ApiResource) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.group_resource},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


HELM_CRDS = (_crd(HELM_CHART), _crd(HELM_CHART_CONFIG))
