"""The adapter of the port Mounts for Linux nodes. It needs root and CAP_SYS_ADMIN.

Two facts hold the rest together. What is mounted is read from the kernel before each act, never remembered; so a verb after
a crash finds what the crash left. And while a disk is examined, formatted or checked its device is locked (flock(2), which
udev respects), and mkfs and fsck inherit the lock: one that survives its driver keeps the next driver away.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from windrow.core.clock import Clock, sleep
from windrow.csi import errors
from windrow.csi.mounts import filesystems, paths, shares, syscalls
from windrow.csi.mounts.commands import BlockingCalls, Finished, run_command
from windrow.csi.mounts.device_events import wait_for_device
from windrow.csi.mounts.devices import Device, DeviceTree
from windrow.csi.mounts.formatting import Formatting, FormattingRecords
from windrow.csi.mounts.mountinfo import Mount, find_mount, parse_mountinfo
from windrow.csi.mounts.options import (
    MS_BIND,
    MS_RDONLY,
    MS_REMOUNT,
    MountOptions,
    bind_flags,
    parse_mount_options,
)
from windrow.csi.mounts.port import (
    FILESYSTEMS,
    DamagedFilesystem,
    DeviceBusy,
    DeviceMismatch,
    DeviceNotFound,
    FilesystemMount,
    ForeignFilesystem,
    MountConflict,
    NetworkShare,
    NotMounted,
    PublishedElsewhere,
    ToolFailed,
    UnsafePath,
    Usage,
    VolumeDevice,
    VolumeStats,
)

DEVICE_TIMEOUT = timedelta(seconds=15)
STATS_TIMEOUT = timedelta(seconds=5)
_PROBE_TIMEOUT = timedelta(seconds=30)
_SYSCALL_TIMEOUT = timedelta(seconds=60)
_MAKE_TIMEOUT = timedelta(minutes=15)
_CHECK_TIMEOUT = timedelta(hours=1)
_GROW_TIMEOUT = timedelta(minutes=15)
# mount.nfs tries for two minutes where the server does not answer.
_SHARE_TIMEOUT = timedelta(minutes=3)
# udev holds the lock for milliseconds.
_LOCK_DELAYS = (0.05, 0.1, 0.2, 0.4, 0.8)
_MAX_STACKED = 64
_BLKID_NOTHING = 2
_BLKID_AMBIGUOUS = 8
_WIPE_HINT = "if the volume holds nothing of value, run `wipefs --all` and `blkdiscard --zeroout` on it; else correct fsType"


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
        self._share_type = share_type
        self._clock = clock
        self._device_timeout = device_timeout
        self._records = FormattingRecords(folder)
        self._devices = devices or DeviceTree()
        self._calls = BlockingCalls(clock)
        self._paths: set[str] = set()

    async def find(self, volume: VolumeDevice) -> str:
        return (await self._find(volume)).path

    async def stage(self, volume: VolumeDevice, path: str, mount: FilesystemMount) -> None:
        options = _options_of(mount)
        path = paths.resolve(path)
        with self._claimed(path):
            await self._stage(volume, path, mount.fs_type, options)

    async def _stage(self, volume: VolumeDevice, path: str, fs_type: str, options: MountOptions) -> None:
        device = await self._find(volume)
        number = _number(device)
        mounted = find_mount(self._mounts(), path)
        if mounted is None:
            paths.ensure_directory(path)
            async with self._opened(volume, device) as lock:
                await self._lock(device, lock)
                await self._set_read_only(device, lock, read_only=False)
                found = await self._prepare(volume, device, fs_type, options, lock)
                await self._mount(device, path, found, options)
            mounted = find_mount(self._mounts(), path)
        if mounted is None or mounted.device != number:
            raise MountConflict(
                f"{path} has {mounted.source if mounted else 'nothing'} mounted, not volume {volume.volume_id}",
                "unmount it on the node",
            )
        self._records.remove(volume.volume_id)
        _expect_mode(mounted, options, path)
        await self._grow(mounted, path)

    @contextmanager
    def _claimed(self, path: str) -> Iterator[None]:
        """Calls for other volumes at the same path wait for this one: each would find nothing mounted. Raises DeviceBusy."""
        if path in self._paths:
            raise DeviceBusy(f"{path}: a call for another volume works there", "repeat the same call")
        self._paths.add(path)
        try:
            yield
        finally:
            self._paths.discard(path)

    async def stage_share(self, share: NetworkShare, path: str, mount: FilesystemMount) -> None:
        shares.check_share(share)
        path = paths.resolve(path)
        command = shares.mount_command(share, path, mount, self._share_type)
        with self._claimed(path):
            await self._stage_share(share, path, _options_of(mount), command)

    async def _stage_share(
        self, share: NetworkShare, path: str, options: MountOptions, command: Sequence[str]
    ) -> None:
        await self._unmount_moved(share, path)
        if find_mount(self._mounts(), path) is None:
            paths.ensure_directory(path)
            paths.refuse_link(path)
            made = await run_command(self._clock, command, _SHARE_TIMEOUT)
            if made.code != 0:
                raise ToolFailed(
                    f"cannot mount {shares.source_of(share)} at {path}: {made.reason}",
                    "the driver's image needs the NFS client (mount.nfs), its pod the network of the node (hostNetwork), and the "
                    "node a way to this address",
                )
        mounted = find_mount(self._mounts(), path)
        if mounted is None or not self._is_share(mounted) or mounted.source != shares.source_of(share):
            raise MountConflict(
                f"{path} has {mounted.source if mounted else 'nothing'} mounted, not {shares.source_of(share)} of volume "
                f"{share.volume_id}",
                "unmount it on the node",
            )
        _expect_mode(mounted, options, path)

    async def _unmount_moved(self, share: NetworkShare, path: str) -> None:
        """Harvester may serve the volume at another address by now; from the old one nothing is read any more."""
        mounts = self._mounts()
        mounted = find_mount(mounts, path)
        if mounted is None or not self._is_share(mounted) or mounted.source == shares.source_of(share):
            return
        if not shares.is_same_export(mounted, share):
            return
        same = [one for one in mounts if one.device == mounted.device]
        _expect_nowhere_else(f"volume {share.volume_id}, served at {share.server} now,", same, path)
        await self._unmount_all(path)

    async def publish_share(
        self, share: NetworkShare, staging: str, target: str, mount: FilesystemMount, *, read_only: bool
    ) -> None:
        await self.stage_share(share, staging, mount)
        staging = paths.resolve(staging)
        await self._calls.read(f"statfs {staging}", STATS_TIMEOUT, lambda: os.statvfs(staging))
        await self._publish(share.volume_id, staging, target, read_only=read_only or mount.read_only)

    def _is_share(self, mounted: Mount) -> bool:
        return mounted.fs_type.startswith(self._share_type)

    async def unstage(self, path: str) -> None:
        path = paths.resolve(path)
        mounts = self._mounts()
        mounted = find_mount(mounts, path)
        if mounted is None:
            return
        _expect_nowhere_else(
            f"the volume staged at {path}", [one for one in mounts if one.device == mounted.device], path
        )
        await self._unmount_all(path)

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

    async def _publish(
        self, volume_id: str, staging: str, target: str, *, read_only: bool, exclusive: bool = False
    ) -> None:
        staging, target = paths.resolve(staging), paths.resolve(target)
        mounts = self._mounts()
        staged, mounted = find_mount(mounts, staging), find_mount(mounts, target)
        if staged is None:
            raise DeviceBusy(f"{staging} was unmounted meanwhile", "repeat the same call")
        if exclusive:
            same = [one for one in mounts if one.device == staged.device]
            _expect_nowhere_else(f"volume {volume_id}", same, staging, target)
        if mounted is None:
            paths.ensure_directory(target)
            with self._claimed(target):
                await self._bind(staging, target, staged, read_only=read_only)
            return
        if (mounted.device, mounted.root) != (staged.device, staged.root):
            raise MountConflict(
                f"{target} has {mounted.source} mounted, not volume {volume_id}",
                "unmount it on the node",
            )
        await self._settle_mode(target, mounted, read_only=read_only or staged.read_only)

    async def publish_block(
        self, volume: VolumeDevice, target: str, *, read_only: bool, exclusive: bool = False
    ) -> None:
        device = await self._find(volume)
        target = paths.resolve(target)
        async with self._opened(volume, device) as descriptor:
            mounts = self._mounts()
            mounted, same = find_mount(mounts, target), _block_mounts(mounts, device)
            if exclusive:
                _expect_nowhere_else(f"volume {volume.volume_id}", same, target)
            _expect_one_mode(volume, same, target, read_only=read_only)
            if mounted is None:
                with self._claimed(target):
                    await self._bind_block(volume, device, target, descriptor, read_only=read_only)
                return
            found = os.lstat(target)
            if not stat.S_ISBLK(found.st_mode) or found.st_rdev != os.fstat(descriptor).st_rdev:
                raise MountConflict(
                    f"{target} has {mounted.source} mounted, not the disk of volume {volume.volume_id}",
                    "unmount it on the node",
                )
            await self._settle_mode(target, mounted, read_only=read_only)
            await self._set_read_only(device, descriptor, read_only=read_only)

    async def _bind_block(
        self, volume: VolumeDevice, device: Device, target: str, descriptor: int, *, read_only: bool
    ) -> None:
        mounts, number = self._mounts(), _number(device)
        if read_only:  # it would be so for a filesystem, too, that is mounted writable
            _expect_nowhere_else(
                f"volume {volume.volume_id}", [one for one in mounts if one.device == number]
            )
        if not _block_mounts(mounts, device):
            await self._lock(device, descriptor)  # an mkfs that outlived its driver has it
        self._records.remove(volume.volume_id)  # from now on others write to the disk
        await self._set_read_only(device, descriptor, read_only=read_only)
        paths.ensure_file(target)
        await self._bind(device.path, target, None, read_only=read_only)

    async def unpublish(self, target: str) -> None:
        target = paths.resolve(target)
        await self._unmount_all(target)
        paths.remove_empty(target)

    async def grow(self, path: str) -> int:
        path = paths.resolve(path)
        mounted = self._get_mount(path)
        if _is_block(path, mounted):
            return await self._size(path)
        return await self._grow(mounted, path)

    async def stats(self, path: str) -> VolumeStats:
        path = paths.resolve(path)
        mounted = self._get_mount(path)
        if _is_block(path, mounted):
            total = await self._size(path)
            return VolumeStats(Usage(total, 0, total))
        found = await self._calls.read(f"statfs {path}", STATS_TIMEOUT, lambda: os.statvfs(path))
        unit = found.f_frsize
        capacity = Usage(
            found.f_blocks * unit, found.f_bavail * unit, (found.f_blocks - found.f_bfree) * unit
        )
        inodes = Usage(found.f_files, found.f_favail, found.f_files - found.f_ffree)
        return VolumeStats(capacity, inodes, _problem(mounted))

    # Devices

    async def _find(self, volume: VolumeDevice) -> Device:
        device = await wait_for_device(self._clock, self._device_timeout, lambda: self._find_now(volume))
        if device is None:
            wanted = (
                f"with serial {volume.serial}"
                if volume.serial
                else "with the volume's name in /dev/disk/by-id"
            )
            raise DeviceNotFound(
                f"volume {volume.volume_id}: no disk {wanted} on this node after {self._device_timeout}",
                "see the volumeStatus of the node's VirtualMachineInstance; the disk may be attached under another serial",
            )
        size = await self._size(device.path)
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

    async def _size(self, path: str) -> int:
        return await self._calls.read(f"size of {path}", _PROBE_TIMEOUT, lambda: syscalls.device_size(path))

    @asynccontextmanager
    async def _opened(self, volume: VolumeDevice, device: Device) -> AsyncIterator[int]:
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

    async def _lock(self, device: Device, descriptor: int) -> None:
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

    async def _set_read_only(self, device: Device, descriptor: int, *, read_only: bool) -> None:
        await self._syscall(
            f"read-only flag of {device.path}", lambda: syscalls.set_device_read_only(descriptor, read_only)
        )

    # Filesystems

    async def _prepare(
        self, volume: VolumeDevice, device: Device, wanted: str, options: MountOptions, lock: int
    ) -> str:
        """The type of the filesystem on the device, after it was made or checked where that is due."""
        number, read_only = _number(device), bool(options.flags & MS_RDONLY)
        published = _block_mounts(self._mounts(), device)
        _expect_nowhere_else(f"the block device of volume {volume.volume_id}", published)
        used = next((one for one in self._mounts() if one.device == number), None)
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
        probed = await run_command(self._clock, filesystems.probe_command(device.path), _PROBE_TIMEOUT)
        beginning = await self._read(device, 0, filesystems.SUPERBLOCK_BYTES)
        content = filesystems.parse_probe(probed.output) if probed.code == 0 else filesystems.Content()
        match probed.code:
            case code if code == _BLKID_NOTHING:
                return content, self._records.has(formatting) or await self._is_blank(device)
            case 0 if filesystems.is_unfinished(content, beginning) and self._records.has(formatting):
                return content, True
            case code if code in (0, _BLKID_AMBIGUOUS):
                self._records.remove(formatting.volume_id)
                return content, False
        raise ToolFailed(f"cannot probe {device.path}: blkid: {probed.reason}", "see the node's kernel log")

    async def _is_blank(self, device: Device) -> bool:
        for offset, length in filesystems.blank_regions(await self._size(device.path)):
            found = await self._read(device, offset, length)
            if found.count(0) != len(found):
                return False
        return True

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
            if await self._is_blank(device):
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

    async def _grow(self, mounted: Mount, path: str) -> int:
        device = self._devices.by_number(mounted.device)
        if device is None:
            raise NotMounted(
                f"{path} has {mounted.source} mounted, which is no disk of this node",
                "see mountinfo on the node",
            )
        size = await self._size(device.path)
        superblock = await self._read(device, 0, filesystems.SUPERBLOCK_BYTES)
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

    async def _read(self, device: Device, offset: int, size: int) -> bytes:
        what = f"read of {device.path}"
        try:
            return await self._calls.run(
                what, _PROBE_TIMEOUT, lambda: syscalls.read_device(device.path, offset, size)
            )
        except OSError as error:
            raise ToolFailed(
                f"{what} at {offset}: {error.strerror}", "see the node's kernel log for the disk"
            ) from error

    # Mounts

    def _mounts(self) -> list[Mount]:
        return parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())

    def _boot(self) -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def _get_mount(self, path: str) -> Mount:
        mounted = find_mount(self._mounts(), path)
        if mounted is None:
            raise NotMounted(f"nothing is mounted at {path}", "stage and publish the volume first")
        return mounted

    async def _mount(self, device: Device, path: str, fs_type: str, options: MountOptions) -> None:
        own = (text for text in (options.data, *filesystems.OWN_OPTIONS.get(fs_type, ())) if text)
        data = ",".join(dict.fromkeys(own))

        def mount() -> None:
            with paths.opened(path) as place:
                syscalls.mount(device.path, place, fs_type, options.flags, data)

        try:
            await self._calls.run(f"mount at {path}", _SYSCALL_TIMEOUT, mount)
        except OSError as error:
            raise _mount_error(error, device, path, fs_type, options) from error

    async def _bind(self, source: str, target: str, staged: Mount | None, *, read_only: bool) -> None:
        def bind() -> None:
            with paths.opened(target) as place:
                syscalls.mount(source, place, "", MS_BIND)

        await self._syscall(f"bind mount at {target}", bind)
        if not read_only:
            return
        try:
            await self._make_read_only(target, staged)
        except BaseException:
            # A pod must not get a writable mount where a read-only one was asked for.
            with suppress(OSError):
                syscalls.unmount(target)
            raise

    async def _make_read_only(self, target: str, mounted: Mount | None) -> None:
        flags = bind_flags(mounted.options if mounted else ())

        def remount() -> None:
            with paths.opened(target) as place:
                syscalls.mount("none", place, "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)

        await self._syscall(f"remount of {target}", remount)

    async def _settle_mode(self, target: str, mounted: Mount, *, read_only: bool) -> None:
        """What is mounted at the target becomes read-only; it never becomes writable."""
        if "ro" in mounted.options and not read_only:
            raise MountConflict(f"{target} is mounted read-only", "unpublish the volume there first")
        if read_only and "ro" not in mounted.options:
            await self._make_read_only(target, mounted)

    async def _unmount_all(self, path: str) -> None:
        for _ in range(_MAX_STACKED):
            mounted = find_mount(self._mounts(), path)
            if mounted is None:
                return
            if not (_is_volume(path, mounted) or self._is_share(mounted)):
                raise UnsafePath(
                    f"{path} has {mounted.fs_type} mounted, which is no volume",
                    "unmount it on the node, if it may go",
                )
            await self._syscall(f"unmount of {path}", lambda: syscalls.unmount(path))
        raise DeviceBusy(f"{path} still has mounts after {_MAX_STACKED} were taken away", "repeat the call")

    async def _syscall(self, what: str, call: Callable[[], None]) -> None:
        try:
            await self._calls.run(what, _SYSCALL_TIMEOUT, call)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise DeviceBusy(
                    f"{what}: in use", "a process on the node has files open there: end it"
                ) from error
            raise ToolFailed(f"{what}: {error.strerror}", "see the node's kernel log") from error


def _number(device: Device) -> tuple[int, int]:
    number = os.stat(device.path).st_rdev
    return os.major(number), os.minor(number)


def _is_volume(path: str, mounted: Mount) -> bool:
    """Whether it can be what this driver or the Go driver mounted; filesystems that are on no disk have the major number 0."""
    return mounted.device[0] != 0 or mounted.fs_type.startswith("nfs") or _is_block(path, mounted)


def _block_mounts(mounts: Sequence[Mount], device: Device) -> list[Mount]:
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


def _is_block(path: str, mounted: Mount) -> bool:
    # Only a mount of the nodes of devices is asked; a filesystem that hangs would not answer.
    return mounted.fs_type in ("devtmpfs", "tmpfs") and stat.S_ISBLK(os.lstat(path).st_mode)


def _expect_nowhere_else(what: str, mounts: Sequence[Mount], *places: str) -> None:
    # The chart of the Go driver shows the node's files at a second place, where each mount appears again.
    others = sorted(one.path for one in mounts if not one.path.endswith(places))
    if others:
        raise PublishedElsewhere(
            f"{what} is mounted at {', '.join(others[:3])}",
            "let kubelet unpublish it there first, or unmount it on the node",
        )


def _options_of(mount: FilesystemMount) -> MountOptions:
    return parse_mount_options((*mount.flags, "ro") if mount.read_only else mount.flags)


def _expect_mode(mounted: Mount, options: MountOptions, path: str) -> None:
    read_only = bool(options.flags & MS_RDONLY)
    if problem := _problem(mounted):
        raise DamagedFilesystem(
            f"{path}: {problem}",
            "end the pods that use the volume, so that it is unstaged, checked and staged again",
        )
    if mounted.read_only != read_only:
        found = "read-only" if mounted.read_only else "writable"
        raise MountConflict(f"{path} is mounted {found}, which was not asked for", "unstage the volume first")


def _problem(mounted: Mount) -> str:
    if mounted.filesystem_read_only and "ro" not in mounted.options:
        return "the kernel has made the filesystem read-only after an error"
    return ""


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
