"""Files that only their owner may read, that other processes may read at any time, and that survive a loss of power."""

from __future__ import annotations

import os
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


def read_text(path: str) -> str:
    return Path(path).read_text()


def write_private(path: Path, content: str | bytes) -> None:
    """Write the whole file or nothing, durably; only its owner may read it (0600). Raises OSError.

    The mode holds from creation on, whatever the umask is, and also where a file or link of the temporary name exists.
    """
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = open_private(temporary, os.O_WRONLY | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk: leave no part of a secret behind
        raise
    sync_directory(path.parent)


def open_private(path: str | Path, flags: int) -> int:
    """A descriptor of the file, made with mode 0600 where there is none; never of what a link leads to. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), PRIVATE_FILE)
    os.fchmod(descriptor, PRIVATE_FILE)
    return descriptor


def make_private_directory(path: Path) -> None:
    """Make the directory and each one above it that does not exist, all 0700 (`mkdir` does so for the last one only)."""
    if not path.parent.exists():
        make_private_directory(path.parent)
    path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
