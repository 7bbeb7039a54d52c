"""What the service controller reads of guest services, and of the map of their networks: no more than its plans need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.cloudprovider import names
from windrow.core.json import NotJson, loads
from windrow.kubernetes.objects import (
    annotations_of,
    finalizers_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    resource_version_of,
    uid_of,
)
from windrow.kubernetes.resources import SERVICE, ObjectRef

Port = tuple[str, int]  # protocol, number


@dataclass(frozen=True, slots=True)
class Service:
    """A service of the guest cluster. Empty texts stand for what is absent.

    Each write rests on `version`, so a change of anything makes another reading.
    """

    namespace: str
    name: str
    uid: str
    version: str = ""
    created: str = ""
    is_load_balancer: bool = False  # type LoadBalancer
    load_balancer_class: str = ""
    is_deleting: bool = False
    finalizers: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    requested_address: str = ""  # spec.loadBalancerIP
    ingress: tuple[str, ...] = ()

    # Annotations by users.
    ipam: str = ""
    network: str = ""
    project: str = ""
    project_namespace: str = ""
    primary: str = ""
    pool: str = ""
    removed_keys: tuple[str, ...] = ()
    ignores_vip: bool = False

    # What we wrote before, None where it is absent, and what kube-vip wrote.
    addresses: str | None = None
    interface: str | None = None
    primary_label: str | None = None  # as it is written
    has_ipam: bool = False
    vip_keys: tuple[str, ...] = ()

    @property
    def ref(self) -> ObjectRef:
        return SERVICE.ref(self.name, self.namespace)

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def wants_load_balancer(self) -> bool:
        return self.is_load_balancer and not self.load_balancer_class

    @property
    def has_finalizer(self) -> bool:
        """Whether it stays until its load balancer is gone."""
        return names.FINALIZER in self.finalizers

    @property
    def assigned(self) -> frozenset[str]:
        """The addresses that it was told to have; also where somebody has edited the list."""
        return frozenset(one.strip() for one in (self.addresses or "").split(",")) - {""}

    @property
    def shown(self) -> frozenset[str]:
        """Those, and the ones that it has."""
        return self.assigned.union(self.ingress)

    @property
    def mode(self) -> str:
        """Where its address comes from: `pool` where it does not say."""
        return self.ipam or "pool"

    @property
    def uses_dhcp(self) -> bool:
        return self.mode == "dhcp"

    @property
    def requested(self) -> tuple[str, str]:
        """The address, and the pool, that it asks for."""
        return self.requested_address, self.pool


def read_service(raw: Mapping[str, Any]) -> Service:
    said, labels = annotations_of(raw), labels_of(raw)
    spec = raw.get("spec") or {}
    ports = spec.get("ports") or ()
    ingress = nested(raw, "status", "loadBalancer", "ingress", default=[])
    return Service(
        namespace=namespace_of(raw),
        name=name_of(raw),
        uid=uid_of(raw),
        version=resource_version_of(raw),
        created=raw["metadata"].get("creationTimestamp") or "",
        is_load_balancer=spec.get("type") == "LoadBalancer",
        load_balancer_class=spec.get("loadBalancerClass") or "",
        is_deleting=is_deleting(raw),
        finalizers=tuple(finalizers_of(raw)),
        ports=tuple((one.get("protocol") or "TCP", int(one["port"])) for one in ports),
        requested_address=spec.get("loadBalancerIP") or "",
        ingress=tuple(one["ip"] for one in ingress if one.get("ip")),
        ipam=said.get(names.IPAM, ""),
        network=said.get(names.NETWORK, ""),
        project=said.get(names.PROJECT, ""),
        project_namespace=said.get(names.NAMESPACE, ""),
        primary=said.get(names.PRIMARY_SERVICE, "").strip(),
        pool=said.get(names.IP_POOL, ""),
        removed_keys=tuple(key for key in names.REMOVED_SERVICE_KEYS if key in said),
        ignores_vip=said.get(names.VIP_IGNORE) == "true",
        addresses=said.get(names.VIP_ADDRESSES),
        interface=said.get(names.VIP_INTERFACE),
        primary_label=labels.get(names.PRIMARY_SERVICE),
        has_ipam=names.IPAM in said,
        vip_keys=tuple(key for key in names.VIP_STATUS_KEYS if key in said),
    )


@dataclass(frozen=True, slots=True)
class Interfaces:
    """Which network is which interface in every node; empty while no network is the same everywhere."""

    by_network: Mapping[str, str] = field(default_factory=dict)


def read_interfaces(raw: Mapping[str, Any]) -> Interfaces:
    """What the ConfigMap of networks says; nothing where it cannot be understood."""
    try:
        found = loads(nested(raw, "data", names.NETWORK_MAP_KEY, default="") or "{}")
    except NotJson:
        return Interfaces()
    if not isinstance(found, dict):
        return Interfaces()
    return Interfaces({key: value for key, value in found.items() if isinstance(value, str) and value})
