"""`LinuxMounts`: the port Mounts by the tools and calls of this computer."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from windrow.core.clock import Clock
from windrow.csi.mounts import paths
from windrow.csi.mounts.devices import DeviceTree
from windrow.csi.mounts.formatting import FormattingRecords
from windrow.csi.mounts.linux.blocks import BlockDevices
from windrow.csi.mounts.linux.disks import Disks
from windrow.csi.mounts.linux.filesystems import DiskFilesystems
from windrow.csi.mounts.linux.kernel import STATS_TIMEOUT, KernelCalls
from windrow.csi.mounts.linux.shares import Shares
from windrow.csi.mounts.linux.table import MountTable, expect_nowhere_else, is_block, problem_of
from windrow.csi.mounts.mountinfo import find_mount
from windrow.csi.mounts.options import options_of
from windrow.csi.mounts.port import (
    DeviceBusy,
    FilesystemMount,
    MountConflict,
    NetworkShare,
    Usage,
    VolumeDevice,
    VolumeStats,
)

DEVICE_TIMEOUT = timedelta(seconds=15)


class LinuxMounts:
    """`folder` keeps the records of filesystems that are being made; it has to outlive the process, not the node.

    `device_timeout` is how long a disk may take to appear after Harvester has reported it as attached. `share_type` is the
    filesystem of shared volumes, another one for tests on a kernel without NFS.
    """

    def __init__(
        self,
        clock: Clock,
        folder: Path,
        devices: DeviceTree | None = None,
        device_timeout: timedelta = DEVICE_TIMEOUT,
        share_type: str = "nfs",
    ) -> None:
        self._calls, devices = KernelCalls(clock), devices or DeviceTree()
        self._table = MountTable(self._calls, share_type)
        self._disks = Disks(clock, self._calls, devices, device_timeout)
        records = FormattingRecords(folder)
        self._blocks = BlockDevices(self._table, self._disks, records)
        self._filesystems = DiskFilesystems(clock, self._calls, self._table, self._disks, devices, records)
        self._shares = Shares(clock, self._table, share_type)

    async def find(self, volume: VolumeDevice) -> str:
        return (await self._disks.find(volume)).path

    async def stage(self, volume: VolumeDevice, path: str, mount: FilesystemMount) -> None:
        options = options_of(mount)
        path = paths.resolve(path)
        with self._table.claimed(path):
            await self._filesystems.stage(volume, path, mount.fs_type, options)

    async def stage_share(self, share: NetworkShare, path: str, mount: FilesystemMount) -> None:
        await self._shares.stage(share, path, mount)

    async def unstage(self, path: str) -> None:
        path = paths.resolve(path)
        mounts = self._table.read()
        mounted = find_mount(mounts, path)
        if mounted is None:
            return
        expect_nowhere_else(
            f"the volume staged at {path}", [one for one in mounts if one.device == mounted.device], path
        )
        await self._table.unmount_all(path)

    async def publish(
        self,
        volume: VolumeDevice,
        staging: str,
        target: str,
        mount: FilesystemMount,
        *,
        read_only: bool,
        exclusive: bool = False,
    ) -> None:
        await self.stage(volume, staging, mount)
        read_only = read_only or mount.read_only
        await self._publish(volume.volume_id, staging, target, read_only=read_only, exclusive=exclusive)

    async def publish_share(
        self, share: NetworkShare, staging: str, target: str, mount: FilesystemMount, *, read_only: bool
    ) -> None:
        await self.stage_share(share, staging, mount)
        staging = paths.resolve(staging)
        await self._calls.read(f"statfs {staging}", STATS_TIMEOUT, lambda: os.statvfs(staging))
        await self._publish(share.volume_id, staging, target, read_only=read_only or mount.read_only)

    async def _publish(
        self, volume_id: str, staging: str, target: str, *, read_only: bool, exclusive: bool = False
    ) -> None:
        staging, target = paths.resolve(staging), paths.resolve(target)
        mounts = self._table.read()
        staged, mounted = find_mount(mounts, staging), find_mount(mounts, target)
        if staged is None:
            raise DeviceBusy(f"{staging} was unmounted meanwhile", "repeat the same call")
        if exclusive:
            same = [one for one in mounts if one.device == staged.device]
            expect_nowhere_else(f"volume {volume_id}", same, staging, target)
        if mounted is None:
            paths.ensure_directory(target)
            with self._table.claimed(target):
                await self._table.bind(staging, target, staged, read_only=read_only)
            return
        if (mounted.device, mounted.root) != (staged.device, staged.root):
            raise MountConflict(
                f"{target} has {mounted.source} mounted, not volume {volume_id}",
                "unmount it on the node",
            )
        await self._table.settle_mode(target, mounted, read_only=read_only or staged.read_only)

    async def publish_block(
        self, volume: VolumeDevice, target: str, *, read_only: bool, exclusive: bool = False
    ) -> None:
        await self._blocks.publish(volume, target, read_only=read_only, exclusive=exclusive)

    async def unpublish(self, target: str) -> None:
        target = paths.resolve(target)
        await self._table.unmount_all(target)
        paths.remove_empty(target)

    async def grow(self, path: str) -> int:
        path = paths.resolve(path)
        mounted = self._table.get(path)
        if is_block(path, mounted):
            return await self._disks.size(path)
        return await self._filesystems.grow(mounted, path)

    async def stats(self, path: str) -> VolumeStats:
        path = paths.resolve(path)
        mounted = self._table.get(path)
        if is_block(path, mounted):
            total = await self._disks.size(path)
            return VolumeStats(Usage(total, 0, total))
        found = await self._calls.read(f"statfs {path}", STATS_TIMEOUT, lambda: os.statvfs(path))
        unit = found.f_frsize
        capacity = Usage(
            found.f_blocks * unit, found.f_bavail * unit, (found.f_blocks - found.f_bfree) * unit
        )
        inodes = Usage(found.f_files, found.f_favail, found.f_files - found.f_ffree)
        return VolumeStats(capacity, inodes, problem_of(mounted))
