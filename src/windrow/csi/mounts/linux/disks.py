"""The disk of a volume on the node: found, proven to be its own, locked, read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from windrow.core.clock import Clock, sleep
from windrow.csi.mounts import filesystems, syscalls
from windrow.csi.mounts.device_events import wait_for_device
from windrow.csi.mounts.devices import Device, DeviceTree
from windrow.csi.mounts.linux.kernel import PROBE_TIMEOUT, KernelCalls
from windrow.csi.mounts.port import DeviceBusy, DeviceMismatch, DeviceNotFound, ToolFailed, VolumeDevice

# udev holds the lock for milliseconds.
_LOCK_DELAYS = (0.05, 0.1, 0.2, 0.4, 0.8)


class Disks:
    """`timeout` is how long a disk may take to appear after Harvester has reported it as attached."""

    def __init__(self, clock: Clock, calls: KernelCalls, devices: DeviceTree, timeout: timedelta) -> None:
        self._clock, self._calls = clock, calls
        self._devices = devices
        self._timeout = timeout

    async def find(self, volume: VolumeDevice) -> Device:
        """Raises DeviceNotFound, DeviceMismatch."""
        device = await wait_for_device(self._clock, self._timeout, lambda: self._find_now(volume))
        if device is None:
            wanted = (
                f"with serial {volume.serial}"
                if volume.serial
                else "with the volume's name in /dev/disk/by-id"
            )
            raise DeviceNotFound(
                f"volume {volume.volume_id}: no disk {wanted} on this node after {self._timeout}",
                "see the volumeStatus of the node's VirtualMachineInstance; the disk may be attached under another serial",
            )
        size = await self.size(device.path)
        if size < volume.size:
            raise DeviceMismatch(
                f"volume {volume.volume_id}: disk {device.path} has {size} bytes, the volume {volume.size}",
                "detach the volume and attach it again; compare the disks of the VirtualMachine",
            )
        return device

    def _find_now(self, volume: VolumeDevice) -> Device | None:
        device = self._devices.find(volume)
        # The kernel knows a disk some moments before its node is in /dev.
        return device if device is not None and self._devices.is_device(device) else None

    async def size(self, path: str) -> int:
        return await self._calls.read(f"size of {path}", PROBE_TIMEOUT, lambda: syscalls.device_size(path))

    @asynccontextmanager
    async def opened(self, volume: VolumeDevice, device: Device) -> AsyncIterator[int]:
        """A descriptor of the disk, which is proven to be the volume's once more: while it is open, no other disk gets its
        name and number. Raises DeviceMismatch."""
        changed = DeviceMismatch(
            f"volume {volume.volume_id}: {device.path} is no longer its disk",
            "repeat the call: the disk is looked for again",
        )
        try:
            descriptor = os.open(device.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise changed from error
        try:
            if (
                self._find_now(volume) != device
                or os.fstat(descriptor).st_rdev != os.stat(device.path).st_rdev
            ):
                raise changed
            yield descriptor
        finally:
            os.close(descriptor)

    async def lock(self, device: Device, descriptor: int) -> None:
        """Raises DeviceBusy."""
        for delay in (*_LOCK_DELAYS, None):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if delay is None:
                    raise DeviceBusy(
                        f"{device.path} is locked by another program",
                        "an mkfs or fsck may still run: repeat the call",
                    ) from error
                await sleep(self._clock, timedelta(seconds=delay))

    async def set_read_only(self, device: Device, descriptor: int, *, read_only: bool) -> None:
        await self._calls.change(
            f"read-only flag of {device.path}", lambda: syscalls.set_device_read_only(descriptor, read_only)
        )

    async def is_blank(self, device: Device) -> bool:
        for offset, length in filesystems.blank_regions(await self.size(device.path)):
            found = await self.read(device, offset, length)
            if found.count(0) != len(found):
                return False
        return True

    async def read(self, device: Device, offset: int, size: int) -> bytes:
        what = f"read of {device.path}"
        try:
            return await self._calls.run(
                what, PROBE_TIMEOUT, lambda: syscalls.read_device(device.path, offset, size)
            )
        except OSError as error:
            raise ToolFailed(
                f"{what} at {offset}: {error.strerror}", "see the node's kernel log for the disk"
            ) from error


def number_of(device: Device) -> tuple[int, int]:
    """By it mountinfo names the disk."""
    number = os.stat(device.path).st_rdev
    return os.major(number), os.minor(number)
