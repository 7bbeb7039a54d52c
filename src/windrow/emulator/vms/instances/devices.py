"""Disks of an instance: how the guest names them, and the order in which they are tried to boot. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from windrow.emulator.guest_os.hardware import BlockDevice
from windrow.emulator.quantities import quantity_or_zero
from windrow.kubernetes.objects import Raw, nested

CLOUD_INIT_BYTES = 1 << 20
MAX_TARGETS = 26


def list_targets(spec: Mapping[str, Any]) -> dict[str, str]:
    """The guest's name of each disk, in order: a letter for each on one kind of bus."""
    counts: Counter[str] = Counter()
    targets = {}
    for disk in nested(spec, "domain", "devices", "disks", default=[]):
        prefix = _prefix(disk)
        place = counts[prefix]
        counts[prefix] += 1
        if place < MAX_TARGETS:
            targets[str(disk["name"])] = f"{prefix}{place if prefix == 'sr' else chr(ord('a') + place)}"
    return targets


def _prefix(disk: Mapping[str, Any]) -> str:
    if "cdrom" in disk:
        return "sr"
    return "vd" if nested(disk, "disk", "bus") in (None, "", "virtio") else "sd"


def read_disks(spec: Mapping[str, Any], claims: Mapping[str, Raw]) -> tuple[BlockDevice, ...]:
    """The disks as the guest sees them. `claims` are those that exist, by name."""
    volumes = {str(volume["name"]): volume for volume in spec.get("volumes") or ()}
    disks = []
    for name, target in list_targets(spec).items():
        claim = claims.get(nested(volumes.get(name), "persistentVolumeClaim", "claimName", default=""))
        size = nested(claim, "status", "capacity", "storage") or nested(
            claim, "spec", "resources", "requests", "storage"
        )
        disks.append(BlockDevice(target, int(quantity_or_zero(size)) or CLOUD_INIT_BYTES))
    return tuple(disks)


def boot_claims_of(spec: Mapping[str, Any]) -> list[str]:
    """The claims of the disks that are tried to boot, in order. Once one disk has a boot order, only those with one are."""
    volumes = {
        volume["name"]: nested(volume, "persistentVolumeClaim", "claimName")
        for volume in spec.get("volumes") or ()
    }
    disks = nested(spec, "domain", "devices", "disks", default=[])
    ordered = sorted((disk for disk in disks if disk.get("bootOrder")), key=lambda disk: disk["bootOrder"])
    return [claim for disk in ordered or disks if (claim := volumes.get(disk["name"]))]
