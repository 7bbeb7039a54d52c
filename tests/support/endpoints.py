"""Pods behind a Service: kube-vip 1.2 and later announces no Service without one."""

from __future__ import annotations

from windrow.emulator.load_balancers.services import ENDPOINT_SLICE
from windrow.kubernetes.objects import Raw, new_object


def slice_of_one_pod(service: str, port: str = "http") -> Raw:
    """The EndpointSlice of a Service with one Ready pod; `port` is the name of the Service's port."""
    pod = {"addresses": ["10.42.0.7"], "targetRef": {"name": f"{service}-0"}, "conditions": {"ready": True}}
    return new_object(
        ENDPOINT_SLICE,
        service,
        "default",
        labels={"kubernetes.io/service-name": service},
        addressType="IPv4",
        ports=[{"name": port, "port": 8080, "protocol": "TCP"}],
        endpoints=[pod],
    )
