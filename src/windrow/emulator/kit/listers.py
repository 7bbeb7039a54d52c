"""Listers: read access of webhooks and controllers to the cached objects, by namespace and name."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from windrow.core.formats.json import NotJson, loads
from windrow.emulator import kinds
from windrow.emulator.kit.vm_readings import claims_in_use, claims_of
from windrow.kubernetes.objects import Raw, labels_of, name_of, namespace_of, nested
from windrow.kubernetes.resources import NODE, PVC, SECRET, STORAGE_CLASS, VOLUME_ATTACHMENT, ApiResource

Key = tuple[str, str]  # namespace ("" for cluster-scoped kinds), name
Objects = Mapping[Key, Raw]
Index = Mapping[Key, Set[Key]]


def key_of(raw: Mapping[str, Any]) -> Key:
    return namespace_of(raw), name_of(raw)


@dataclass(frozen=True, slots=True)
class Listers:
    """Caches kept by informers. `vms_by_claim` and `vms_by_mac` index VMs by (namespace, claim) and by
    ("", MAC), `vmis_by_claim` VMIs by (namespace, claim), `attachments_by_volume` VolumeAttachments by ("", volume)."""

    vms: Objects = field(default_factory=dict)
    instances: Objects = field(default_factory=dict)
    claims: Objects = field(default_factory=dict)
    images: Objects = field(default_factory=dict)
    networks: Objects = field(default_factory=dict)
    classes: Objects = field(default_factory=dict)
    settings: Objects = field(default_factory=dict)
    quotas: Objects = field(default_factory=dict)
    nodes: Objects = field(default_factory=dict)
    secrets: Objects = field(default_factory=dict)
    cluster_networks: Objects = field(default_factory=dict)
    templates: Objects = field(default_factory=dict)
    template_versions: Objects = field(default_factory=dict)
    key_pairs: Objects = field(default_factory=dict)
    migrations: Objects = field(default_factory=dict)
    volumes: Objects = field(default_factory=dict)
    attachments: Objects = field(default_factory=dict)
    snapshots: Objects = field(default_factory=dict)
    snapshot_classes: Objects = field(default_factory=dict)
    remote_backups: Objects = field(default_factory=dict)
    remote_restores: Objects = field(default_factory=dict)
    file_systems: Objects = field(default_factory=dict)
    upgrades: Objects = field(default_factory=dict)
    vm_backups: Objects = field(default_factory=dict)
    vm_restores: Objects = field(default_factory=dict)
    vms_by_claim: Index = field(default_factory=dict)
    vms_by_mac: Index = field(default_factory=dict)
    vmis_by_claim: Index = field(default_factory=dict)
    attachments_by_volume: Index = field(default_factory=dict)

    def setting(self, name: str) -> str:
        """The effective value of a setting; "" when it is unknown."""
        raw = self.settings.get(("", name), {})
        return str(raw.get("value") or raw.get("default") or "")

    def cluster_network(self, nad: str) -> str:
        """The cluster network of a `namespace/name`; "" when the network is unknown."""
        namespace, _, name = nad.partition("/")
        raw = self.networks.get((namespace, name))
        return labels_of(raw).get("network.harvesterhci.io/clusternetwork", "mgmt") if raw else ""

    def quotas_of(self, namespace: str) -> list[Raw]:
        return [raw for (where, _), raw in self.quotas.items() if where == namespace]

    def overcommit(self) -> Overcommit:
        try:
            raw = loads(self.setting("overcommit-config") or "{}")
        except NotJson:
            raw = {}
        return Overcommit(
            int(raw.get("cpu", 1000)), int(raw.get("memory", 150)), int(raw.get("storage", 100))
        )


@dataclass(frozen=True, slots=True)
class Overcommit:
    """Overcommit ratios, in percent."""

    cpu: int = 1000
    memory: int = 150
    storage: int = 100


def claims_of_vm(vm: Raw) -> list[Key]:
    """Index function: the claims that a VM mounts."""
    spec = nested(vm, "spec", "template", "spec", default={})
    return [(namespace_of(vm), claim) for claim in claims_of(spec)]


def claims_of_vmi(vmi: Raw) -> list[Key]:
    """Index function: the claims that an instance's pod holds."""
    return [(namespace_of(vmi), claim) for claim in dict.fromkeys(claims_in_use(vmi))]


def volume_of_attachment(attachment: Raw) -> list[Key]:
    """Index function: the PersistentVolume that is attached."""
    name = nested(attachment, "spec", "source", "persistentVolumeName")
    return [("", name)] if name else []


def macs_of_vm(vm: Raw) -> list[Key]:
    """Index function: the MACs that a VM's template names."""
    interfaces = nested(vm, "spec", "template", "spec", "domain", "devices", "interfaces", default=[])
    return [("", one["macAddress"].lower()) for one in interfaces if one.get("macAddress")]


# Each cache, and the kind of the objects in it.
WATCHED_KINDS: tuple[tuple[str, ApiResource], ...] = (
    ("vms", kinds.VM),
    ("instances", kinds.VMI),
    ("claims", PVC),
    ("images", kinds.IMAGE),
    ("networks", kinds.NAD),
    ("classes", STORAGE_CLASS),
    ("settings", kinds.SETTING),
    ("quotas", kinds.QUOTA),
    ("nodes", NODE),
    ("secrets", SECRET),
    ("cluster_networks", kinds.CLUSTER_NETWORK),
    ("templates", kinds.TEMPLATE),
    ("template_versions", kinds.TEMPLATE_VERSION),
    ("key_pairs", kinds.KEY_PAIR),
    ("migrations", kinds.MIGRATION),
    ("volumes", kinds.PV),
    ("attachments", VOLUME_ATTACHMENT),
)
# The same, of what is backed up, and of upgrades: their watches last as long as the others', without a draw.
BACKUP_KINDS: tuple[tuple[str, ApiResource], ...] = (
    ("snapshots", kinds.SNAPSHOT),
    ("snapshot_classes", kinds.SNAPSHOT_CLASS),
    ("remote_backups", kinds.REMOTE_BACKUP),
    ("remote_restores", kinds.REMOTE_RESTORE),
    ("file_systems", kinds.NETWORK_FILE_SYSTEM),
    ("upgrades", kinds.UPGRADE),
)
# The same, watched once there is one of the kind.
LAZY_KINDS: tuple[tuple[str, ApiResource], ...] = (
    ("vm_backups", kinds.VM_BACKUP),
    ("vm_restores", kinds.VM_RESTORE),
)
