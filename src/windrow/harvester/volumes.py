"""A machine's disks: the claims that Harvester creates from a VM's claim templates, and the storage classes they use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.core.formats.json import NotJson, dumps, loads
from windrow.core.rng import ALPHABET
from windrow.harvester.identity import is_owned_by
from windrow.harvester.names import CLAIM_MODES, CLAIM_TEMPLATES, IMAGE_ID, OWNED_BY
from windrow.kubernetes.objects import Raw, annotations_of, name_of, nested

# Reserved by Harvester, which refuses claims with them.
RESERVED = frozenset({"vmstate-persistence", "longhorn-static"})


@dataclass(frozen=True, slots=True)
class ClaimModes:
    """How a machine's disk is claimed: as Longhorn's are, unless its class can do less."""

    access: str = "ReadWriteMany"
    volume: str = "Block"


LONGHORN = ClaimModes()


@dataclass(frozen=True, slots=True)
class StorageClass:
    name: str
    is_reserved: bool
    modes: ClaimModes


def read_storage_class(raw: Mapping[str, Any]) -> StorageClass:
    name = name_of(raw)
    return StorageClass(
        name=name,
        is_reserved=name in RESERVED,
        modes=_best_modes(annotations_of(raw).get(CLAIM_MODES, "")),
    )


def _best_modes(text: str) -> ClaimModes:
    """The best of what a class offers: a block device before a file, many hosts (for migration) before one."""
    try:
        offered = loads(text) if text else {}
    except NotJson:
        offered = {}
    if not isinstance(offered, dict):
        return LONGHORN
    for volume in ("Block", "Filesystem"):
        modes = [str(mode) for mode in offered.get(volume) or ()]
        if modes:
            return ClaimModes("ReadWriteMany" if "ReadWriteMany" in modes else modes[0], volume)
    return LONGHORN


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk of a machine that is to be made. `image` is `namespace/name`, "" for an empty disk."""

    name: str
    claim: str
    size_gib: int
    storage_class: str
    image: str = ""
    bus: str = "virtio"
    is_cdrom: bool = False
    boot_order: int = 0
    hotpluggable: bool = False
    modes: ClaimModes = LONGHORN


def claim_name(vm: str, disk: str, machine_uid: str) -> str:
    """The claim of a machine's disk: `<vm>-<disk>-<5 characters>`.

    The end is derived from the machine's uid where the Go driver draws it, so a creation that is repeated after a crash
    names the same claim and cannot create a second one.
    """
    number = int.from_bytes(hashlib.sha256(f"{machine_uid}/{vm}/{disk}".encode()).digest(), "big")
    suffix = ""
    for _ in range(5):
        number, digit = divmod(number, len(ALPHABET))
        suffix += ALPHABET[digit]
    return f"{vm}-{disk}-{suffix}"


def claim_template(disk: Disk, owner_annotations: Mapping[str, str]) -> Raw:
    """The claim that Harvester creates for `disk`. `owner_annotations` become annotations of the claim."""
    annotations = dict(owner_annotations)
    if disk.image:
        annotations[IMAGE_ID] = disk.image
    metadata: Raw = {"name": disk.claim, "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "metadata": metadata,
        "spec": {
            "accessModes": [disk.modes.access],
            "resources": {"requests": {"storage": f"{disk.size_gib}Gi"}},
            "storageClassName": disk.storage_class,
            "volumeMode": disk.modes.volume,
        },
        "status": {},
    }


def render_claim_templates(disks: Sequence[Disk], owner_annotations: Mapping[str, str]) -> str:
    """The value of the claim templates annotation."""
    return dumps([claim_template(disk, owner_annotations) for disk in disks]).decode()


def read_claim_templates(raw_vm: Mapping[str, Any]) -> list[Raw]:
    """The claims that a VM's annotation asks for; none where it is missing or unreadable."""
    try:
        found = loads(annotations_of(raw_vm).get(CLAIM_TEMPLATES, "[]"))
    except NotJson:
        return []
    return [entry for entry in found if nested(entry, "metadata", "name")] if isinstance(found, list) else []


def owned_claims(raw_vm: Mapping[str, Any], cluster_uid: str, machine_uid: str) -> frozenset[str]:
    """The claims among a VM's templates that have this machine's owner annotations. Hot-plugged volumes do not, also where
    Harvester's UI has listed them there."""
    return frozenset(
        str(entry["metadata"]["name"])
        for entry in read_claim_templates(raw_vm)
        if is_owned_by(entry, cluster_uid, machine_uid)
    )


def vms_using(raw_claim: Mapping[str, Any]) -> frozenset[str]:
    """The VMs (`namespace/name`) among whose volumes the claim is, by Harvester's annotation; none where it is missing."""
    try:
        owners = loads(annotations_of(raw_claim).get(OWNED_BY, "[]"))
    except NotJson:
        return frozenset()
    return frozenset(
        str(ref)
        for owner in (owners if isinstance(owners, list) else [])
        if nested(owner, "schema") == "kubevirt.io.virtualmachine" and isinstance(owner.get("refs"), list)
        for ref in owner["refs"]
    )
