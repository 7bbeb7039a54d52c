"""VirtualMachineInstance: the running side of a VM, with the same name and a uid of its own for every start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from windrow.core.formats.cidr import usable_address
from windrow.harvester.hosts.maintenance import MAINTAIN_STRATEGY
from windrow.harvester.names import REGION, ZONE
from windrow.harvester.resources import VMI
from windrow.kubernetes.conditions import find_condition, is_true
from windrow.kubernetes.objects import annotations_of, is_deleting, labels_of, nested, uid_of
from windrow.kubernetes.resources import ObjectRef, ref_of

# Of one VM, with repetitions. A node that announces the addresses of all services of its cluster has some hundreds.
MAX_ADDRESSES = 4096


@dataclass(frozen=True, slots=True)
class Vmi:
    """A reading. `addresses` are usable ones, best first."""

    ref: ObjectRef
    uid: str
    vm_uid: str
    phase: str
    reason: str
    is_deleting: bool
    is_paused: bool
    is_migrating: bool
    agent_connected: bool
    host: str
    zone: str
    region: str
    addresses: tuple[str, ...]
    pending_reason: str
    is_migratable: bool | None = None  # None: KubeVirt has not said so yet
    maintenance_strategy: str = ""


def read_vmi(raw: Mapping[str, Any]) -> Vmi:
    conditions = nested(raw, "status", "conditions")
    migration = nested(raw, "status", "migrationState")
    annotations = annotations_of(raw)
    return Vmi(
        ref=ref_of(VMI, dict(raw)),
        uid=uid_of(raw),
        vm_uid=_owner_uid(raw),
        phase=nested(raw, "status", "phase", default=""),
        reason=nested(raw, "status", "reason", default=""),
        is_deleting=is_deleting(raw),
        is_paused=is_true(conditions, "Paused"),
        is_migrating=migration is not None and not migration.get("completed"),
        # Present with True while the channel is up, and removed otherwise; never "False".
        agent_connected=is_true(conditions, "AgentConnected"),
        host=nested(raw, "status", "nodeName", default=""),
        zone=annotations.get(ZONE, ""),
        region=annotations.get(REGION, ""),
        addresses=usable_addresses(raw),
        pending_reason=_pending_reason(conditions),
        is_migratable=_read_migratable(conditions),
        maintenance_strategy=labels_of(raw).get(MAINTAIN_STRATEGY, ""),
    )


def _read_migratable(conditions: Any) -> bool | None:
    found = find_condition(conditions, "LiveMigratable")
    return {"True": True, "False": False}.get(found.status) if found is not None else None


def usable_addresses(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The addresses of the VM's own network cards: in the order of its cards, IPv4 before IPv6.

    The agent also reports the guest's bridges and tunnels; those have no `name` and do not count. Link-local
    addresses are not routed. A card without an address counts as none, not as an error. What is beyond MAX_ADDRESSES is
    not looked at: who is root in a VM, or has a Harvester of his own, reports as many as he likes.
    """
    names = [nic.get("name") for nic in nested(raw, "spec", "domain", "devices", "interfaces", default=[])]
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    reported = [nic for nic in nested(raw, "status", "interfaces", default=[]) if nic.get("name")]
    if places:
        reported.sort(key=lambda nic: places.get(nic["name"], len(names)))
    texts = (text for nic in reported for text in (nic.get("ipAddress"), *(nic.get("ipAddresses") or ())))
    found = dict.fromkeys(filter(None, map(usable_address, islice(texts, MAX_ADDRESSES))))
    return tuple(sorted(found, key=lambda text: ":" in text))


def _owner_uid(raw: Mapping[str, Any]) -> str:
    owners = nested(raw, "metadata", "ownerReferences", default=[])
    return next((str(owner.get("uid", "")) for owner in owners if owner.get("controller")), "")


def _pending_reason(conditions: Any) -> str:
    """KubeVirt's message about what keeps the VMI from running, "" where there is none."""
    for type in ("PodScheduled", "Synchronized", "Provisioning"):
        condition = find_condition(conditions, type)
        if condition is not None and condition.status == "False" and (condition.message or condition.reason):
            return condition.message or condition.reason
    return ""
