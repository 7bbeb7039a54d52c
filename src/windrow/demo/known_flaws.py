"""Known flaws of the Go node driver for Harvester, so that the demo does not report them as failures of Windrow.

A failed check is explained by a flaw only where the driver is that program, and the flaw accounts for all that was found.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from windrow.emulator.kit.inventory import Item

GO_DRIVER = "github.com/harvester/docker-machine-driver-harvester"
# A line of the build info that the Go linker puts into each program, also into stripped ones: module, tab, version.
_BUILD_INFO = b"\nmod\t" + GO_DRIVER.encode() + b"\t"
_LONGEST_VERSION = 100


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is left on Harvester in the end, and the VMs that the demo deleted there, not through the driver."""

    items: Collection[Item]
    deleted_vms: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class KnownFlaw:
    """`explains` says whether the flaw accounts for everything that is left."""

    check: str
    flaw: str
    versions: str
    explains: Callable[[Leftovers], bool]


def _are_disks_of_deleted_vms(left: Leftovers) -> bool:
    return all(
        kind == "PersistentVolumeClaim" and any(name.startswith(f"{vm}-disk-") for vm in left.deleted_vms)
        for kind, _, name in left.items
    )


KNOWN_FLAWS = (
    KnownFlaw(
        "nothing-left",
        "removing a machine whose VM is gone leaves its disks on Harvester",
        "v0.6.3, v1.0.6 and HEAD of June 2026",
        _are_disks_of_deleted_vms,
    ),
)


def read_go_driver_version(path: Path) -> str | None:
    """The version in the build info of the Go driver, "(devel)" for a build outside its repository; None for any other
    program. Raises OSError."""
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(_BUILD_INFO)
            if at < 0:
                return None
            begin = at + len(_BUILD_INFO)
            line = data[begin : begin + _LONGEST_VERSION].partition(b"\n")[0]
    return line.partition(b"\t")[0].decode("ascii", "replace")


def find_known_flaw(version: str | None, check: str, left: Leftovers) -> KnownFlaw | None:
    """The flaw of the Go driver that explains why `check` failed; None for another driver (`version` None) as well."""
    if version is None or not left.items:
        return None
    return next((one for one in KNOWN_FLAWS if one.check == check and one.explains(left)), None)
