"""Load balancers of machines: a Service with the address, an EndpointSlice of the machines behind it (reference 02 §4.7).

Backends are the VMs whose labels match; those without an address are left out. With a health check, an endpoint is
Ready once its probes succeed; without one, at once.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.emulator import kinds
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import Edit
from windrow.emulator.kit.listers import Listers, key_of
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.probes import Probes
from windrow.emulator.load_balancers.readiness import AwaitChange, RetrySoon
from windrow.emulator.load_balancers.services import (
    ENDPOINT_SLICE,
    REQUEST_DHCP,
    SERVICE_NAME,
    ingress_of,
    is_dummy,
    with_dummy,
)
from windrow.kubernetes.objects import (
    Raw,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
    uid_of,
)
from windrow.kubernetes.resources import SERVICE, ApiResource, ref_of

WAITING_FOR_ADDRESS = "service is waiting for external IP"


@dataclass(frozen=True, slots=True)
class BackendServer:
    """One machine behind a load balancer."""

    uid: str
    namespace: str
    name: str
    address: str  # "" while it has none


def find_servers(balancer: Raw, instances: Iterable[Raw]) -> list[BackendServer]:
    """The VMs that the selector matches in the LoadBalancer's namespace. No selector matches none."""
    selector: Mapping[str, Sequence[str]] = nested(balancer, "spec", "backendServerSelector", default={})
    if not selector:
        return []
    return [
        BackendServer(uid_of(one), namespace_of(one), name_of(one), _address_of(one))
        for one in instances
        if namespace_of(one) == namespace_of(balancer)
        and not is_deleting(one)
        and selects(selector, labels_of(one))
    ]


def selects(selector: Mapping[str, Sequence[str]], labels: Mapping[str, str]) -> bool:
    """Every key has one of its values."""
    return all(labels.get(key) in values for key, values in selector.items())


def _address_of(instance: Raw) -> str:
    """The first IPv4 of any interface."""
    for interface in nested(instance, "status", "interfaces", default=[]):
        text = interface.get("ipAddress") or ""
        try:
            ipaddress.IPv4Address(text)
        except ValueError:
            continue
        return str(text)
    return ""


def health_port(balancer: Mapping[str, Any]) -> int:
    """The port that is probed, 0 without a health check."""
    return int(nested(balancer, "spec", "healthCheck", "port", default=0))


def service_spec(balancer: Raw) -> Raw:
    """The fields of the Service that follow the load balancer."""
    uses_dhcp = nested(balancer, "spec", "ipam") == "dhcp"
    return {
        "type": "LoadBalancer",
        "loadBalancerIP": REQUEST_DHCP
        if uses_dhcp
        else nested(balancer, "status", "allocatedAddress", "ip", default=""),
        "ports": [
            {
                **({"name": one["name"]} if one.get("name") else {}),
                "protocol": one["protocol"],
                "port": one["port"],
                "targetPort": one["backendPort"],
            }
            for one in nested(balancer, "spec", "listeners", default=[])
        ],
    }


def render_endpoints(balancer: Raw, servers: Iterable[BackendServer], before: Iterable[Raw]) -> list[Raw]:
    """The endpoints of the slice; an existing one keeps its readiness where it is probed."""
    known = {
        (nested(one, "targetRef", "uid"), one["addresses"][0]): nested(one, "conditions", "ready")
        for one in before
    }
    probed = bool(health_port(balancer))
    made = [
        {
            "addresses": [one.address],
            "conditions": {"ready": bool(known.get((one.uid, one.address))) if probed else True},
            "targetRef": {"namespace": one.namespace, "name": one.name, "uid": one.uid},
        }
        for one in servers
        if one.address
    ]
    return with_dummy(made, key_of(balancer))


class VmFrontends:
    """Services, EndpointSlices and probe targets of all LoadBalancers of VMs."""

    def __init__(self, client: AdminClient, listers: Listers, probes: Probes) -> None:
        self._client = client
        self._listers = listers
        self._probes = probes

    async def ensure(self, balancer: Raw, status: Raw) -> None:
        """Write the address once it is announced. Raises NotReady until a backend is Ready. May be repeated."""
        service = await self._service(balancer)
        addresses = ingress_of(service)
        if not addresses:
            status.pop("address", None)
            raise RetrySoon(WAITING_FOR_ADDRESS)
        status["address"] = addresses[0]
        servers = find_servers(balancer, self._listers.instances.values())
        endpoints = await self._slice(balancer, servers)
        self._probes.set_targets(balancer, [one.address for one in servers if one.address])
        status["backendServers"] = [one.address for one in servers if one.address]
        if not servers:
            raise AwaitChange("no running backend servers")
        if not status["backendServers"]:
            raise AwaitChange("running backend servers have no IP")
        if health_port(balancer) and not _count_ready(endpoints):
            count = len(status["backendServers"])
            raise AwaitChange(f"running backend servers are not probed as healthy total:{count}, healthy:0")

    async def remove(self, balancer: Raw) -> None:
        """Stop the probes; Service and slice are garbage-collected with their owner."""
        self._probes.forget((namespace_of(balancer), name_of(balancer)))

    async def _service(self, balancer: Raw) -> Raw:
        spec = service_spec(balancer)
        return await self._apply(SERVICE, balancer, lambda found: found["spec"].update(spec), spec=spec)

    async def _slice(self, balancer: Raw, servers: Sequence[BackendServer]) -> list[Raw]:
        ports = [
            {"name": one.get("name", ""), "protocol": one["protocol"], "port": one["backendPort"]}
            for one in nested(balancer, "spec", "listeners", default=[])
        ]

        def edit(found: Raw) -> None:
            found["metadata"].setdefault("labels", {})[SERVICE_NAME] = name_of(balancer)
            found["ports"] = ports
            found["endpoints"] = render_endpoints(balancer, servers, found.get("endpoints") or ())

        applied = await self._apply(
            ENDPOINT_SLICE, balancer, edit, addressType="IPv4", ports=ports, endpoints=[]
        )
        return list(applied["endpoints"])

    async def _apply(self, kind: ApiResource, balancer: Raw, edit: Edit, **fields: Any) -> Raw:
        """The object of this kind that the load balancer owns, created if missing, then edited."""
        fresh = new_object(
            kind,
            name_of(balancer),
            namespace_of(balancer),
            labels={names.SERVICE_OF_BALANCER: "true"},
            owners=[owner_reference(kinds.LOAD_BALANCER, balancer)],
            **fields,
        )
        edit(fresh)
        await self._client.ensure(kind, fresh)
        return await self._client.mutate(ref_of(kind, fresh), edit) or fresh


def _count_ready(endpoints: Iterable[Raw]) -> int:
    return sum(1 for one in endpoints if not is_dummy(one) and nested(one, "conditions", "ready"))
