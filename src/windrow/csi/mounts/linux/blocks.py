"""Volumes as block devices: bind mounts of the disk's node in /dev."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from windrow.csi.mounts import paths
from windrow.csi.mounts.devices import Device
from windrow.csi.mounts.formatting import FormattingRecords
from windrow.csi.mounts.linux.disks import Disks, number_of
from windrow.csi.mounts.linux.table import MountTable, expect_nowhere_else
from windrow.csi.mounts.mountinfo import Mount, find_mount
from windrow.csi.mounts.port import MountConflict, VolumeDevice


class BlockDevices:
    """Publishes disks as they are."""

    def __init__(self, table: MountTable, disks: Disks, records: FormattingRecords) -> None:
        self._table, self._disks, self._records = table, disks, records

    async def publish(
        self, volume: VolumeDevice, target: str, *, read_only: bool, exclusive: bool = False
    ) -> None:
        device = await self._disks.find(volume)
        target = paths.resolve(target)
        async with self._disks.opened(volume, device) as descriptor:
            mounts = self._table.read()
            mounted, same = find_mount(mounts, target), block_mounts(mounts, device)
            if exclusive:
                expect_nowhere_else(f"volume {volume.volume_id}", same, target)
            _expect_one_mode(volume, same, target, read_only=read_only)
            if mounted is None:
                with self._table.claimed(target):
                    await self._bind(volume, device, target, descriptor, read_only=read_only)
                return
            found = os.lstat(target)
            if not stat.S_ISBLK(found.st_mode) or found.st_rdev != os.fstat(descriptor).st_rdev:
                raise MountConflict(
                    f"{target} has {mounted.source} mounted, not the disk of volume {volume.volume_id}",
                    "unmount it on the node",
                )
            await self._table.settle_mode(target, mounted, read_only=read_only)
            await self._disks.set_read_only(device, descriptor, read_only=read_only)

    async def _bind(
        self, volume: VolumeDevice, device: Device, target: str, descriptor: int, *, read_only: bool
    ) -> None:
        mounts, number = self._table.read(), number_of(device)
        if read_only:  # it would be so for a filesystem, too, that is mounted writable
            expect_nowhere_else(f"volume {volume.volume_id}", [one for one in mounts if one.device == number])
        if not block_mounts(mounts, device):
            await self._disks.lock(device, descriptor)  # an mkfs that outlived its driver has it
        self._records.remove(volume.volume_id)  # from now on others write to the disk
        await self._disks.set_read_only(device, descriptor, read_only=read_only)
        paths.ensure_file(target)
        await self._table.bind(device.path, target, None, read_only=read_only)


def block_mounts(mounts: Sequence[Mount], device: Device) -> list[Mount]:
    """Where the disk is published as a block device: mounts of its node in /dev."""
    root = f"/{device.name}"
    return [one for one in mounts if one.fs_type in ("devtmpfs", "tmpfs") and one.root == root]


def _expect_one_mode(volume: VolumeDevice, mounts: Sequence[Mount], target: str, *, read_only: bool) -> None:
    others = [one for one in mounts if not one.path.endswith(target) and ("ro" in one.options) != read_only]
    if others:
        found = "writable" if read_only else "read-only"
        raise MountConflict(
            f"volume {volume.volume_id} is published {found} at {others[0].path}",
            "a block device is writable for all pods of a node or for none: end the pod that has it otherwise",
        )
