"""What is mounted on the node: read from the kernel, bind-mounted, and unmounted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from windrow.csi.mounts import paths, syscalls
from windrow.csi.mounts.linux.kernel import KernelCalls
from windrow.csi.mounts.mountinfo import Mount, find_mount, parse_mountinfo
from windrow.csi.mounts.options import MS_BIND, MS_RDONLY, MS_REMOUNT, MountOptions, bind_flags
from windrow.csi.mounts.port import (
    DamagedFilesystem,
    DeviceBusy,
    MountConflict,
    NotMounted,
    PublishedElsewhere,
    UnsafePath,
)

_MAX_STACKED = 64


class MountTable:
    """`share_type` is the filesystem of shared volumes."""

    def __init__(self, calls: KernelCalls, share_type: str) -> None:
        self._calls = calls
        self._share_type = share_type
        self._paths: set[str] = set()

    def read(self) -> list[Mount]:
        return parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())

    def get(self, path: str) -> Mount:
        """Raises NotMounted."""
        mounted = find_mount(self.read(), path)
        if mounted is None:
            raise NotMounted(f"nothing is mounted at {path}", "stage and publish the volume first")
        return mounted

    def is_share(self, mounted: Mount) -> bool:
        return mounted.fs_type.startswith(self._share_type)

    @contextmanager
    def claimed(self, path: str) -> Iterator[None]:
        """Calls for other volumes at the same path wait for this one: each would find nothing mounted. Raises DeviceBusy."""
        if path in self._paths:
            raise DeviceBusy(f"{path}: a call for another volume works there", "repeat the same call")
        self._paths.add(path)
        try:
            yield
        finally:
            self._paths.discard(path)

    async def bind(self, source: str, target: str, staged: Mount | None, *, read_only: bool) -> None:
        def bind() -> None:
            with paths.opened(target) as place:
                syscalls.mount(source, place, "", MS_BIND)

        await self._calls.change(f"bind mount at {target}", bind)
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

        await self._calls.change(f"remount of {target}", remount)

    async def settle_mode(self, target: str, mounted: Mount, *, read_only: bool) -> None:
        """What is mounted at the target becomes read-only; it never becomes writable."""
        if "ro" in mounted.options and not read_only:
            raise MountConflict(f"{target} is mounted read-only", "unpublish the volume there first")
        if read_only and "ro" not in mounted.options:
            await self._make_read_only(target, mounted)

    async def unmount_all(self, path: str) -> None:
        for _ in range(_MAX_STACKED):
            mounted = find_mount(self.read(), path)
            if mounted is None:
                return
            if not (_is_volume(path, mounted) or self.is_share(mounted)):
                raise UnsafePath(
                    f"{path} has {mounted.fs_type} mounted, which is no volume",
                    "unmount it on the node, if it may go",
                )
            await self._calls.change(f"unmount of {path}", lambda: syscalls.unmount(path))
        raise DeviceBusy(f"{path} still has mounts after {_MAX_STACKED} were taken away", "repeat the call")


def _is_volume(path: str, mounted: Mount) -> bool:
    """Whether it can be what this driver or the Go driver mounted; filesystems that are on no disk have the major number 0."""
    return mounted.device[0] != 0 or mounted.fs_type.startswith("nfs") or is_block(path, mounted)


def is_block(path: str, mounted: Mount) -> bool:
    # Only a mount of the nodes of devices is asked; a filesystem that hangs would not answer.
    return mounted.fs_type in ("devtmpfs", "tmpfs") and stat.S_ISBLK(os.lstat(path).st_mode)


def expect_nowhere_else(what: str, mounts: Sequence[Mount], *places: str) -> None:
    """Raises PublishedElsewhere."""
    # The chart of the Go driver shows the node's files at a second place, where each mount appears again.
    others = sorted(one.path for one in mounts if not one.path.endswith(places))
    if others:
        raise PublishedElsewhere(
            f"{what} is mounted at {', '.join(others[:3])}",
            "let kubelet unpublish it there first, or unmount it on the node",
        )


def expect_mode(mounted: Mount, options: MountOptions, path: str) -> None:
    """Raises DamagedFilesystem, MountConflict."""
    read_only = bool(options.flags & MS_RDONLY)
    if problem := problem_of(mounted):
        raise DamagedFilesystem(
            f"{path}: {problem}",
            "end the pods that use the volume, so that it is unstaged, checked and staged again",
        )
    if mounted.read_only != read_only:
        found = "read-only" if mounted.read_only else "writable"
        raise MountConflict(f"{path} is mounted {found}, which was not asked for", "unstage the volume first")


def problem_of(mounted: Mount) -> str:
    """What is wrong with it; "" for nothing."""
    if mounted.filesystem_read_only and "ro" not in mounted.options:
        return "the kernel has made the filesystem read-only after an error"
    return ""
