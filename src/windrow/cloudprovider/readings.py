"""What the cloud provider reads of guest nodes, VMs and instances: no more than its plans need.

Equality of readings decides whether anybody is woken. So VMs and instances are read without what changes with every
heartbeat; nodes are read with their version, because each write rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windrow.cloudprovider import names
from windrow.formats.json import NotJson, loads
from windrow.harvester.identity import vm_uid_of
from windrow.harvester.names import GUEST_CLUSTER
from windrow.kube.conditions import is_true
from windrow.kube.objects import (
    annotations_of,
    dig,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    version_of,
)


@dataclass(frozen=True, slots=True)
class Address:
    type: str  # InternalIP, ExternalIP, Hostname, …
    address: str


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class GuestNode:
    """A node of the guest cluster."""

    name: str
    uid: str
    version: str = ""
    provider_id: str = ""
    is_ready: bool = False
    is_deleting: bool = False
    taints: tuple[Taint, ...] = ()
    topology: Mapping[str, str] = field(default_factory=dict)
    provided_ip: str = ""
    additional_internal_ips: tuple[str, ...] = ()
    addresses: tuple[Address, ...] = ()

    @property
    def vm_uid(self) -> str:
        """The uid of the VM it says to run in; "" when it says nothing, or belongs to another cloud."""
        return vm_uid_of(self.provider_id)

    def has_taint(self, key: str) -> bool:
        return any(taint.key == key for taint in self.taints)


@dataclass(frozen=True, slots=True)
class GuestVm:
    """A virtual machine on the host side."""

    name: str
    uid: str
    guest_cluster: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    """What the host knows of one network card inside the guest."""

    name: str
    device: str = ""  # as the guest calls it: enp1s0
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """A running VM (a VMI). `networks` are (card, NetworkAttachmentDefinition) in the order of the spec."""

    name: str
    uid: str
    phase: str = ""
    is_migrating: bool = False
    is_deleting: bool = False
    has_agent: bool = False
    guest_cluster: str = ""
    region: str = ""
    zone: str = ""
    networks: tuple[tuple[str, str], ...] = ()
    interfaces: tuple[Interface, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def read_node(raw: Mapping[str, Any]) -> GuestNode:
    annotations, labels = annotations_of(raw), labels_of(raw)
    taints = dig(raw, "spec", "taints", default=[])
    addresses = dig(raw, "status", "addresses", default=[])
    return GuestNode(
        name=name_of(raw),
        uid=uid_of(raw),
        version=version_of(raw),
        provider_id=dig(raw, "spec", "providerID", default=""),
        is_ready=is_true(dig(raw, "status", "conditions"), "Ready"),
        is_deleting=is_deleting(raw),
        taints=tuple(Taint(one["key"], one.get("effect", ""), one.get("value") or "") for one in taints),
        topology={key: labels[key] for key in names.TOPOLOGY if key in labels},
        provided_ip=annotations.get(names.PROVIDED_NODE_IP, ""),
        additional_internal_ips=_texts(annotations.get(names.ADDITIONAL_INTERNAL_IPS, "")),
        addresses=tuple(Address(one["type"], one["address"]) for one in addresses),
    )


def read_vm(raw: Mapping[str, Any]) -> GuestVm:
    return GuestVm(name_of(raw), uid_of(raw), labels_of(raw).get(GUEST_CLUSTER, ""))


def read_instance(raw: Mapping[str, Any]) -> Instance:
    annotations = annotations_of(raw)
    migration = dig(raw, "status", "migrationState")
    networks = dig(raw, "spec", "networks", default=[])
    interfaces = dig(raw, "status", "interfaces", default=[])
    return Instance(
        name=name_of(raw),
        uid=uid_of(raw),
        phase=dig(raw, "status", "phase", default=""),
        is_migrating=migration is not None and not migration.get("completed"),
        is_deleting=is_deleting(raw),
        has_agent=is_true(dig(raw, "status", "conditions"), "AgentConnected"),
        guest_cluster=labels_of(raw).get(GUEST_CLUSTER, ""),
        region=annotations.get(names.REGION, ""),
        zone=annotations.get(names.ZONE, ""),
        networks=tuple(
            (one["name"], network if "/" in network else f"{namespace_of(raw)}/{network}")
            for one in networks
            if (network := dig(one, "multus", "networkName"))
        ),
        interfaces=tuple(_interface(one) for one in interfaces if one.get("name")),
    )


def _interface(raw: Mapping[str, Any]) -> Interface:
    many = raw.get("ipAddresses") or []
    single = raw.get("ipAddress")
    return Interface(
        raw["name"], raw.get("interfaceName") or "", tuple(many) if many else (single,) if single else ()
    )


def _texts(text: str) -> tuple[str, ...]:
    """The texts of a JSON list; nothing for anything else, since a user's slip must not stop a node."""
    try:
        found = loads(text or "[]")
    except NotJson:
        return ()
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()
