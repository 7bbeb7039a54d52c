"""Service default/kubernetes, on the first address of the Service range."""

from __future__ import annotations

import ipaddress
from typing import Any

from windrow.apiserver.services.allocation import ServiceRanges

NAME, NAMESPACE = "kubernetes", "default"


def render_kubernetes_service(ranges: ServiceRanges) -> dict[str, Any]:
    """As an API server makes it when it starts."""
    network = ipaddress.ip_network(ranges.addresses[0], strict=False)
    address = str(network.network_address + 1)
    return {
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": [f"IPv{network.version}"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
            "sessionAffinity": "None",
        },
    }
