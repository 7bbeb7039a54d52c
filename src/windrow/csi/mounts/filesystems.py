"""What is on a block device, and how filesystems are made, checked and grown: commands and readings, nothing is run here.

`blkid -p` decides whether a device is blank: its exit code 2, as for Kubernetes' own mounts. Whatever type it names, of a
filesystem or of a partition table, is never formatted. Neither is a device of which it names nothing and that is not zero
wherever it is sampled: something is there that blkid does not know, such as a database of a volume in block mode, or a
filesystem that has lost its beginning.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

MIB = 1 << 20
# What has to be zero for a device to count as blank: its beginning, its end, and samples between. ext keeps copies of its
# superblock at these groups of 128 MiB; the parts of XFS, four or more of one size, begin at even samples.
_BLANK_BEGINNING, _BLANK_END, _BLANK_SAMPLE = 16 * MIB, MIB, 64 << 10
_EXT_GROUP = 128 * MIB
_EXT_COPIES = (1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343)
_EVEN_SAMPLES = 64
_BLOCK = 4096
_EXT_MAGIC = 0xEF53
_EXT_SUPERBLOCK = 1024
_EXT_64BIT = 0x80
# Byte 126 of a superblock of XFS is 1 from the first write of mkfs to its last; such a filesystem is never mounted.
_XFS_IN_PROGRESS = 126
# Enough for the superblocks of each of FILESYSTEMS.
SUPERBLOCK_BYTES = 4096

# Nothing is discarded: a blank volume has nothing to give back, and it takes long on large ones.
_MAKE: Mapping[str, tuple[str, ...]] = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-m0", "-E", "nodiscard"),
    "ext3": ("mkfs.ext3", "-q", "-F", "-m0", "-E", "nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
}
# A snapshot that was restored has the UUID of its source, and XFS refuses a second one without this.
OWN_OPTIONS: Mapping[str, tuple[str, ...]] = {"xfs": ("nouuid",)}
# fsck's exit codes are bits: 1 repaired, 2 repaired and wants a reboot, 4 errors are left, 8 and more it could not work.
FSCK_REPAIRED = 3


@dataclass(frozen=True, slots=True)
class Content:
    """What blkid names: the type of a filesystem (or of other known content) and of a partition table."""

    fs_type: str = ""
    partition_table: str = ""

    @property
    def described(self) -> str:
        """In words, for an error."""
        if self.partition_table:
            return f"a partition table ({self.partition_table})"
        return f"a filesystem of type {self.fs_type}" if self.fs_type else "data of an unknown kind"


def probe_command(device: str) -> tuple[str, ...]:
    """blkid on the device itself, without its cache."""
    return ("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device)


def parse_probe(output: str) -> Content:
    """What `probe_command` printed."""
    pairs = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    return Content(pairs.get("TYPE", ""), pairs.get("PTTYPE", ""))


def make_command(fs_type: str, device: str) -> tuple[str, ...]:
    """mkfs for one of FILESYSTEMS."""
    return (*_MAKE[fs_type], device)


def check_command(fs_type: str, device: str) -> tuple[str, ...] | None:
    """The check before a writable mount, which repairs what is safe; None where the mount itself recovers (XFS)."""
    return ("fsck", "-a", device) if fs_type.startswith("ext") else None


def grow_command(fs_type: str, device: str, path: str) -> tuple[str, ...] | None:
    """Grows the mounted filesystem; None for a type that is not known to grow."""
    if fs_type.startswith("ext"):
        return ("resize2fs", device)
    return ("xfs_growfs", "-d", path) if fs_type == "xfs" else None


def blank_regions(size: int) -> list[tuple[int, int]]:
    """What to read of a device of `size` bytes, as offsets and lengths, to tell whether it is blank."""
    copies = [group * _EXT_GROUP for group in _EXT_COPIES]
    even = [size * number // _EVEN_SAMPLES & -_BLOCK for number in range(1, _EVEN_SAMPLES)]
    samples = sorted({offset for offset in copies + even if _BLANK_BEGINNING <= offset < size - _BLANK_END})
    regions = [(0, _BLANK_BEGINNING), *((offset, _BLANK_SAMPLE) for offset in samples)]
    return [*regions, (max(size - _BLANK_END, 0), _BLANK_END)]


def is_unfinished(content: Content, superblock: bytes) -> bool:
    """Whether the device holds an XFS whose mkfs has not ended: no one can have mounted it."""
    if content.fs_type != "xfs" or content.partition_table or len(superblock) <= _XFS_IN_PROGRESS:
        return False
    return superblock.startswith(b"XFSB") and superblock[_XFS_IN_PROGRESS] == 1


def needs_growth(fs_type: str, superblock: bytes, device_size: int) -> bool:
    """Whether the device has room for at least one more block than the filesystem. False where it is not known."""
    blocks, block_size = _extent(fs_type, superblock)
    return block_size > 0 and device_size // block_size > blocks


def _extent(fs_type: str, superblock: bytes) -> tuple[int, int]:
    if len(superblock) < SUPERBLOCK_BYTES:
        return 0, 0
    if fs_type == "xfs" and superblock[:4] == b"XFSB":
        block_size, blocks = struct.unpack_from(">IQ", superblock, 4)
        return blocks, block_size
    (magic,) = struct.unpack_from("<H", superblock, _EXT_SUPERBLOCK + 56)
    if not fs_type.startswith("ext") or magic != _EXT_MAGIC:
        return 0, 0
    (low,) = struct.unpack_from("<I", superblock, _EXT_SUPERBLOCK + 4)
    (log_size,) = struct.unpack_from("<I", superblock, _EXT_SUPERBLOCK + 24)
    (incompatible,) = struct.unpack_from("<I", superblock, _EXT_SUPERBLOCK + 96)
    (high,) = struct.unpack_from("<I", superblock, _EXT_SUPERBLOCK + 0x150)
    blocks = low + ((high << 32) if incompatible & _EXT_64BIT else 0)
    return blocks, 1024 << min(log_size, 6)
