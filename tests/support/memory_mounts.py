"""The port Mounts in memory: disks that are attached by the test, filesystems with files, mounts that are stacked.

Directories and files at the targets are real, since callers look for them. It refuses what a node refuses: formatting a disk
that holds something, a path that is a link, another mount than the one asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from windrow.csi.errors import InvalidArgument
from windrow.csi.mounts.options import MS_RDONLY, parse_mount_options
from windrow.csi.mounts.paths import ensure_directory, ensure_file, remove_empty, resolve
from windrow.csi.mounts.port import (
    FILESYSTEMS,
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
from windrow.csi.mounts.shares import check_share, mount_command, source_of

INODES = 65536


@dataclass(slots=True)
class MemoryDisk:
    """`content` is the type of its filesystem, anything else that is found on it, or "" for nothing."""

    serial: str
    size: int
    content: str = ""
    filesystem_size: int = 0
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryMount:
    disk: MemoryDisk
    read_only: bool
    block: bool = False
    source: str = ""


def _do_nothing(_verb: str, _path: str) -> None:
    pass


class MemoryMounts:
    """`before` is called with each verb and its path or volume, and may raise what the node would."""

    def __init__(self, before: Callable[[str, str], None] = _do_nothing) -> None:
        self.disks: dict[str, MemoryDisk] = {}  # by name
        self.mounts: dict[str, list[MemoryMount]] = {}
        self.exports: dict[str, MemoryDisk] = {}  # by server and what it exports
        self._before = before

    def attach(self, volume: VolumeDevice, size: int, content: str = "") -> MemoryDisk:
        """The disk of the volume appears on the node; for one without a serial as the Go driver attaches it."""
        name = volume.serial or volume.volume_id
        disk = MemoryDisk(volume.serial, size, content, size if content in FILESYSTEMS else 0)
        return self.disks.setdefault(name, disk)

    def detach(self, volume: VolumeDevice) -> None:
        """The disk is gone, with what was on it; may be repeated."""
        self.disks.pop(volume.serial or volume.volume_id, None)

    def serve(self, share: NetworkShare) -> MemoryDisk:
        """The server of a shared volume answers; it may move to another address."""
        for source in [one for one in self.exports if one.endswith(f":{share.export}")]:
            moved = self.exports.pop(source)
            return self.exports.setdefault(source_of(share), moved)
        return self.exports.setdefault(source_of(share), MemoryDisk("", 1 << 30, "nfs", 1 << 30))

    def top(self, path: str) -> MemoryMount | None:
        """What is seen at the path."""
        return next(reversed(self.mounts.get(path, [])), None)

    async def find(self, volume: VolumeDevice) -> str:
        self._before("find", volume.volume_id)
        self._find(volume)
        return f"/dev/disk/by-id/{volume.serial or volume.volume_id}"

    async def stage(self, volume: VolumeDevice, path: str, mount: FilesystemMount) -> None:
        self._before("stage", path)
        path = resolve(path)
        read_only = bool(parse_mount_options(mount.flags).flags & MS_RDONLY) or mount.read_only
        disk, mounted = self._find(volume), self.top(path)
        if mounted is None:
            _refuse_link(path)
            ensure_directory(path)
            _prepare(disk, mount.fs_type, read_only)
            mounted = MemoryMount(disk, read_only)
            self.mounts[path] = [mounted]
        if mounted.disk is not disk or mounted.read_only != read_only:
            raise MountConflict(f"{path} has something else mounted", "unmount it")
        if not read_only:
            disk.filesystem_size = disk.size

    async def stage_share(self, share: NetworkShare, path: str, mount: FilesystemMount) -> None:
        self._before("stage_share", path)
        check_share(share)
        mount_command(share, path, mount, "nfs")
        path, source = resolve(path), source_of(share)
        read_only = bool(parse_mount_options(mount.flags).flags & MS_RDONLY) or mount.read_only
        mounted = self.top(path)
        if mounted is not None and mounted.source.endswith(f":{share.export}") and mounted.source != source:
            self._expect_nowhere_else(mounted.disk, path)
            del self.mounts[path]
            mounted = None
        if mounted is None:
            _refuse_link(path)
            ensure_directory(path)
            if source not in self.exports:
                raise ToolFailed(f"cannot mount {source}", "start the server")
            mounted = MemoryMount(self.exports[source], read_only, source=source)
            self.mounts[path] = [mounted]
        if mounted.source != source or mounted.read_only != read_only:
            raise MountConflict(f"{path} has something else mounted", "unmount it")

    async def publish_share(
        self, share: NetworkShare, staging: str, target: str, mount: FilesystemMount, *, read_only: bool
    ) -> None:
        self._before("publish_share", target)
        await self.stage_share(share, staging, mount)
        staged = self.mounts[resolve(staging)][-1]
        published = replace(staged, read_only=read_only or staged.read_only)
        self._bind(resolve(target), published, ensure_directory)

    async def unstage(self, path: str) -> None:
        self._before("unstage", path)
        path = resolve(path)
        mounted = self.top(path)
        if mounted is None:
            return
        self._expect_nowhere_else(mounted.disk, path)
        del self.mounts[path]

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
        self._before("publish", target)
        await self.stage(volume, staging, mount)
        staged = self.mounts[resolve(staging)][-1]
        if exclusive:
            self._expect_nowhere_else(staged.disk, resolve(staging), resolve(target))
        self._bind(
            resolve(target), replace(staged, read_only=read_only or staged.read_only), ensure_directory
        )

    async def publish_block(
        self, volume: VolumeDevice, target: str, *, read_only: bool, exclusive: bool = False
    ) -> None:
        self._before("publish_block", target)
        disk = self._find(volume)
        if exclusive:
            self._expect_nowhere_else(disk, resolve(target))
        self._bind(resolve(target), MemoryMount(disk, read_only, block=True), ensure_file)

    async def unpublish(self, target: str) -> None:
        self._before("unpublish", target)
        target = resolve(target)
        self.mounts.pop(target, None)
        remove_empty(target)

    async def grow(self, path: str) -> int:
        self._before("grow", path)
        mounted = self._get(path)
        if not (mounted.read_only or mounted.block):
            mounted.disk.filesystem_size = mounted.disk.size
        return mounted.disk.size

    async def stats(self, path: str) -> VolumeStats:
        self._before("stats", path)
        mounted = self._get(path)
        if mounted.block:
            return VolumeStats(Usage(mounted.disk.size, 0, mounted.disk.size))
        used = sum(len(text) for text in mounted.disk.files.values())
        total, inodes = mounted.disk.filesystem_size, len(mounted.disk.files)
        return VolumeStats(Usage(total, total - used, used), Usage(INODES, INODES - inodes, inodes))

    def _find(self, volume: VolumeDevice) -> MemoryDisk:
        disk = self.disks.get(volume.serial or volume.volume_id)
        if disk is None or disk.serial != volume.serial:
            raise DeviceNotFound(f"volume {volume.volume_id}: no disk on this node", "attach it")
        if disk.size < volume.size:
            raise DeviceMismatch(f"volume {volume.volume_id}: its disk is smaller", "attach it again")
        return disk

    def _bind(self, target: str, wanted: MemoryMount, ensure: Callable[[str], None]) -> None:
        mounted = self.top(target)
        if mounted is None:
            _refuse_link(target)
            ensure(target)
        elif (mounted.disk, mounted.block) != (wanted.disk, wanted.block):
            raise MountConflict(f"{target} has something else mounted", "unmount it")
        elif mounted.read_only and not wanted.read_only:
            raise MountConflict(f"{target} is mounted read-only", "unpublish it")
        self.mounts[target] = [wanted]

    def _expect_nowhere_else(self, disk: MemoryDisk, *places: str) -> None:
        others = [
            path for path, stack in self.mounts.items() if path not in places and stack[-1].disk is disk
        ]
        if others:
            raise PublishedElsewhere(f"the volume is mounted at {others[0]}", "unpublish it there")

    def _get(self, path: str) -> MemoryMount:
        mounted = self.top(resolve(path))
        if mounted is None:
            raise NotMounted(f"nothing is mounted at {path}", "publish the volume")
        return mounted


def _refuse_link(path: str) -> None:
    if os.path.islink(path):
        raise UnsafePath(f"{path} is a symbolic link", "remove it")


def _prepare(disk: MemoryDisk, wanted: str, read_only: bool) -> None:
    if disk.content == "" and not read_only:
        if wanted not in ("", *FILESYSTEMS):
            raise InvalidArgument("volume_capability.mount.fs_type", f"{wanted!r} is not supported")
        disk.content = wanted or FILESYSTEMS[0]
    if disk.content not in FILESYSTEMS or wanted not in ("", disk.content):
        raise ForeignFilesystem(f"the disk holds {disk.content or 'nothing'}", "wipe it")
