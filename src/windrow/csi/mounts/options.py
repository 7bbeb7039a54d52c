"""Mount options as in fstab, translated to the flags and the data of mount(2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windrow.csi import errors
from windrow.csi.mounts.port import FilesystemMount

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_SYNCHRONOUS = 1, 2, 4, 8, 16
MS_REMOUNT, MS_DIRSYNC, MS_NOATIME, MS_NODIRATIME, MS_BIND = 32, 128, 1024, 2048, 4096
MS_RELATIME, MS_STRICTATIME, MS_LAZYTIME = 1 << 21, 1 << 24, 1 << 25

# Each option to the bits that it sets, and those that it clears.
_FLAGS: dict[str, tuple[int, int]] = {
    "defaults": (0, 0),
    "ro": (MS_RDONLY, 0),
    "rw": (0, MS_RDONLY),
    "nosuid": (MS_NOSUID, 0),
    "suid": (0, MS_NOSUID),
    "nodev": (MS_NODEV, 0),
    "dev": (0, MS_NODEV),
    "noexec": (MS_NOEXEC, 0),
    "exec": (0, MS_NOEXEC),
    "sync": (MS_SYNCHRONOUS, 0),
    "async": (0, MS_SYNCHRONOUS),
    "dirsync": (MS_DIRSYNC, 0),
    "noatime": (MS_NOATIME, MS_RELATIME | MS_STRICTATIME),
    "atime": (0, MS_NOATIME),
    "nodiratime": (MS_NODIRATIME, 0),
    "diratime": (0, MS_NODIRATIME),
    "relatime": (MS_RELATIME, MS_NOATIME | MS_STRICTATIME),
    "norelatime": (0, MS_RELATIME),
    "strictatime": (MS_STRICTATIME, MS_NOATIME | MS_RELATIME),
    "nostrictatime": (0, MS_STRICTATIME),
    "lazytime": (MS_LAZYTIME, 0),
    "nolazytime": (0, MS_LAZYTIME),
}
# Meant for mount(8) and its callers; the kernel does not know them.
_FOR_PROGRAMS = frozenset(
    {"auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "owner", "group"}
)
# They ask for another act than mounting the volume.
_REFUSED = frozenset({"bind", "rbind", "remount", "move", "loop", "helper", "offset", "sizelimit"})
# The kernel takes one page.
MAX_DATA = 4000
FIELD = "volume_capability.mount.mount_flags"


@dataclass(frozen=True, slots=True)
class MountOptions:
    flags: int
    data: str


def options_of(mount: FilesystemMount) -> MountOptions:
    """Those that a filesystem is to be mounted with. Raises InvalidArgument."""
    return parse_mount_options((*mount.flags, "ro") if mount.read_only else mount.flags)


def parse_mount_options(options: Iterable[str]) -> MountOptions:
    """Options, each one or several with commas between, where a later one prevails. What mount(2) knows no bit for is
    data for the filesystem. Raises InvalidArgument."""
    flags, data = 0, []
    for option in (part.strip() for text in options for part in text.split(",")):
        name = option.partition("=")[0]
        if name in _REFUSED or "\0" in option:
            raise errors.InvalidArgument(
                FIELD, f"{option!r} cannot be an option of a volume's mount", "leave it out"
            )
        if option in _FLAGS:
            sets, clears = _FLAGS[option]
            flags = flags & ~clears | sets
        elif option and name not in _FOR_PROGRAMS and not name.startswith(("x-", "X-", "comment")):
            data.append(option)
    text = ",".join(dict.fromkeys(data))
    if len(text.encode()) > MAX_DATA:
        raise errors.InvalidArgument(FIELD, f"longer than {MAX_DATA} bytes", "leave out some")
    return MountOptions(flags, text)


# The options of a mount (not of its filesystem) as mountinfo prints them.
_PER_MOUNT = ("nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime")


def bind_flags(options: Iterable[str]) -> int:
    """The bits that a remount of a bind mount has to repeat, lest it clears them: from the options that mountinfo shows."""
    return parse_mount_options(option for option in options if option in _PER_MOUNT).flags
