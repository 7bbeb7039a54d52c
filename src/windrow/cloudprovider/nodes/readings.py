"""What the cloud provider reads of guest nodes, VMs and instances: no more than its plans need.

Informers report changes of readings only. So VMs and instances are read without what changes with every
heartbeat; nodes are read with their version, because each write rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from windrow.cloudprovider import names
from windrow.core.clock import parse_time
from windrow.core.formats.json import loads_or_none
from windrow.harvester.identity import vm_uid_of
from windrow.harvester.names import GUEST_CLUSTER, MACVLAN_MISSING, is_label_value, read_macvlan
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import (
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    objects_at,
    resource_version_of,
    text_at,
    uid_of,
)
from windrow.kubernetes.taints import OUT_OF_SERVICE

_LABELS = (*names.TOPOLOGY, names.INSTANCE_TYPE, names.INSTANCE_TYPE_BETA)


@dataclass(frozen=True, slots=True)
class Address:
    type: str  # InternalIP, ExternalIP, Hostname, …
    address: str


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    effect: str
    value: str = ""
    time_added: str = ""  # as it is written


@dataclass(frozen=True, slots=True)
class GuestNode:
    """A node of the guest cluster."""

    name: str
    uid: str
    version: str = ""
    provider_id: str = ""
    created: datetime | None = None
    is_ready: bool = False
    # The last heartbeat of its kubelet, by the kubelet's clock.
    last_heartbeat: datetime | None = None
    is_deleting: bool = False
    taints: tuple[Taint, ...] = ()
    # Those of its labels that say where it is, or what, under keys that the cloud provider may write.
    topology: Mapping[str, str] = field(default_factory=dict)
    # What the cloud provider wrote there; None where it left no record.
    topology_record: Mapping[str, str] | None = None
    provided_ip: str = ""
    additional_internal_ips: tuple[str, ...] = ()
    addresses: tuple[Address, ...] = ()
    # What the firmware says the machine is.
    system_uuid: str = ""
    # Whether kube-vip may run there, as the chart has it, and the kernel is known to lack what it needs for DHCP.
    cannot_ask_dhcp: bool = False

    @property
    def vm_uid(self) -> str:
        """The uid in its providerID; "" when it has none, or one of another cloud."""
        return vm_uid_of(self.provider_id)

    def has_taint(self, key: str) -> bool:
        return any(taint.key == key for taint in self.taints)

    @property
    def out_of_service_since(self) -> datetime | None:
        """None also where the taint has no date."""
        dates = (_parse_time(one.time_added) for one in self.taints if one.key == OUT_OF_SERVICE)
        return next((date for date in dates if date is not None), None)


@dataclass(frozen=True, slots=True)
class GuestVm:
    """A virtual machine on the host side."""

    name: str
    uid: str
    guest_cluster: str = ""
    created: datetime | None = None


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
    # What its firmware tells the guest that it is. VMs made by copying may share one.
    system_uuid: str = ""

    @property
    def is_stopped(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def read_node(raw: Mapping[str, Any]) -> GuestNode:
    annotations, labels = annotations_of(raw), labels_of(raw)
    taints = objects_at(raw, "spec", "taints")
    addresses = objects_at(raw, "status", "addresses")
    return GuestNode(
        name=name_of(raw),
        uid=uid_of(raw),
        version=resource_version_of(raw),
        provider_id=text_at(raw, "spec", "providerID"),
        created=_parse_time(nested(raw, "metadata", "creationTimestamp")),
        is_ready=is_true(nested(raw, "status", "conditions"), "Ready"),
        last_heartbeat=_last_heartbeat(raw),
        is_deleting=is_deleting(raw),
        taints=tuple(
            Taint(*(text_at(one, field) for field in ("key", "effect", "value", "timeAdded")))
            for one in taints
        ),
        topology={key: labels[key] for key in _LABELS if key in labels},
        topology_record=_parse_record(annotations.get(names.TOPOLOGY_RECORD)),
        provided_ip=annotations.get(names.PROVIDED_NODE_IP, ""),
        additional_internal_ips=_parse_string_list(annotations.get(names.ADDITIONAL_INTERNAL_IPS, "")),
        addresses=tuple(Address(text_at(one, "type"), text_at(one, "address")) for one in addresses),
        system_uuid=text_at(raw, "status", "nodeInfo", "systemUUID").lower(),
        cannot_ask_dhcp=names.CONTROL_PLANE in labels and read_macvlan(labels) == MACVLAN_MISSING,
    )


def read_vm(raw: Mapping[str, Any]) -> GuestVm:
    created = _parse_time(nested(raw, "metadata", "creationTimestamp"))
    return GuestVm(name_of(raw), uid_of(raw), labels_of(raw).get(GUEST_CLUSTER, ""), created)


def read_instance(raw: Mapping[str, Any]) -> Instance:
    annotations = annotations_of(raw)
    migration = nested(raw, "status", "migrationState")
    networks = objects_at(raw, "spec", "networks")
    interfaces = objects_at(raw, "status", "interfaces")
    return Instance(
        name=name_of(raw),
        uid=uid_of(raw),
        phase=text_at(raw, "status", "phase"),
        is_migrating=migration is not None and not migration.get("completed"),
        is_deleting=is_deleting(raw),
        has_agent=is_true(nested(raw, "status", "conditions"), "AgentConnected"),
        guest_cluster=labels_of(raw).get(GUEST_CLUSTER, ""),
        region=_label_value(annotations.get(names.REGION, "")),
        zone=_label_value(annotations.get(names.ZONE, "")),
        networks=tuple(
            (text_at(one, "name"), network if "/" in network else f"{namespace_of(raw)}/{network}")
            for one in networks
            if (network := text_at(one, "multus", "networkName"))
        ),
        interfaces=tuple(_read_interface(one) for one in interfaces if one.get("name")),
        system_uuid=text_at(raw, "spec", "domain", "firmware", "uuid").lower(),
    )


def _label_value(text: str) -> str:
    """What may be a label; "" for other texts: annotations of a VMI are whatever its users write, and a node whose labels are
    refused would not be initialised."""
    return text if is_label_value(text) else ""


def _read_interface(raw: Mapping[str, Any]) -> Interface:
    many = [text_at(raw, "ipAddresses", number) for number, _ in enumerate(raw.get("ipAddresses") or ())]
    single = text_at(raw, "ipAddress")
    return Interface(
        text_at(raw, "name"),
        text_at(raw, "interfaceName"),
        tuple(many) if many else (single,) if single else (),
    )


def _last_heartbeat(raw: Mapping[str, Any]) -> datetime | None:
    for condition in objects_at(raw, "status", "conditions"):
        if condition.get("type") == "Ready":
            return _parse_time(condition.get("lastHeartbeatTime"))
    return None


def _parse_time(text: str | None) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def _parse_record(text: str | None) -> dict[str, str] | None:
    """The record; {} for an invalid one, because a mistake of a user must remove no label."""
    if text is None:
        return None
    found = loads_or_none(text)
    entries = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in entries if isinstance(value, str)}


def _parse_string_list(text: str) -> tuple[str, ...]:
    """The strings of a JSON list; none for anything else, because a mistake of a user must not stop a node."""
    found = loads_or_none(text or "[]")
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()
