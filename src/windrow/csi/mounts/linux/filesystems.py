"""Volumes with a filesystem: made on a blank disk, checked, mounted at the staging path, and grown."""

from __future__ import annotations

import errno
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from windrow.core.clock import Clock
from windrow.csi import errors
from windrow.csi.mounts import filesystems, paths, syscalls
from windrow.csi.mounts.commands import Finished, run_command
from windrow.csi.mounts.devices import Device, DeviceTree
from windrow.csi.mounts.formatting import Formatting, FormattingRecords
from windrow.csi.mounts.linux.blocks import block_mounts
from windrow.csi.mounts.linux.disks import Disks, number_of
from windrow.csi.mounts.linux.kernel import PROBE_TIMEOUT, SYSCALL_TIMEOUT, KernelCalls
from windrow.csi.mounts.linux.table import MountTable, expect_mode, expect_nowhere_else
from windrow.csi.mounts.mountinfo import Mount, find_mount
from windrow.csi.mounts.options import MS_RDONLY, MountOptions
from windrow.csi.mounts.port import (
    FILESYSTEMS,
    DamagedFilesystem,
    DeviceBusy,
    ForeignFilesystem,
    MountConflict,
    NotMounted,
    ToolFailed,
    VolumeDevice,
)

_MAKE_TIMEOUT = timedelta(minutes=15)
_CHECK_TIMEOUT = timedelta(hours=1)
_GROW_TIMEOUT = timedelta(minutes=15)
_BLKID_NOTHING = 2
_BLKID_AMBIGUOUS = 8
_WIPE_HINT = "if the volume holds nothing of value, run `wipefs --all` and `blkdiscard --zeroout` on it; else correct fsType"


class DiskFilesystems:
    """Stages disks with the filesystem that is asked for, or that they have."""

    def __init__(
        self,
        clock: Clock,
        calls: KernelCalls,
        table: MountTable,
        disks: Disks,
        devices: DeviceTree,
        records: FormattingRecords,
    ) -> None:
        self._clock, self._calls = clock, calls
        self._table, self._disks, self._devices, self._records = table, disks, devices, records

    async def stage(self, volume: VolumeDevice, path: str, fs_type: str, options: MountOptions) -> None:
        device = await self._disks.find(volume)
        number = number_of(device)
        mounted = find_mount(self._table.read(), path)
        if mounted is None:
            paths.ensure_directory(path)
            async with self._disks.opened(volume, device) as lock:
                await self._disks.lock(device, lock)
                await self._disks.set_read_only(device, lock, read_only=False)
                found = await self._prepare(volume, device, fs_type, options, lock)
                await self._mount(device, path, found, options)
            mounted = find_mount(self._table.read(), path)
        if mounted is None or mounted.device != number:
            raise MountConflict(
                f"{path} has {mounted.source if mounted else 'nothing'} mounted, not volume {volume.volume_id}",
                "unmount it on the node",
            )
        self._records.remove(volume.volume_id)
        expect_mode(mounted, options, path)
        await self.grow(mounted, path)

    async def _prepare(
        self, volume: VolumeDevice, device: Device, wanted: str, options: MountOptions, lock: int
    ) -> str:
        """The type of the filesystem on the device, after it was made or checked where that is due."""
        number, read_only = number_of(device), bool(options.flags & MS_RDONLY)
        published = block_mounts(self._table.read(), device)
        expect_nowhere_else(f"the block device of volume {volume.volume_id}", published)
        used = next((one for one in self._table.read() if one.device == number), None)
        if used is not None:
            # Mounted elsewhere on the node, as by the Go driver: neither mkfs nor fsck may touch it.
            self._records.remove(volume.volume_id)
            _expect_type(volume, device, filesystems.Content(used.fs_type), wanted)
            return used.fs_type
        formatting = Formatting(volume.volume_id, device.name, self._devices.sequence(device), self._boot())
        content, is_blank = await self._probe(device, formatting)
        if is_blank:
            if read_only:
                raise ForeignFilesystem(
                    f"volume {volume.volume_id} holds no filesystem and is to be mounted read-only",
                    "use it once in a pod that may write",
                )
            return await self._make(wanted or FILESYSTEMS[0], device, formatting, lock)
        _expect_type(volume, device, content, wanted)
        if not read_only:
            await self._check(content.fs_type, device, lock)
        return content.fs_type

    async def _probe(self, device: Device, formatting: Formatting) -> tuple[filesystems.Content, bool]:
        """What is on the device, and whether it is proven that nothing is.

        Content that is recognised takes the record away: from then on it would only vouch for a filesystem that was lost.
        """
        probed = await run_command(self._clock, filesystems.probe_command(device.path), PROBE_TIMEOUT)
        beginning = await self._disks.read(device, 0, filesystems.SUPERBLOCK_BYTES)
        content = filesystems.parse_probe(probed.output) if probed.code == 0 else filesystems.Content()
        match probed.code:
            case code if code == _BLKID_NOTHING:
                return content, self._records.has(formatting) or await self._disks.is_blank(device)
            case 0 if filesystems.is_unfinished(content, beginning) and self._records.has(formatting):
                return content, True
            case code if code in (0, _BLKID_AMBIGUOUS):
                self._records.remove(formatting.volume_id)
                return content, False
        raise ToolFailed(f"cannot probe {device.path}: blkid: {probed.reason}", "see the node's kernel log")

    async def _make(self, fs_type: str, device: Device, formatting: Formatting, lock: int) -> str:
        if fs_type not in FILESYSTEMS:
            raise errors.InvalidArgument(
                "volume_capability.mount.fs_type",
                f"{fs_type!r} is not supported",
                f"use {', '.join(FILESYSTEMS)}",
            )
        self._records.write(formatting)
        made = await run_command(
            self._clock, filesystems.make_command(fs_type, device.path), _MAKE_TIMEOUT, (lock,)
        )
        if made.code != 0:
            await self._forget_untouched(device, formatting)
            raise ToolFailed(
                f"cannot make {fs_type} on {device.path}: {made.reason}", _hint_of(made, fs_type)
            )
        self._records.remove(formatting.volume_id)
        return fs_type

    async def _forget_untouched(self, device: Device, formatting: Formatting) -> None:
        """After an mkfs that failed before its first write there is nothing that the record would have to explain."""
        with suppress(errors.CsiError, OSError):  # the failure of mkfs is what is reported
            if await self._disks.is_blank(device):
                self._records.remove(formatting.volume_id)

    async def _check(self, fs_type: str, device: Device, lock: int) -> None:
        command = filesystems.check_command(fs_type, device.path)
        if command is None:
            return
        checked = await run_command(self._clock, command, _CHECK_TIMEOUT, (lock,))
        if checked.code & ~filesystems.FSCK_REPAIRED:
            raise DamagedFilesystem(
                f"{device.path} ({fs_type}) has errors: fsck: {checked.reason}",
                f"make a snapshot of the volume, then run `fsck {device.path}` on the node",
            )

    async def grow(self, mounted: Mount, path: str) -> int:
        """The size of the disk, which the filesystem fills from then on. Raises NotMounted, ToolFailed."""
        device = self._devices.by_number(mounted.device)
        if device is None:
            raise NotMounted(
                f"{path} has {mounted.source} mounted, which is no disk of this node",
                "see mountinfo on the node",
            )
        size = await self._disks.size(device.path)
        superblock = await self._disks.read(device, 0, filesystems.SUPERBLOCK_BYTES)
        command = filesystems.grow_command(mounted.fs_type, device.path, path)
        if (
            mounted.read_only
            or command is None
            or not filesystems.needs_growth(mounted.fs_type, superblock, size)
        ):
            return size
        grown = await run_command(self._clock, command, _GROW_TIMEOUT)
        if grown.code != 0:
            raise ToolFailed(
                f"cannot grow {mounted.fs_type} at {path} to {size} bytes: {command[0]}: {grown.reason}",
                "the driver's container has to be privileged (CAP_SYS_RESOURCE)",
            )
        return size

    async def _mount(self, device: Device, path: str, fs_type: str, options: MountOptions) -> None:
        own = (text for text in (options.data, *filesystems.OWN_OPTIONS.get(fs_type, ())) if text)
        data = ",".join(dict.fromkeys(own))

        def mount() -> None:
            with paths.opened(path) as place:
                syscalls.mount(device.path, place, fs_type, options.flags, data)

        try:
            await self._calls.run(f"mount at {path}", SYSCALL_TIMEOUT, mount)
        except OSError as error:
            raise _mount_error(error, device, path, fs_type, options) from error

    def _boot(self) -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _expect_type(volume: VolumeDevice, device: Device, content: filesystems.Content, wanted: str) -> None:
    if content.fs_type in FILESYSTEMS and not content.partition_table and wanted in ("", content.fs_type):
        return
    raise ForeignFilesystem(
        f"volume {volume.volume_id}: disk {device.path} holds {content.described}, wanted is "
        f"{wanted or ' or '.join(FILESYSTEMS)}; it is not formatted",
        _WIPE_HINT,
    )


def _hint_of(made: Finished, fs_type: str) -> str:
    if fs_type == "xfs" and "300" in made.output:
        return "XFS needs a volume of at least 300 MiB"
    return "see the node's kernel log for the disk"


def _mount_error(
    error: OSError, device: Device, path: str, fs_type: str, options: MountOptions
) -> errors.CsiError:
    what = f"cannot mount {device.path} ({fs_type}) at {path}: {error.strerror}"
    match error.errno:
        case errno.EBUSY:
            return DeviceBusy(what, "the device is in use on the node in another way: see mountinfo")
        case errno.EINVAL if options.data:
            return errors.InvalidArgument(
                "volume_capability.mount.mount_flags",
                f"{options.data!r}: {what}",
                "see the node's kernel log",
            )
        case errno.EINVAL | errno.EUCLEAN | errno.EIO:
            return DamagedFilesystem(what, "see the node's kernel log; make a snapshot before any repair")
        case errno.ENODEV:
            return ToolFailed(
                what, f"the node's kernel has no {fs_type}: load its module or use another fsType"
            )
    return ToolFailed(what, "see the node's kernel log")
