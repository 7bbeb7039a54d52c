"""Files that other processes may read at any time, and that survive a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


def read_text(path: str) -> str:
    return Path(path).read_text()


def write_private(path: Path, content: str | bytes) -> None:
    """Write the whole file or nothing, durably; only its owner may read it (0600). Raises OSError."""
    temporary = path.with_name(f"{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
