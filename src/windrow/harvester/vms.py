"""VirtualMachine: a typed reading, and the object that the node driver makes.

The builder's objects equal those of the Go driver for equal input, field by field; where they differ on purpose the
reason is in a comment.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from windrow.core.formats.json import dumps
from windrow.harvester import names
from windrow.harvester.cloud_init_secret import secret_ref
from windrow.harvester.references import VgpuField
from windrow.harvester.resources import VM
from windrow.harvester.volumes import Disk, render_claim_templates
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, nested, new_object, uid_of
from windrow.kubernetes.resources import ObjectRef, ref_of

CLOUD_INIT = "cloudinitdisk"

# Where the virtual CPUs run: on any of the host's, on their own, or on their own with one more for QEMU's emulator
# thread. KubeVirt refuses an isolated emulator thread beside shared CPUs.
CpuPlacement = Literal["shared", "dedicated", "dedicated and isolated"]
_CPU_FIELDS: Mapping[CpuPlacement, tuple[str, ...]] = {
    "shared": (),
    "dedicated": ("dedicatedCpuPlacement",),
    "dedicated and isolated": ("dedicatedCpuPlacement", "isolateEmulatorThread"),
}
_PHASES_BEFORE_A_RUN = frozenset({"", "Pending", "Scheduling", "Scheduled"})


@dataclass(frozen=True, slots=True)
class Vm:
    """A reading of a VM that exists. Texts are "" where the field is missing."""

    ref: ObjectRef
    uid: str
    machine_uid: str
    cluster_uid: str
    is_deleting: bool
    status: str  # printableStatus
    run_strategy: str
    observed_run_strategy: str  # the strategy KubeVirt has acted on; differs before the first start
    start_requested: bool  # status.stateChangeRequests has a Start
    is_created: bool  # a VMI exists
    halted_by_quota: str
    failure: str
    retry_at: str  # when a crashing VM is started again
    removed_claims: str  # the claims that Harvester deletes with it
    claims: tuple[str, ...]
    hotplugged: frozenset[str]


@dataclass(frozen=True, slots=True)
class Nic:
    """One network card, bridged: KubeVirt has masquerade on the pod network only. `network` is `namespace/name`."""

    name: str
    network: str
    mac: str = ""
    model: str = "virtio"


@dataclass(frozen=True, slots=True)
class HostDevice:
    name: str
    device_name: str


@dataclass(frozen=True, slots=True)
class CloudInit:
    """Where a machine's cloud-init is. Texts are inline; `in_secret` means the machine's own Secret."""

    user_data: str = field(default="", repr=False)
    network_data: str = field(default="", repr=False)
    user_data_in_secret: bool = False
    network_data_in_secret: bool = False


@dataclass(frozen=True, slots=True)
class VmSpec:
    """A VM to be created."""

    name: str
    namespace: str
    disks: tuple[Disk, ...]
    nics: tuple[Nic, ...]
    cloud_init: CloudInit
    guest_cluster: str = ""
    owner_annotations: Mapping[str, str] = field(default_factory=dict)
    cores: int = 2
    memory: str = "4Gi"
    cpu_model: str = ""
    reserved_memory: str = ""
    cpus: CpuPlacement = "shared"
    efi: bool = False
    secure_boot: bool = False
    tpm: bool = False
    devices: tuple[HostDevice, ...] = ()
    devices_in: VgpuField = "hostDevices"
    affinity: Mapping[str, Any] | None = None
    ssh_names: tuple[str, ...] = ()
    ssh_key_digest: str = ""

    @property
    def ref(self) -> ObjectRef:
        return VM.ref(self.name, self.namespace)


def cloud_init_secrets_of(raw: Mapping[str, Any]) -> frozenset[str]:
    """The names of the Secrets that its cloud-init is in."""
    sources = [
        nested(volume, "cloudInitNoCloud", default={})
        for volume in nested(raw, "spec", "template", "spec", "volumes", default=[])
    ]
    names = (
        nested(source, key, "name") for source in sources for key in ("secretRef", "networkDataSecretRef")
    )
    return frozenset(name for name in names if name)


def claim_volumes_of(raw: Mapping[str, Any]) -> list[Any]:
    """The sources of its volumes that are PersistentVolumeClaims."""
    return [
        claim
        for volume in nested(raw, "spec", "template", "spec", "volumes", default=[])
        if (claim := nested(volume, "persistentVolumeClaim"))
    ]


def find_run(raw_vm: Mapping[str, Any], raw_vmi: Mapping[str, Any] | None) -> str:
    """What shows that the VM has run, or may have: it "has run, for …". "" where it never did, so that its disks are as
    they were made."""
    annotations = annotations_of(raw_vm)
    if names.MAC_ADDRESSES in annotations:
        return f"has run, for it bears the annotation {names.MAC_ADDRESSES}"
    if names.LAST_RESTORE in annotations:
        return f"was restored from a backup, for it bears the annotation {names.LAST_RESTORE}"
    phases = {
        nested(raw_vmi, "status", "phase", default=""),
        *(one.get("phase", "") for one in nested(raw_vmi, "status", "phaseTransitionTimestamps", default=[])),
    }
    if ran := sorted(phases - _PHASES_BEFORE_A_RUN):
        return f"has run, for its VirtualMachineInstance has been {' and '.join(ran)}"
    if _run_strategy(raw_vm) == "Halted" and names.HALTED_BY_QUOTA not in annotations:
        return "may have run, for it has been stopped (runStrategy Halted)"
    return ""


def read_vm(raw: Mapping[str, Any]) -> Vm:
    annotations = annotations_of(raw)
    failure = find_condition(nested(raw, "status", "conditions"), "Failure")
    claims = claim_volumes_of(raw)
    return Vm(
        ref=ref_of(VM, dict(raw)),
        uid=uid_of(raw),
        machine_uid=annotations.get(names.MACHINE_UID, ""),
        cluster_uid=annotations.get(names.CLUSTER_UID, ""),
        is_deleting=is_deleting(raw),
        status=nested(raw, "status", "printableStatus", default=""),
        run_strategy=_run_strategy(raw),
        observed_run_strategy=nested(raw, "status", "runStrategy", default=""),
        start_requested=any(
            request.get("action") == "Start"
            for request in nested(raw, "status", "stateChangeRequests", default=[])
        ),
        is_created=bool(nested(raw, "status", "created", default=False)),
        halted_by_quota=annotations.get(names.HALTED_BY_QUOTA, ""),
        failure=failure.message if failure is not None and failure.status == "True" else "",
        retry_at=nested(raw, "status", "startFailure", "retryAfterTimestamp", default=""),
        removed_claims=annotations.get(names.REMOVED_CLAIMS, ""),
        claims=tuple(str(claim.get("claimName", "")) for claim in claims),
        hotplugged=frozenset(
            str(claim.get("claimName", "")) for claim in claims if claim.get("hotpluggable")
        ),
    )


def build_vm(spec: VmSpec) -> Raw:
    """The VirtualMachine of `spec`. It starts by itself, and is not restarted when its guest powers off."""
    labels = _labels(spec)
    annotations = {
        names.CLAIM_TEMPLATES: render_claim_templates(spec.disks, spec.owner_annotations),
        **spec.owner_annotations,
    }
    if spec.ssh_key_digest:
        annotations[names.SSH_KEY] = spec.ssh_key_digest
    if spec.reserved_memory:
        annotations[names.RESERVED_MEMORY] = spec.reserved_memory
    return new_object(
        VM,
        spec.name,
        spec.namespace,
        labels=labels,
        annotations=annotations,
        spec={
            "runStrategy": "RerunOnFailure",
            "template": {
                "metadata": {
                    "labels": dict(labels),
                    "annotations": {
                        names.SSH_NAMES: dumps(list(spec.ssh_names)).decode(),
                        names.WAIT_FOR_LEASE: "[]",
                        **spec.owner_annotations,
                    },
                },
                "spec": {
                    "domain": _domain(spec),
                    "networks": [_network(nic) for nic in spec.nics],
                    "volumes": [_cloud_init(spec), *(_volume(disk) for disk in spec.disks)],
                    "evictionStrategy": "LiveMigrateIfPossible",
                    "affinity": _affinity(spec),
                },
            },
        },
    )


def _run_strategy(raw: Mapping[str, Any]) -> str:
    strategy = nested(raw, "spec", "runStrategy")
    if strategy:
        return str(strategy)
    running = nested(raw, "spec", "running")  # the deprecated form
    return "" if running is None else "Always" if running else "Halted"


def _labels(spec: VmSpec) -> dict[str, str]:
    labels = {
        names.CREATOR: names.CREATOR_NODE_DRIVER,
        names.VM_NAME: spec.name,
        names.MACHINE_SET: names.machine_set_label(spec.namespace, spec.name),
    }
    if spec.guest_cluster:
        labels[names.GUEST_CLUSTER] = names.label_value(spec.guest_cluster)
        labels[names.NODE_POOL] = names.pool_label(spec.guest_cluster, spec.name)
    return labels


def _domain(spec: VmSpec) -> Raw:
    cpu: Raw = {"cores": spec.cores, "sockets": 1, "threads": 1}
    cpu |= dict.fromkeys(_CPU_FIELDS[spec.cpus], True)
    if spec.cpu_model:
        cpu["model"] = spec.cpu_model
    domain: Raw = {
        "cpu": cpu,
        "resources": {"limits": {"cpu": str(spec.cores), "memory": spec.memory}},
        "devices": _devices(spec),
    }
    if spec.efi:
        domain["features"] = {"acpi": {}, "smm": {"enabled": spec.secure_boot}}
        domain["firmware"] = {"bootloader": {"efi": {"secureBoot": spec.secure_boot}}}
    return domain


def _devices(spec: VmSpec) -> Raw:
    devices: Raw = {
        # The cloud-init disk comes first, as in the Go driver; boot orders keep the VM from booting it.
        "disks": [{"name": CLOUD_INIT, "disk": {"bus": "virtio"}}, *(_disk(disk) for disk in spec.disks)],
        "interfaces": [_interface(nic) for nic in spec.nics],
    }
    if spec.tpm:
        devices["tpm"] = {}
    if spec.devices:
        devices[spec.devices_in] = [
            {"name": device.name, "deviceName": device.device_name} for device in spec.devices
        ]
    return devices


def _disk(disk: Disk) -> Raw:
    made: Raw = {"name": disk.name, "cdrom" if disk.is_cdrom else "disk": {"bus": disk.bus}}
    if disk.boot_order > 0:
        made["bootOrder"] = disk.boot_order
    return made


def _volume(disk: Disk) -> Raw:
    claim: Raw = {"claimName": disk.claim}
    if disk.hotpluggable:
        claim["hotpluggable"] = True
    return {"name": disk.name, "persistentVolumeClaim": claim}


def _interface(nic: Nic) -> Raw:
    made: Raw = {"name": nic.name, "model": nic.model, "bridge": {}}
    if nic.mac:
        made["macAddress"] = nic.mac
    return made


def _network(nic: Nic) -> Raw:
    return {"name": nic.name, "multus": {"networkName": nic.network}}


def _cloud_init(spec: VmSpec) -> Raw:
    source: Raw = {}
    secret = {"name": secret_ref(spec.namespace, spec.name).name}
    if spec.cloud_init.user_data_in_secret:
        source["secretRef"] = dict(secret)
    elif spec.cloud_init.user_data:
        source["userData"] = spec.cloud_init.user_data
    if spec.cloud_init.network_data_in_secret:
        source["networkDataSecretRef"] = dict(secret)
    elif spec.cloud_init.network_data:
        source["networkData"] = spec.cloud_init.network_data
    return {"name": CLOUD_INIT, "cloudInitNoCloud": source}


def _affinity(spec: VmSpec) -> Raw:
    """The user's affinity with one more preferred term each, or a preference to spread over hosts."""
    if spec.affinity is None:
        return {
            "podAntiAffinity": _preferred_term(
                100, {"matchExpressions": [{"key": names.CREATOR, "operator": "Exists"}]}
            )
        }
    affinity = copy.deepcopy(dict(spec.affinity))
    labels = {names.MACHINE_SET: names.machine_set_label(spec.namespace, spec.name)}
    for block in ("podAffinity", "podAntiAffinity"):
        if isinstance(affinity.get(block), dict):
            terms = affinity[block].get(_PREFERRED) or []
            affinity[block][_PREFERRED] = [*terms, *_preferred_term(1, {"matchLabels": labels})[_PREFERRED]]
    return affinity


_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _preferred_term(weight: int, selector: Raw) -> Raw:
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return {_PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}
