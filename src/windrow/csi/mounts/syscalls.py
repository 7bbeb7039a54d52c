"""mount(2), umount2(2) and the size of a block device. All raise OSError with the kernel's error number, and may block."""

from __future__ import annotations

import ctypes
import os

UMOUNT_NOFOLLOW = 8


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
