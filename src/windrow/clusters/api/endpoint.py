"""The control plane endpoint of a cluster: what its annotations ask for, and what is recorded of it.

Rancher's Cluster has no field for it, and a manifest with these annotations still is one of Rancher's. The mode is fixed
once anything may exist: every certificate, every `server` of a machine and every kubeconfig has the endpoint in it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from windrow.clusters.api.fields import ProblemCollector
from windrow.clusters.api.names import (
    ENDPOINT_ADDRESS,
    ENDPOINT_IP_POOL,
    ENDPOINT_JOIN_ADDRESS,
    ENDPOINT_MODE,
)
from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.cidr import is_address, is_mapped
from windrow.kubernetes.objects import is_dns_subdomain, nested

EndpointMode = Literal["firstServer", "address", "loadBalancer"]
# What a LoadBalancer is for: people and machines that reach the API, or machines that join where they cannot by the first.
Purpose = Literal["api", "join"]


@dataclass(frozen=True, slots=True)
class EndpointBalancer:
    """A LoadBalancer on Harvester that was made for a cluster."""

    purpose: Purpose
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class BalancerLocation:
    """Where the LoadBalancers are, and the credential that may delete them."""

    namespace: str
    credential: str
    harvester: str = ""  # identity of that Harvester, "" where it may not be read


@dataclass(frozen=True, slots=True)
class ControlPlaneEndpoint:
    """`host` is the address or DNS name that all servers are reached by; "" where there is none, or none is known yet.
    `join_host` is that by which machines join, where it is another.

    * `firstServer` — machines join through a server's own address, kubeconfigs name a server;
    * `address` — the user's virtual address or DNS name, with whatever is behind it;
    * `loadBalancer` — the address, out of IPPool `pool`, of a LoadBalancer that Windrow makes on Harvester.
    """

    mode: EndpointMode = "firstServer"
    host: str = ""
    join_host: str = ""
    pool: str = ""
    balancers: tuple[EndpointBalancer, ...] = ()
    location: BalancerLocation | None = None

    def __str__(self) -> str:
        shown = (self.pool,) if self.pool else self.hosts
        return " ".join((self.mode, *shown))

    @property
    def is_pending(self) -> bool:
        """Whether an address is to come that every machine needs."""
        return self.mode == "loadBalancer" and not (
            self.balancers and all(self.host_of(one.purpose) for one in self.balancers)
        )

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, (self.host, self.join_host))))

    def host_of(self, purpose: Purpose) -> str:
        return self.host if purpose == "api" else self.join_host

    def as_asked(self) -> ControlPlaneEndpoint:
        """Without what is learned."""
        asked = replace(self, balancers=(), location=None)
        return replace(asked, host="", join_host="") if self.mode == "loadBalancer" else asked


def field_of(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


# The annotations of each mode; the first is needed.
_PARTS: Mapping[EndpointMode, tuple[str, ...]] = {
    "firstServer": (),
    "address": (ENDPOINT_ADDRESS, ENDPOINT_JOIN_ADDRESS),
    "loadBalancer": (ENDPOINT_IP_POOL,),
}
_HINTS = {
    ENDPOINT_ADDRESS: "write the virtual IP address or the DNS name, without a port",
    ENDPOINT_JOIN_ADDRESS: "write the virtual IP address or the DNS name, without a port",
    ENDPOINT_IP_POOL: "write the name of an IPPool of Harvester that has a free address",
}


def read_asked_endpoint(annotations: Mapping[str, str], problems: ProblemCollector) -> ControlPlaneEndpoint:
    """What the annotations ask for; the default where they are faulty."""
    given = {key: str(annotations.get(key) or "").strip() for key in (ENDPOINT_MODE, *_HINTS)}
    modes = get_args(EndpointMode)
    found = next((mode for mode in modes if mode == given[ENDPOINT_MODE]), None)
    if given[ENDPOINT_MODE] and found is None:
        where = field_of(ENDPOINT_MODE)
        hint = f"write {', '.join(modes[:-1])} or {modes[-1]}"
        problems.add(where, f"{where} is {abbreviate(given[ENDPOINT_MODE])}", hint)
        return ControlPlaneEndpoint()
    mode: EndpointMode = found or "firstServer"
    faults = [
        (
            key,
            f"is set, and {ENDPOINT_MODE} is {found or 'not set'}",
            f"remove it, or write {ENDPOINT_MODE}: {owner}",
        )
        for owner, parts in _PARTS.items()
        for key in parts
        if given[key] and owner != mode
    ]
    faults += [
        (key, fault, _HINTS[key])
        for place, key in enumerate(_PARTS[mode])
        if (fault := _find_fault(key, given[key], mode, is_needed=place == 0))
    ]
    for key, fault, hint in faults:
        problems.add(field_of(key), f"{field_of(key)} {fault}", hint)
    if faults:
        return ControlPlaneEndpoint()
    return ControlPlaneEndpoint(
        mode, given[ENDPOINT_ADDRESS], given[ENDPOINT_JOIN_ADDRESS], given[ENDPOINT_IP_POOL]
    )


def _find_fault(key: str, text: str, mode: EndpointMode, *, is_needed: bool) -> str:
    if not text:
        return f"is not set, and {ENDPOINT_MODE} is {mode}" if is_needed else ""
    if key == ENDPOINT_IP_POOL:
        return "" if is_dns_subdomain(text) else f"is {abbreviate(text)}, which is no name of an IPPool"
    return _address_fault(text)


def _address_fault(text: str) -> str:
    """Why machines cannot reach a cluster by this address; "" where they may."""
    if not is_address(text):
        is_name = is_dns_subdomain(text) and not text.rpartition(".")[2].isdigit()
        return (
            "" if is_name and text != "localhost" else f"is {abbreviate(text)}, which is no address or name"
        )
    found = ipaddress.ip_address(text)
    if is_mapped(found):
        return f"is {text}, an IPv4 address written as IPv6"
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
    if faults.found or asked != recorded.as_asked():
        problems.add(
            field_of(ENDPOINT_MODE),
            f"{wanted}, and the cluster keeps endpoint {recorded}, with which its machines were made",
            "write that; another endpoint needs a new Cluster",
            "warning",
        )
    return recorded


def read_recorded_endpoint(status: Mapping[str, Any]) -> ControlPlaneEndpoint | None:
    """What the status has recorded. A cluster from before modes were recorded has begun with `firstServer`."""
    raw = status.get("controlPlaneEndpoint") or {}
    mode = next((one for one in get_args(EndpointMode) if one == raw.get("mode")), None)
    if mode is None:
        begun = nested(status, "initServer", "uid") or status.get("initialized") is True
        return ControlPlaneEndpoint() if begun else None
    texts = {
        key: str(raw.get(key) or "") for key in ("host", "joinHost", "ipPool", "namespace", "credential")
    }
    balancers = tuple(
        EndpointBalancer(purpose, str(one.get("name")))
        for one in raw.get("loadBalancers") or ()
        for purpose in get_args(Purpose)
        if one.get("purpose") == purpose
    )
    # It may not have been readable before the first machine.
    harvester = str(raw.get("harvester") or status.get("harvesterUID") or "")
    location = BalancerLocation(texts["namespace"], texts["credential"], harvester)
    return ControlPlaneEndpoint(
        mode, texts["host"], texts["joinHost"], texts["ipPool"], balancers, location if balancers else None
    )


def render_endpoint(endpoint: ControlPlaneEndpoint) -> dict[str, Any]:
    """The field of the status."""
    location = endpoint.location
    rendered = {
        "mode": endpoint.mode,
        "host": endpoint.host,
        "joinHost": endpoint.join_host,
        "ipPool": endpoint.pool,
        "namespace": location.namespace if location else "",
        "credential": location.credential if location else "",
        "harvester": location.harvester if location else "",
        "loadBalancers": [{"purpose": one.purpose, "name": one.name} for one in endpoint.balancers],
    }
    return {key: value for key, value in rendered.items() if value}
