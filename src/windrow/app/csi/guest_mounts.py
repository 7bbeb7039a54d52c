"""The port Mounts on a simulated machine: its disks are the emulator's, and what is mounted is a table.

It refuses what a node refuses: a disk that is not there, another filesystem than the one asked for, an export that no server
has, a path that has something else. No path is made on this computer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from windrow.core.clock import Clock, sleep
from windrow.core.wait import Stopped, run_until
from windrow.csi.errors import InvalidArgument
from windrow.csi.mounts.options import MS_RDONLY, parse_mount_options
from windrow.csi.mounts.port import (
    FILESYSTEMS,
    DeviceMismatch,
    DeviceNotFound,
    FilesystemMount,
    ForeignFilesystem,
    MountConflict,
    NetworkShare,
    NotAnswering,
    NotMounted,
    PublishedElsewhere,
    ToolFailed,
    Usage,
    VolumeDevice,
    VolumeStats,
)
from windrow.csi.mounts.shares import check_share, mount_command, source_of
from windrow.emulator.guest_os.hardware import BlockDevice, Disk
from windrow.emulator.guest_os.storage import MountedVolume, NodeStorage
from windrow.emulator.storage.nfs import MountRefused, NfsServers

# How long a node waits for udev to show a disk.
FIND_TIMEOUT = timedelta(seconds=10)
# In `Disk.state`: the type of its filesystem, and how large that is.
FILESYSTEM, FILESYSTEM_BYTES = "filesystem", "filesystem bytes"
INODES = 65536


class GuestMounts:
    def __init__(self, storage: NodeStorage, servers: NfsServers, clock: Clock) -> None:
        self._storage, self._servers, self._clock = storage, servers, clock
        self._mounts = storage.mounts
        self._sizes: dict[str, Callable[[], int]] = {}  # of exports, by their source

    async def find(self, volume: VolumeDevice) -> str:
        return f"/dev/{(await self._find(volume))[0].name}"

    async def stage(self, volume: VolumeDevice, path: str, mount: FilesystemMount) -> None:
        read_only = bool(parse_mount_options(mount.flags).flags & MS_RDONLY) or mount.read_only
        device, disk = await self._find(volume)
        mounted = self._mounts.find(path)
        if mounted is None:
            self._refuse_block_targets(disk)
            _ensure_filesystem(device, disk, mount.fs_type, read_only=read_only)
            mounted = MountedVolume(disk, read_only)
            self._mounts.mount(path, mounted)
        if mounted.disk is not disk or mounted.read_only != read_only:
            raise MountConflict(f"{path} has something else mounted", "unmount it")
        if not read_only:
            disk.state[FILESYSTEM_BYTES] = device.size_bytes

    async def unstage(self, path: str) -> None:
        mounted = self._mounts.find(path)
        if mounted is not None:
            self._refuse_other_places(mounted.disk, path)
            self._mounts.unmount(path)

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
        staged = self._mounts.find(staging)
        assert staged is not None
        if exclusive:
            self._refuse_other_places(staged.disk, staging, target)
        self._bind(target, replace(staged, read_only=read_only or staged.read_only))

    async def stage_share(self, share: NetworkShare, path: str, mount: FilesystemMount) -> None:
        check_share(share)
        mount_command(share, path, mount, "nfs")
        read_only = bool(parse_mount_options(mount.flags).flags & MS_RDONLY) or mount.read_only
        source, mounted = source_of(share), self._mounts.find(path)
        if mounted is not None and mounted.source.endswith(f":{share.export}") and mounted.source != source:
            self._refuse_other_places(mounted.disk, path)
            self._mounts.unmount(path)
            mounted = None
        if mounted is None:
            mounted = self._mount_share(share, path, read_only=read_only)
        if mounted.source != source or mounted.read_only != read_only:
            raise MountConflict(f"{path} has something else mounted", "unmount it")

    def _mount_share(self, share: NetworkShare, path: str, *, read_only: bool) -> MountedVolume:
        source = source_of(share)
        try:
            export = self._servers.mount(share.server, share.export)
        except MountRefused as error:
            raise ToolFailed(
                f"cannot mount {source} at {path}: {error}",
                "Harvester has to export the volume, and the node a way to this address",
            ) from error

        def answers() -> bool:
            return self._servers.find(share.server, share.export) is not None

        mounted = MountedVolume(export.disk, read_only, source=source, answers=answers)
        self._sizes[source] = export.size
        self._mounts.mount(path, mounted)
        return mounted

    async def publish_share(
        self, share: NetworkShare, staging: str, target: str, mount: FilesystemMount, *, read_only: bool
    ) -> None:
        await self.stage_share(share, staging, mount)
        staged = _expect_answer(staging, self._get(staging))
        self._bind(target, replace(staged, read_only=read_only or staged.read_only))

    async def publish_block(
        self, volume: VolumeDevice, target: str, *, read_only: bool, exclusive: bool = False
    ) -> None:
        _, disk = await self._find(volume)
        if exclusive:
            self._refuse_other_places(disk, target)
        self._bind(target, MountedVolume(disk, read_only, block=True))

    async def unpublish(self, target: str) -> None:
        self._mounts.unmount(target)

    async def grow(self, path: str) -> int:
        mounted = self._get(path)
        size = self._size_of(mounted)
        if not (mounted.read_only or mounted.block or mounted.source):
            mounted.disk.state[FILESYSTEM_BYTES] = size
        return size

    async def stats(self, path: str) -> VolumeStats:
        mounted = _expect_answer(path, self._get(path))
        if mounted.block:
            size = self._size_of(mounted)
            return VolumeStats(Usage(size, 0, size))
        used = sum(len(file.content) for file in mounted.disk.files.values())
        made = int(mounted.disk.state.get(FILESYSTEM_BYTES, 0))
        total, inodes = self._size_of(mounted) if mounted.source else made, len(mounted.disk.files)
        return VolumeStats(Usage(total, total - used, used), Usage(INODES, INODES - inodes, inodes))

    def count_own_disks(self) -> int:
        """How many disks no CSI driver plugged in: those without a serial, as pools have them."""
        return sum(not one.serial for one in self._storage.list_disks())

    # -- disks

    async def _find(self, volume: VolumeDevice) -> tuple[BlockDevice, Disk]:
        """The volume's disk, once the node shows it with its size. Raises DeviceNotFound, DeviceMismatch."""

        def is_there() -> bool:
            return any(
                _is_of(one, volume) and one.size_bytes >= volume.size for one in self._storage.list_disks()
            )

        with suppress(Stopped):
            await run_until(self._storage.changed.wait_for(is_there), sleep(self._clock, FIND_TIMEOUT))
        device = next((one for one in self._storage.list_disks() if _is_of(one, volume)), None)
        if device is None or device.disk is None:
            raise DeviceNotFound(f"volume {volume.volume_id}: no disk on this node", "attach it")
        if device.size_bytes < volume.size:
            raise DeviceMismatch(f"volume {volume.volume_id}: its disk is smaller", "attach it again")
        return device, device.disk

    def _size_of(self, mounted: MountedVolume) -> int:
        if mounted.source:
            return self._sizes[mounted.source]()
        return next((one.size_bytes for one in self._storage.list_disks() if one.disk is mounted.disk), 0)

    # -- mounts

    def _bind(self, target: str, wanted: MountedVolume) -> None:
        mounted = self._mounts.find(target)
        if mounted is not None and (mounted.disk is not wanted.disk or mounted.block != wanted.block):
            raise MountConflict(f"{target} has something else mounted", "unmount it")
        if mounted is not None and mounted.read_only and not wanted.read_only:
            raise MountConflict(f"{target} is mounted read-only", "unpublish it")
        self._mounts.mount(target, wanted)

    def _refuse_block_targets(self, disk: Disk) -> None:
        self._refuse(path for path in self._mounts.paths_of(disk) if self._get(path).block)

    def _refuse_other_places(self, disk: Disk, *own: str) -> None:
        self._refuse(path for path in self._mounts.paths_of(disk) if path not in own)

    def _refuse(self, paths: Iterable[str]) -> None:
        for path in paths:
            raise PublishedElsewhere(f"the volume is mounted at {path}", "unpublish it there")

    def _get(self, path: str) -> MountedVolume:
        mounted = self._mounts.find(path)
        if mounted is None:
            raise NotMounted(f"nothing is mounted at {path}", "publish the volume")
        return mounted


def _expect_answer(path: str, mounted: MountedVolume) -> MountedVolume:
    if not mounted.answers():
        raise NotAnswering(
            f"statfs {path}: {mounted.source} does not answer", "wait until it is exported again"
        )
    return mounted


def _is_of(device: BlockDevice, volume: VolumeDevice) -> bool:
    """By the serial, else as the Go driver's disks are told: by the name of the VM's volume."""
    if volume.serial:
        return device.serial == volume.serial
    return not device.serial and volume.volume_id in device.volume


def _ensure_filesystem(device: BlockDevice, disk: Disk, wanted: str, *, read_only: bool) -> None:
    """Make one on a blank disk. Raises InvalidArgument, ForeignFilesystem."""
    if FILESYSTEM not in disk.state and not disk.files and not read_only:
        if wanted not in ("", *FILESYSTEMS):
            raise InvalidArgument("volume_capability.mount.fs_type", f"{wanted!r} is not supported")
        disk.state[FILESYSTEM] = wanted or FILESYSTEMS[0]
        disk.state[FILESYSTEM_BYTES] = device.size_bytes
    found = str(disk.state.get(FILESYSTEM, ""))
    if found not in FILESYSTEMS or wanted not in ("", found):
        raise ForeignFilesystem(f"/dev/{device.name} holds {found or 'nothing'}", "wipe it")
