"""Finds the disk of a volume among the block devices of this computer.

The serial is the proof. The kernel has read it from the disk itself: for SCSI, which KubeVirt hot-plugs, it is page 0x80 of
the vital product data, for virtio and NVMe an attribute. udev writes it into the names in /dev/disk/by-id too; such a link
is a hint where the kernel has nothing, and no proof against the kernel: a link may be stale.

Volumes that the Go driver attached have no serial. QEMU then tells the disk's alias, so that its by-id name ends in the
volume id (reference/03 §2.10). Only whole ids of the form `pvc-<uuid>` are looked for: `vol-1` would also be in `vol-10`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from windrow.csi.mounts.port import DeviceMismatch, VolumeDevice

# What udev writes before the serial of a disk of QEMU, by the bus it is on.
_SERIAL_PREFIXES = ("scsi-0QEMU_QEMU_HARDDISK_", "scsi-SQEMU_QEMU_HARDDISK_", "ata-QEMU_HARDDISK_", "virtio-")
# virtio-blk carries this many characters of a serial.
_VIRTIO_SERIAL = 20
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PVC = re.compile(f"pvc-{_UUID}")
# The serials that the controller gives: `handles.serial_of`.
_OUR_SERIAL = re.compile(f"{_UUID}|[0-9a-f]{{32}}")
_GO_LINK = re.compile(f".*pvc-{_UUID}")
# Header of the page: peripheral, page code, length.
_VPD_HEADER = 4
_MAX_ATTRIBUTE = 4096
_HINT = (
    "compare the disks of the VirtualMachine with `lsblk -o NAME,SERIAL,SIZE` and /dev/disk/by-id on the node"
)


@dataclass(frozen=True, slots=True)
class Device:
    """A whole disk. `name` is the kernel's, `path` its node in /dev."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class DeviceTree:
    """Where the devices are: the kernel's view and that of udev."""

    dev: Path = Path("/dev")
    sys: Path = Path("/sys")

    def find(self, volume: VolumeDevice) -> Device | None:
        """The disk of the volume, or None while the node does not have it. Raises DeviceMismatch."""
        found = self._by_serial(volume.serial) if volume.serial else self._by_go_name(volume.volume_id)
        if len(found) > 1:
            raise DeviceMismatch(
                f"the disks {', '.join(sorted(found))} all claim to be volume {volume.volume_id}", _HINT
            )
        return next((Device(name, str(self.dev / name)) for name in found), None)

    def count_own_disks(self) -> int:
        """How many disks, CD-ROM drives with them, this computer has that no CSI driver plugged in."""
        by_go = {name for link, name in self._links() if _GO_LINK.fullmatch(link)}
        return sum(not self._is_plugged_in(name, by_go) for name in self._disks() if self._is_hardware(name))

    def _is_hardware(self, name: str) -> bool:
        """Loop devices, RAID and the like have no device."""
        return (self.sys / "class/block" / name / "device").exists()

    def _is_plugged_in(self, name: str, by_go: Set[str]) -> bool:
        if not name.startswith("sd"):
            return False  # KubeVirt plugs in SCSI disks
        serial = self._serial(name)
        return _OUR_SERIAL.fullmatch(serial) is not None if serial else name in by_go

    def sequence(self, device: Device) -> str:
        """A number that the kernel gives once for each attachment of a disk (Linux 5.15), "" where it gives none.

        While it and the boot are the same, the disk was not away, so that no other node has written to it.
        """
        return _read_attribute(self.sys / "class/block" / device.name / "diskseq")

    def by_number(self, number: tuple[int, int]) -> Device | None:
        """The disk with this major and minor number, as mountinfo names it; None where there is none."""
        try:
            link = os.readlink(self.sys / "dev/block" / f"{number[0]}:{number[1]}")
        except OSError:
            return None
        name = os.path.basename(link)
        return Device(name, str(self.dev / name))

    def is_device(self, device: Device) -> bool:
        """Whether the node in /dev leads to the device that the kernel means by the name."""
        try:
            number = os.stat(device.path).st_rdev
        except OSError:
            return False
        numbers = _read_attribute(self.sys / "class/block" / device.name / "dev")
        return numbers == f"{os.major(number)}:{os.minor(number)}"

    def _by_serial(self, serial: str) -> set[str]:
        told = {name: self._serial(name) for name in self._disks()}
        exact = {name for name, found in told.items() if found == serial}
        if exact:
            return exact
        virtio = {name for name, found in told.items() if name.startswith("vd") and _is_cut(found, serial)}
        links = {f"{prefix}{serial}" for prefix in _SERIAL_PREFIXES}
        linked = {name for link, name in self._links() if link in links}
        for name in sorted(linked - virtio):
            if told.get(name):
                raise DeviceMismatch(
                    f"/dev/disk/by-id names disk {name} for serial {serial}, whose own serial is {told[name]}",
                    "run `udevadm trigger` on the node, which writes the links anew; " + _HINT,
                )
        return virtio | linked

    def _by_go_name(self, volume_id: str) -> set[str]:
        if not _PVC.fullmatch(volume_id):
            return set()
        # A serial of its own says that another program attached it, and as what.
        linked = {name for link, name in self._links() if link.endswith(volume_id)}
        return {name for name in linked if not self._serial(name) and self._may_be_called(name, volume_id)}

    def _may_be_called(self, name: str, volume_id: str) -> bool:
        """Whether the disk's own designators (page 0x83), of which udev made its link, hold the id; True where the kernel
        has none."""
        try:
            page = _read_bytes(self.sys / "class/block" / name / "device/vpd_pg83")
        except OSError:
            return True
        return volume_id.encode() in page

    def _disks(self) -> list[str]:
        try:
            names = sorted(os.listdir(self.sys / "class/block"))
        except OSError:
            return []
        return [name for name in names if not (self.sys / "class/block" / name / "partition").exists()]

    def _links(self) -> Iterator[tuple[str, str]]:
        """The names in by-id of whole disks, with the disk."""
        disks = set(self._disks())
        with suppress(OSError):
            for entry in sorted(os.listdir(self.dev / "disk/by-id")):
                with suppress(OSError):
                    name = os.path.basename(os.readlink(self.dev / "disk/by-id" / entry))
                    if name in disks:
                        yield entry, name

    def _serial(self, name: str) -> str:
        """What the disk itself tells; "" for nothing."""
        device = self.sys / "class/block" / name
        with suppress(OSError):
            page = _read_bytes(device / "device/vpd_pg80")
            return page[_VPD_HEADER:].decode("ascii", "replace").strip(" \0")
        return _read_attribute(device / "serial") or _read_attribute(device / "device/serial")


def _is_cut(found: str, serial: str) -> bool:
    return len(found) == _VIRTIO_SERIAL and serial.startswith(found)


def _read_attribute(path: Path) -> str:
    try:
        return _read_bytes(path).decode("ascii", "replace").strip(" \0\n")
    except OSError:
        return ""


def _read_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_ATTRIBUTE)
