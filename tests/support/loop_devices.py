"""Block devices made of files, which the kernel takes back when their process ends (loop(4)). Needs root."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_SET_CAPACITY = 0x4C07
_AUTOCLEAR = 4
_BLKROSET = 0x125D
# loop_config: the file, a block size, loop_info64 (whose flags are at byte 52), and room.
_CONFIG = struct.Struct("=II 52xI 176x 64x")
_ATTEMPTS = 50


class LoopDevice:
    """A sparse file of `size` bytes, or a file that exists, as a block device.

    It vanishes when it is closed and mounted nowhere.
    """

    def __init__(self, file: Path, size: int | None) -> None:
        self.file = file
        if size is not None:
            with file.open("wb") as made:
                made.truncate(size)
        self.path, self._descriptor = _attach(file)

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def resize(self, size: int) -> None:
        os.truncate(self.file, size)
        fcntl.ioctl(self._descriptor, _SET_CAPACITY)

    def close(self) -> None:
        # The kernel keeps this flag with the number, for the next device that has it.
        fcntl.ioctl(self._descriptor, _BLKROSET, struct.pack("i", 0))
        os.close(self._descriptor)


def _attach(file: Path) -> tuple[str, int]:
    backing = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):  # another process may take the free one first
            path = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(descriptor, _CONFIGURE, _CONFIG.pack(backing, 0, _AUTOCLEAR))
                return path, descriptor
            except OSError:
                os.close(descriptor)
        raise AssertionError("no loop device is free")
    finally:
        os.close(control)
        os.close(backing)
