"""The high-water mark: the last revision that a store has acknowledged, in a small file beside the database.

A database whose WAL was lost or cut, or that was rolled back, is valid to SQLite and ends early. Only a second record
can tell. The mark is written after the commit that it names, so it is never ahead of a whole database. It is not
synced at each commit: after a loss of power it may be some seconds behind, which hides such a loss and raises no false
alarm.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from windrow.core.files import open_private

SUFFIX = ".revision"
_FORM = re.compile(rb"(\d{20})\n")


def mark_path(store: Path) -> Path:
    return store.with_name(store.name + SUFFIX)


class HighWaterMark:
    """The file at `path`, made where there is none (0600). Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._descriptor = open_private(path, os.O_RDWR)

    def read(self) -> int:
        """The recorded revision; 0 where none is, also in a file that a crash left empty."""
        found = _FORM.match(os.pread(self._descriptor, 64, 0))
        return int(found[1]) if found else 0

    def record(self, rev: int) -> None:
        """Always the same length in the same place, so a full disk does not prevent it. Raises OSError."""
        os.pwrite(self._descriptor, b"%020d\n" % rev, 0)

    def close(self) -> None:
        os.fsync(self._descriptor)
        os.close(self._descriptor)
