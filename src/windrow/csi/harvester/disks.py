"""The disks of a VM that volumes are: read from the VM and its instance, and the patch that adds and removes them. Pure.

A volume is a disk twice: in the VM's template, which is what is wanted, and in the status of the instance, which is what the
guest has. Both are named like the claim. Only what is `hotpluggable` and of the claim with its own name is ever removed: the
machine's own disks and what an administrator plugged in under another name stay.

Removals go by index, each guarded by a test of the name there, and together by one of the VM's generation, so that the patch
fails, whole, where the VM's spec was changed meanwhile: also where it had no answer and is carried out late, after the volume
left the VM and came back to the same place. Additions go to the end, of the VM with the uid that was read and of no other
that has its name by then. So the patch carries no resourceVersion, and changes of the VM's status, which are many while it
starts, do not fail it. Only a VM without a list, to which the whole list is added, has to be as it was read; and so has the spec of a
VM that was not read for the patch, but is known from the watch (`plan_additions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from windrow.core.formats.json import Raw
from windrow.csi.handles import serial_of
from windrow.harvester.names import CLUSTER_UID, GUEST_CLUSTER
from windrow.kubernetes.objects import (
    annotations_of,
    is_deleting,
    labels_of,
    mappings_at,
    name_of,
    nested,
    resource_version_of,
    uid_of,
)

BUS = "scsi"
# Of one VM: Harvester's limit, with the machine's own disks.
MAX_DISKS = 256
READY = "Ready"

_VOLUMES = "/spec/template/spec/volumes"
_DEVICES = "/spec/template/spec/domain/devices"
_DISKS = f"{_DEVICES}/disks"


@dataclass(frozen=True, slots=True)
class Disk:
    """A volume among those of a VM's template, or of an instance's."""

    name: str
    claim: str
    hotpluggable: bool
    read_only: bool = False
    # "" where none was set, as the Go driver does.
    serial: str = ""
    bus: str = ""

    @property
    def is_removable(self) -> bool:
        """Whether a CSI driver plugged it in."""
        return self.hotpluggable and self.name == self.claim


@dataclass(frozen=True, slots=True)
class VmDisks:
    """The disks of a VM's template."""

    vm: str
    uid: str
    is_deleting: bool
    disks: tuple[Disk, ...]
    # How many volumes of any kind it has.
    count: int
    resource_version: str = ""
    # What the firmware of its instances tells the guest that it is; "" where the VM does not say.
    system_uuid: str = ""
    # Whose machine it is: the uid and the name of a cluster, by its manager; "" for none.
    cluster_marks: tuple[str, str] = ("", "")
    # Of its spec; 0 where the VM does not say.
    generation: int = 0
    # Whether it has both lists that a disk is added to.
    has_lists: bool = False

    def find(self, claim: str) -> Disk | None:
        """The disk that the claim is; of several the one that a CSI driver plugged in."""
        found = [one for one in self.disks if one.claim == claim]
        return next((one for one in found if one.is_removable), found[0] if found else None)


@dataclass(frozen=True, slots=True)
class Plugged:
    """A hot-plugged volume, as the status of an instance tells."""

    name: str
    phase: str
    message: str


@dataclass(frozen=True, slots=True)
class InstanceDisks:
    """The volumes that a running VM has."""

    vm: str
    is_deleting: bool
    phase: str
    claims: frozenset[str]
    plugged: tuple[Plugged, ...]
    resource_version: str = ""
    # What its firmware tells the guest that it is.
    system_uuid: str = ""

    def find(self, name: str) -> Plugged | None:
        return next((one for one in self.plugged if one.name == name), None)

    def has(self, claim: str) -> bool:
        return claim in self.claims or self.find(claim) is not None


def read_vm(raw: Mapping[str, Any]) -> VmDisks:
    spec = nested(raw, "spec", "template", "spec", default={})
    lists = nested(spec, "volumes"), nested(spec, "domain", "devices", "disks")
    generation = nested(raw, "metadata", "generation")
    disks = {str(one.get("name")): one for one in mappings_at(spec, "domain", "devices", "disks")}
    volumes = mappings_at(spec, "volumes")
    return VmDisks(
        vm=name_of(raw),
        uid=uid_of(raw),
        is_deleting=is_deleting(raw),
        disks=tuple(_disk(one, disks.get(str(one.get("name")), {})) for one in volumes if _claim_of(one)),
        count=len(volumes),
        resource_version=resource_version_of(raw),
        system_uuid=str(nested(spec, "domain", "firmware", "uuid", default="")).lower(),
        cluster_marks=(annotations_of(raw).get(CLUSTER_UID, ""), labels_of(raw).get(GUEST_CLUSTER, "")),
        generation=generation if isinstance(generation, int) else 0,
        has_lists=all(isinstance(one, list) for one in lists),
    )


def _claim_of(volume: Mapping[str, Any]) -> str:
    """The claim that the volume uses, by its own name or by that of its DataVolume; "" for a volume of another kind."""
    found = nested(volume, "persistentVolumeClaim", "claimName") or nested(volume, "dataVolume", "name")
    return str(found or "")


def _disk(volume: Mapping[str, Any], disk: Mapping[str, Any]) -> Disk:
    return Disk(
        name=str(volume.get("name")),
        claim=_claim_of(volume),
        # No CSI driver plugs in DataVolumes.
        hotpluggable=nested(volume, "persistentVolumeClaim", "hotpluggable") is True,
        read_only=nested(disk, "disk", "readonly", default=False) is True,
        serial=str(disk.get("serial") or ""),
        bus=str(nested(disk, "disk", "bus", default="")),
    )


def read_instance(raw: Mapping[str, Any]) -> InstanceDisks:
    return InstanceDisks(
        vm=name_of(raw),
        is_deleting=is_deleting(raw),
        phase=str(nested(raw, "status", "phase", default="")),
        claims=frozenset(claim for one in mappings_at(raw, "spec", "volumes") if (claim := _claim_of(one))),
        plugged=tuple(
            Plugged(str(one.get("name")), str(one.get("phase", "")), str(one.get("message", "")))
            for one in mappings_at(raw, "status", "volumeStatus")
            if one.get("hotplugVolume") is not None
        ),
        resource_version=resource_version_of(raw),
        system_uuid=str(nested(raw, "spec", "domain", "firmware", "uuid", default="")).lower(),
    )


@dataclass(frozen=True, slots=True)
class DiskChange:
    """One volume that is to be a disk of the VM, or to be none any more."""

    volume_id: str
    kind: Literal["attach", "detach"]
    read_only: bool = False


def disk_of(change: DiskChange) -> Raw:
    """The disk, as a VM and `addvolume` have it."""
    device: Raw = {"bus": BUS}
    if change.read_only:
        device["readonly"] = True
    return {"name": change.volume_id, "serial": serial_of(change.volume_id), "disk": device}


def needs_change(vm: VmDisks, change: DiskChange) -> bool:
    """Whether the VM's template is not yet as wanted."""
    found = vm.find(change.volume_id)
    if change.kind == "attach":
        return found is None
    return found is not None and found.is_removable


def plan_patch(raw_vm: Mapping[str, Any], changes: Sequence[DiskChange]) -> list[Raw]:
    """The JSON Patch that makes all changes; [] where the VM is as wanted. Removals first, from the end of each list."""
    vm = read_vm(raw_vm)
    due = [one for one in changes if needs_change(vm, one)]
    gone = {one.volume_id for one in due if one.kind == "detach"}
    added = [one for one in due if one.kind == "attach"]
    spec = nested(raw_vm, "spec", "template", "spec", default={})
    lists = nested(spec, "volumes"), nested(spec, "domain", "devices", "disks")
    return [
        *(_same_uid(vm) if due else ()),
        *(_same_version(vm) if added and not vm.has_lists else ()),
        *(_same_generation(vm) if gone else ()),
        *_removals(_VOLUMES, mappings_at(spec, "volumes"), gone),
        *_removals(_DISKS, mappings_at(spec, "domain", "devices", "disks"), gone),
        *_additions(_VOLUMES, lists[0], [_volume(one.volume_id) for one in added]),
        *_additions(_DISKS, lists[1], [disk_of(one) for one in added]),
    ]


def can_be_added(vm: VmDisks, changes: Sequence[DiskChange]) -> bool:
    """Whether a VM that was not read for it, but is known, tells enough to plan the changes: all are additions of what it lacks."""
    is_certain = vm.uid and vm.generation and vm.has_lists and not vm.is_deleting
    lacks = all(one.kind == "attach" and vm.find(one.volume_id) is None for one in changes)
    return bool(is_certain) and lacks and vm.count + len(changes) <= MAX_DISKS


def plan_additions(vm: VmDisks, added: Sequence[DiskChange]) -> list[Raw]:
    """The JSON Patch that makes additions for which the VM was not read: it fails, whole, where the VM's spec is another by now."""
    return [
        *_same_uid(vm),
        *_same_generation(vm),
        *_additions(_VOLUMES, [], [_volume(one.volume_id) for one in added]),
        *_additions(_DISKS, [], [disk_of(one) for one in added]),
    ]


def _volume(volume_id: str) -> Raw:
    return {
        "name": volume_id,
        "persistentVolumeClaim": {"claimName": volume_id, "hotpluggable": True},
    }


def _same_generation(vm: VmDisks) -> list[Raw]:
    generation = vm.generation
    return [{"op": "test", "path": "/metadata/generation", "value": generation}] if generation else []


def _removals(path: str, entries: Sequence[Mapping[str, Any]], gone: set[str]) -> list[Raw]:
    steps: list[Raw] = []
    for index in reversed(range(len(entries))):
        name = entries[index].get("name")
        if name in gone:
            steps.append({"op": "test", "path": f"{path}/{index}/name", "value": name})
            steps.append({"op": "remove", "path": f"{path}/{index}"})
    return steps


def _same_uid(vm: VmDisks) -> list[Raw]:
    return [{"op": "test", "path": "/metadata/uid", "value": vm.uid}] if vm.uid else []


def _same_version(vm: VmDisks) -> list[Raw]:
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": vm.resource_version}]


def _additions(path: str, present: Any, added: Sequence[Raw]) -> list[Raw]:
    if added and not isinstance(present, list):
        return [{"op": "add", "path": path, "value": list(added)}]
    return [{"op": "add", "path": f"{path}/-", "value": one} for one in added]
