"""Disks of an instance: how the guest names them, and the order in which they are tried to boot. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from windrow.emulator.guest_os.hardware import BlockDevice, Disk
from windrow.emulator.kit.vm_readings import is_hotpluggable
from windrow.emulator.quantities import quantity_or_zero
from windrow.kubernetes.objects import Raw, nested, uid_of

CLOUD_INIT_BYTES = 1 << 20
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONGEST_SERIAL = 36  # QEMU cuts off what is longer


def list_targets(spec: Mapping[str, Any]) -> dict[str, str]:
    """The guest's name of each disk that is there at power-on, in order: a letter for each on one kind of bus."""
    counts: Counter[str] = Counter()
    targets = {}
    plugged = _hotpluggable_names(spec)
    for disk in nested(spec, "domain", "devices", "disks", default=[]):
        if disk["name"] not in plugged:
            prefix = _prefix(disk)
            targets[str(disk["name"])] = _target(prefix, counts[prefix])
            counts[prefix] += 1
    return targets


def find_free_target(disk: Mapping[str, Any], taken: Iterable[str]) -> str:
    """The first free name for a disk that is plugged in while the machine runs. Others keep theirs."""
    prefix, used = _prefix(disk), frozenset(taken)
    names = (_target(prefix, place) for place in count())
    return next(name for name in names if name not in used)


def _target(prefix: str, place: int) -> str:
    if prefix == "sr":
        return f"sr{place}"
    letters = ""
    while place >= 0:  # a … z, aa … az, ba …
        letters = LETTERS[place % len(LETTERS)] + letters
        place = place // len(LETTERS) - 1
    return prefix + letters


def _hotpluggable_names(spec: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(str(volume["name"]) for volume in spec.get("volumes") or () if is_hotpluggable(volume))


def _prefix(disk: Mapping[str, Any]) -> str:
    if "cdrom" in disk:
        return "sr"
    return "vd" if nested(disk, "disk", "bus") in (None, "", "virtio") else "sd"


def read_disks(
    spec: Mapping[str, Any],
    claims: Mapping[str, Raw],
    targets: Mapping[str, str],
    disk_of: Callable[[str], Disk],
) -> tuple[BlockDevice, ...]:
    """The disks of these targets, as the guest sees them. `claims` are those that exist, by name; `disk_of` has the data
    of one by its uid."""
    volumes = {str(volume["name"]): volume for volume in spec.get("volumes") or ()}
    disks = {str(disk["name"]): disk for disk in nested(spec, "domain", "devices", "disks", default=[])}
    made = []
    for name, target in targets.items():
        claim = claims.get(nested(volumes.get(name), "persistentVolumeClaim", "claimName", default=""))
        size = nested(claim, "status", "capacity", "storage") or nested(
            claim, "spec", "resources", "requests", "storage"
        )
        made.append(
            BlockDevice(
                target,
                int(quantity_or_zero(size)) or CLOUD_INIT_BYTES,
                volume=name,
                serial=str(nested(disks.get(name), "serial", default=""))[:LONGEST_SERIAL],
                is_virtio=target.startswith("vd"),
                disk=disk_of(uid_of(claim)) if claim else None,
            )
        )
    return tuple(made)


def boot_claims_of(spec: Mapping[str, Any]) -> list[str]:
    """The claims of the disks that are tried to boot, in order. Once one disk has a boot order, only those with one are."""
    volumes = {
        volume["name"]: nested(volume, "persistentVolumeClaim", "claimName")
        for volume in spec.get("volumes") or ()
    }
    disks = nested(spec, "domain", "devices", "disks", default=[])
    ordered = sorted((disk for disk in disks if disk.get("bootOrder")), key=lambda disk: disk["bootOrder"])
    return [claim for disk in ordered or disks if (claim := volumes.get(disk["name"]))]
