"""The port Mounts: how the node service brings a volume into a pod and takes it out again.

Every verb may be repeated, and continues from what exists: a mount that is there is not made twice. A verb that raises
leaves the data on the volume as it was. Of two calls for the same volume the caller lets one run at a time. Paths are
absolute and normalized; none of their last components may be a symbolic link.

Adapters: `linux` for nodes, and a double in memory for tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from windrow.csi import errors

# The filesystems that can be made. The first is that of a request that names none, where the device is blank.
FILESYSTEMS = ("ext4", "ext3", "xfs")


class DeviceNotFound(errors.NotFound):
    """No disk of this node is the volume's: it is not attached, or the node has not recognised it yet."""


class DeviceMismatch(errors.FailedPrecondition):
    """A disk has the name of the volume and is another one, or several claim to be it. Nothing was read from it."""


class DeviceBusy(errors.Aborted):
    """Another program works on the device, as an mkfs of an earlier call or udev; or a mount point is in use."""


class ForeignFilesystem(errors.FailedPrecondition):
    """The device holds something else than the filesystem that was asked for. It is never formatted."""


class DamagedFilesystem(errors.FailedPrecondition):
    """The filesystem has errors that are not repaired without a person."""


class MountConflict(errors.AlreadyExists):
    """Something else is mounted at the path, or the same volume in another way."""


class PublishedElsewhere(errors.FailedPrecondition):
    """The volume is mounted elsewhere on this node: for one pod alone, or so that its disk would not be free after unstaging."""


class UnsafePath(errors.FailedPrecondition):
    """The path leads through a symbolic link that an ordinary user could have made, or ends in one; or in something that
    is neither empty nor ours."""


class NotMounted(errors.NotFound):
    """Nothing is mounted at the path."""


class NotAnswering(errors.Unavailable):
    """A filesystem did not answer in time, or the call before still waits for it."""


class ToolFailed(errors.Internal):
    """A program or a system call failed in a way that has no better name."""


@dataclass(frozen=True, slots=True)
class VolumeDevice:
    """By what the disk of a volume is recognised.

    With a `serial`, by that alone. Without one the volume was attached by the Go driver, which sets none; then the disk's
    name in /dev/disk/by-id has to hold the whole `volume_id`, and only ids of the form `pvc-<uuid>` are looked for, since
    no other disk can hold such a name by chance. A disk smaller than `size` bytes (0: unknown) is not the volume's.
    """

    volume_id: str
    serial: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class NetworkShare:
    """By what a shared volume is reached: the address of its NFS server, what that exports, and options as in fstab."""

    volume_id: str
    server: str
    export: str
    options: str


@dataclass(frozen=True, slots=True)
class FilesystemMount:
    """How a filesystem is to be mounted.

    `fs_type`: one of FILESYSTEMS; "" for the one that is there, and the first of them on a blank device. `flags` as in
    fstab.
    """

    fs_type: str = ""
    flags: tuple[str, ...] = ()
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    total: int
    available: int
    used: int


@dataclass(frozen=True, slots=True)
class VolumeStats:
    """`capacity` in bytes. `inodes` is None for a block device. `problem` says what is wrong with the volume, or ""."""

    capacity: Usage
    inodes: Usage | None = None
    problem: str = ""


class Mounts(Protocol):
    async def find(self, volume: VolumeDevice) -> str:
        """The path of the volume's disk, once the node has recognised it; waits a bounded time for that.

        Raises DeviceNotFound, DeviceMismatch.
        """
        ...

    async def stage(self, volume: VolumeDevice, path: str, mount: FilesystemMount) -> None:
        """Mount the volume's filesystem at `path`, and grow it to the size of its disk.

        A filesystem is made only where the disk is proven blank and is to be mounted writable, and nothing is mounted while
        pods have the disk as a block device: PublishedElsewhere. A clean check precedes a
        writable mount of ext3 and ext4. Raises DeviceNotFound, DeviceMismatch, DeviceBusy, ForeignFilesystem,
        DamagedFilesystem, MountConflict, UnsafePath, InvalidArgument for flags, ToolFailed.
        """
        ...

    async def stage_share(self, share: NetworkShare, path: str, mount: FilesystemMount) -> None:
        """Mount the shared volume at `path`; `fs_type` has no meaning for it.

        What is mounted there from an address that the server no longer has is mounted anew, where no pod has it. Raises
        InvalidArgument for the share and for flags, MountConflict, PublishedElsewhere, UnsafePath, ToolFailed.
        """
        ...

    async def publish_share(
        self, share: NetworkShare, staging: str, target: str, mount: FilesystemMount, *, read_only: bool
    ) -> None:
        """As `publish`, of a shared volume. Raises NotAnswering where its server does not answer."""
        ...

    async def unstage(self, path: str) -> None:
        """Unmount `path`; nothing mounted there, or no such path, is the aim. The directory stays: it is the caller's.

        Raises PublishedElsewhere while pods have the volume, DeviceBusy, UnsafePath.
        """
        ...

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
        """Bind-mount what is mounted at `staging` at `target`, a directory made here.

        Where nothing is staged, as for a volume that the Go driver published, it is staged first: see `stage`. Raises what
        that does, MountConflict where `target` has a read-only mount and a writable one was asked for, and
        PublishedElsewhere where it is to be the only target and is not.
        """
        ...

    async def publish_block(
        self, volume: VolumeDevice, target: str, *, read_only: bool, exclusive: bool = False
    ) -> None:
        """Bind-mount the volume's block device at `target`, a file made here, once.

        The device is writable for all its targets or for none: MountConflict where another target has it in the other mode,
        and PublishedElsewhere where it is to be read-only and its filesystem is mounted. Raises DeviceNotFound, DeviceMismatch, MountConflict, PublishedElsewhere, UnsafePath, ToolFailed.
        """
        ...

    async def unpublish(self, target: str) -> None:
        """Unmount all that is mounted at `target`, and remove the empty directory or file; no such path is the aim.

        Takes what the Go driver mounted, too, also several mounts on one another. Never removes content. Raises DeviceBusy,
        UnsafePath.
        """
        ...

    async def grow(self, path: str) -> int:
        """Grow the filesystem that is mounted at `path` to the size of its disk; the size of the disk in bytes.

        Does nothing where it has that size, is mounted read-only, or `path` is a block device. Raises NotMounted,
        ToolFailed.
        """
        ...

    async def stats(self, path: str) -> VolumeStats:
        """How full the volume at `path` is. Raises NotMounted; NotAnswering within seconds where its storage hangs."""
        ...
