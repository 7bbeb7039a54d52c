"""mount(2), umount2(2), and what block devices answer. All raise OSError with the kernel's error number, and may block."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

UMOUNT_NOFOLLOW = 8
_BLKROSET, _BLKROGET = 0x125D, 0x125E
_INT = struct.Struct("i")


def mount(source: str, target: str, fs_type: str, flags: int, data: str = "") -> None:
    """mount(2). A `target` of the form /proc/self/fd/N is what the descriptor was opened on, whatever was renamed since."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        fs_type.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _raise_for(result, target)


def unmount(target: str) -> None:
    """umount2(2) of the mount that was made last at `target`, never of what a symbolic link leads to."""
    libc = ctypes.CDLL(None, use_errno=True)
    _raise_for(libc.umount2(os.fsencode(target), UMOUNT_NOFOLLOW), target)


def _raise_for(result: int, target: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def device_size(device: str) -> int:
    """The size of a block device in bytes."""
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def read_device(device: str, offset: int, size: int) -> bytes:
    """Bytes of a block device, up to its end; a short read is continued, so that an error never looks like the end."""
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces, left = [], min(size, os.lseek(descriptor, 0, os.SEEK_END) - offset)
        while left > 0:
            piece = os.pread(descriptor, left, offset)
            if not piece:
                raise OSError(errno.EIO, f"it ends {left} bytes early", device)
            pieces.append(piece)
            offset, left = offset + len(piece), left - len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def set_device_read_only(descriptor: int, read_only: bool) -> None:
    """Whether nothing can write to the block device, at whatever path; a disk that is read-only by itself stays so."""
    (found,) = _INT.unpack(fcntl.ioctl(descriptor, _BLKROGET, _INT.pack(0)))
    if bool(found) != read_only:
        fcntl.ioctl(descriptor, _BLKROSET, _INT.pack(read_only))
