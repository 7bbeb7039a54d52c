"""Readings of LoadBalancer Services for kube-vip and kube-proxy, on hosts and in guests (reference 02 §3.2, §4.9)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.core.formats.cidr import is_address
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, namespace_of, nested
from windrow.kubernetes.resources import ApiResource

ENDPOINT_SLICE = ApiResource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
ENDPOINTS = ApiResource("", "v1", "Endpoints", "endpoints")

ADDRESSES = "kube-vip.io/loadbalancerIPs"
INTERFACE = "kube-vip.io/serviceInterface"
IGNORED = "kube-vip.io/ignore"
VIP_HOST = "kube-vip.io/vipHost"
HARDWARE_ADDRESS = "kube-vip.io/hwaddr"
REQUESTED_ADDRESS = "kube-vip.io/requestedIP"
KUBE_VIP_CLASS = "kube-vip.io/kube-vip-class"
SERVICE_NAME = "kubernetes.io/service-name"
REQUEST_DHCP = "0.0.0.0"


def requested_addresses(service: Mapping[str, Any]) -> tuple[str, ...]:
    """The addresses that kube-vip shall announce for the Service; none for another loadBalancerClass.

    The annotation decides; without it the status, unless `spec.loadBalancerIP` differs.
    """
    if not is_for_kube_vip(service):
        return ()
    spec = service.get("spec") or {}
    annotations = annotations_of(service)
    if ADDRESSES in annotations:
        return tuple(one.strip() for one in annotations[ADDRESSES].split(",") if is_address(one.strip()))
    requested = str(spec.get("loadBalancerIP") or "")
    assigned = ingress_of(service)
    if is_address(requested) and requested not in assigned:
        return (requested,)
    return assigned


def requests_no_address(service: Mapping[str, Any]) -> bool:
    """Whether the annotation is there and holds no address: kube-vip takes the Service for one without an address for now."""
    return ADDRESSES in annotations_of(service) and not requested_addresses(service)


def is_for_kube_vip(service: Mapping[str, Any]) -> bool:
    """Whether kube-vip looks at the Service at all. It keeps what it announces for one that it looks at no more."""
    spec = service.get("spec") or {}
    if spec.get("type") != "LoadBalancer" or annotations_of(service).get(IGNORED) == "true":
        return False
    return spec.get("loadBalancerClass") in (None, KUBE_VIP_CLASS)


def ingress_of(service: Mapping[str, Any]) -> tuple[str, ...]:
    """The addresses in the Service's status."""
    found = nested(service, "status", "loadBalancer", "ingress", default=[])
    return tuple(one["ip"] for one in found if one.get("ip"))


def render_ingress(service: Mapping[str, Any], addresses: Iterable[str]) -> list[Raw]:
    """The status that kube-vip writes: each address with the Service's ports."""
    ports = [
        {"port": one["port"], "protocol": one.get("protocol", "TCP")}
        for one in nested(service, "spec", "ports", default=[])
    ]
    return [{"ip": address, "ipMode": "VIP", "ports": ports} for address in addresses]


def set_ingress(service: Raw, ingress: list[Raw]) -> None:
    service.setdefault("status", {})["loadBalancer"] = {"ingress": ingress}


def hardware_address(service_uid: str) -> str:
    """The locally administered MAC with which kube-vip requests a lease, the same for the same Service."""
    return ":".join(["02", *(f"{byte:02x}" for byte in hashlib.sha256(service_uid.encode()).digest()[:5])])


# --- endpoints ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Backend:
    """One endpoint of one port. `name` is the pod's or machine's, "" without targetRef."""

    address: str
    port: int
    name: str = ""
    namespace: str = ""
    node: str = ""


def tcp_ports_of(service: Mapping[str, Any]) -> list[Raw]:
    """The ports that a TCP client can reach."""
    found: list[Raw] = nested(service, "spec", "ports", default=[])
    return [one for one in found if one.get("protocol", "TCP") == "TCP"]


def has_endpoints(service: Raw, slices: Iterable[Raw], endpoints: Raw | None, node: str = "") -> bool:
    """Whether the Service has an endpoint, Ready or not, as kube-vip 1.2 and later asks; on `node`, if it is given."""
    own = [one for one in slices if service_of(one) == (namespace_of(service), name_of(service))]
    found = [one for slice_ in own for one in slice_.get("endpoints") or ()]
    if not own and endpoints is not None:
        subsets = endpoints.get("subsets") or ()
        found = [one for subset in subsets for one in subset.get("addresses") or ()]
    return any(not node or one.get("nodeName") == node for one in found)


def service_of(slice_: Raw) -> tuple[str, str]:
    """Namespace and name of the Service that an EndpointSlice is of; the name is "" without the label."""
    return namespace_of(slice_), labels_of(slice_).get(SERVICE_NAME, "")


def ready_backends(
    service: Raw, port: Mapping[str, Any], slices: Iterable[Raw], endpoints: Raw | None
) -> list[Backend]:
    """The Ready endpoints of this port of the Service.

    From EndpointSlices; from Endpoints where there are none, as Kubernetes mirrors them.
    """
    own = [one for one in slices if service_of(one) == (namespace_of(service), name_of(service))]
    name = port.get("name") or ""
    if own:
        return [found for one in own for found in _in_slice(one, name)]
    return _in_endpoints(endpoints, name) if endpoints is not None else []


def _in_slice(slice_: Raw, name: str) -> Iterable[Backend]:
    for port in slice_.get("ports") or ():
        if (port.get("name") or "") != name or port.get("port") is None:
            continue
        for one in slice_.get("endpoints") or ():
            # Unknown readiness counts as ready (EndpointConditions of discovery/v1).
            if nested(one, "conditions", "ready", default=True):
                for address in one.get("addresses") or ():
                    yield _backend(address, port, one)


def _in_endpoints(endpoints: Raw, name: str) -> list[Backend]:
    return [
        _backend(one["ip"], port, one)
        for subset in endpoints.get("subsets") or ()
        for port in subset.get("ports") or ()
        if (port.get("name") or "") == name
        for one in subset.get("addresses") or ()
    ]


def _backend(address: str, port: Mapping[str, Any], endpoint: Mapping[str, Any]) -> Backend:
    target = endpoint.get("targetRef") or {}
    return Backend(
        address,
        int(port["port"]),
        target.get("name") or "",
        target.get("namespace") or "",
        endpoint.get("nodeName") or "",
    )


DUMMY_ADDRESS = "10.52.0.255"
DUMMY_UID = "dummy347-546a-4642-9da6-5608endpoint"


def with_dummy(endpoints: Iterable[Raw], balancer: Key) -> list[Raw]:
    """The endpoints, with a dummy while none of them is Ready, and only then."""
    real = [one for one in endpoints if not is_dummy(one)]
    if any(nested(one, "conditions", "ready") for one in real):
        return real
    target = {"namespace": balancer[0], "name": balancer[1], "uid": DUMMY_UID}
    return [*real, {"addresses": [DUMMY_ADDRESS], "conditions": {"ready": True}, "targetRef": target}]


def is_dummy(endpoint: Mapping[str, Any]) -> bool:
    return bool(nested(endpoint, "targetRef", "uid") == DUMMY_UID)
