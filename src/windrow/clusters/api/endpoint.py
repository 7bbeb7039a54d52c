"""The control plane endpoint of a cluster: what its annotations ask for, and what is recorded of it.

Rancher's Cluster has no field for it, and a manifest with these annotations still is one of Rancher's. The mode is fixed
once a machine may exist: every certificate, every `server` of a machine and every kubeconfig has the endpoint in it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from windrow.clusters.api.fields import ProblemCollector
from windrow.clusters.api.names import ENDPOINT_ADDRESS, ENDPOINT_MODE
from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.cidr import is_address
from windrow.kubernetes.objects import is_dns_subdomain, nested

EndpointMode = Literal["firstServer", "address"]


@dataclass(frozen=True, slots=True)
class ControlPlaneEndpoint:
    """`host` is the address or DNS name that all servers are reached by; "" where there is none.

    * `firstServer` — machines join through a server's own address, kubeconfigs name a server;
    * `address` — the user's virtual address or DNS name, with whatever is behind it.
    """

    mode: EndpointMode = "firstServer"
    host: str = ""

    def __str__(self) -> str:
        return f"{self.mode} {self.host}".rstrip()


def field_of(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


def read_asked_endpoint(annotations: Mapping[str, str], problems: ProblemCollector) -> ControlPlaneEndpoint:
    """What the annotations ask for; the default where they are faulty."""
    mode, address = (_text(annotations, key) for key in (ENDPOINT_MODE, ENDPOINT_ADDRESS))
    where, modes = field_of(ENDPOINT_MODE), get_args(EndpointMode)
    if mode and mode not in modes:
        problems.add(where, f"{where} is {abbreviate(mode)}", f"write {', '.join(modes[:-1])} or {modes[-1]}")
        return ControlPlaneEndpoint()
    if address and mode != "address":
        where = field_of(ENDPOINT_ADDRESS)
        fault = f"{where} is set, and {ENDPOINT_MODE} is {mode or 'not set'}"
        problems.add(where, fault, f"write {ENDPOINT_MODE}: address, or remove it")
    if mode != "address":
        return ControlPlaneEndpoint()
    if fault := _address_fault(address):
        where = field_of(ENDPOINT_ADDRESS)
        problems.add(
            where, f"{where} {fault}", "write the virtual IP address or the DNS name, without a port"
        )
        return ControlPlaneEndpoint()
    return ControlPlaneEndpoint("address", address)


def _text(annotations: Mapping[str, str], key: str) -> str:
    return str(annotations.get(key) or "").strip()


def _address_fault(text: str) -> str:
    """Why machines cannot reach a cluster by this address; "" where they may."""
    if not text:
        return f"is not set, and {ENDPOINT_MODE} is address"
    if not is_address(text):
        is_name = is_dns_subdomain(text) and not text.rpartition(".")[2].isdigit()
        return (
            "" if is_name and text != "localhost" else f"is {abbreviate(text)}, which is no address or name"
        )
    found = ipaddress.ip_address(text)
    if found.is_loopback or found.is_unspecified or found.is_multicast or found.is_link_local:
        return f"is {text}, which every machine has for itself, or none"
    return ""


def choose_endpoint(
    annotations: Mapping[str, str], recorded: ControlPlaneEndpoint | None, problems: ProblemCollector
) -> ControlPlaneEndpoint:
    """The endpoint of the cluster: `recorded`, where one is; what differs from it in the annotations is a warning then."""
    if recorded is None:
        return read_asked_endpoint(annotations, problems)
    faults = ProblemCollector()
    asked = read_asked_endpoint(annotations, faults)
    wanted = faults.found[0].message if faults.found else f"the annotations ask for endpoint {asked}"
    if faults.found or asked != recorded:
        problems.add(
            field_of(ENDPOINT_MODE),
            f"{wanted}, and the cluster keeps endpoint {recorded}, with which its machines were made",
            "write that; another endpoint needs a new Cluster",
            "warning",
        )
    return recorded


def read_recorded_endpoint(status: Mapping[str, Any]) -> ControlPlaneEndpoint | None:
    """What the status has recorded. A cluster from before modes were recorded has begun with `firstServer`."""
    mode = nested(status, "controlPlaneEndpoint", "mode")
    if mode in get_args(EndpointMode):
        return ControlPlaneEndpoint(mode, str(nested(status, "controlPlaneEndpoint", "host", default="")))
    begun = nested(status, "initServer", "uid") or status.get("initialized") is True
    return ControlPlaneEndpoint() if begun else None


def render_endpoint(endpoint: ControlPlaneEndpoint) -> dict[str, Any]:
    """The field of the status."""
    return {"mode": endpoint.mode, **({"host": endpoint.host} if endpoint.host else {})}
