"""The record that a filesystem is being made, written before mkfs begins and removed after it has ended.

An mkfs of ext4 that was killed leaves a disk of which blkid names nothing and which is not zero: the same picture as unknown
data, which is never formatted. The record tells them apart, and only while nothing else can have written to the disk: it
names the boot of the node and the number that the kernel gave to this attachment of the disk. After a detach or a reboot it
proves nothing any more.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from windrow.core.files import make_private_directory, sync_directory, write_private

_MAX_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Formatting:
    """One mkfs: for which volume, and on which attachment of which disk."""

    volume_id: str
    device: str
    sequence: str
    boot: str

    @property
    def is_proof(self) -> bool:
        """Whether the attachment is named at all."""
        return bool(self.sequence and self.boot)


class FormattingRecords:
    """The records in a folder that survives the process. Its methods raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, formatting: Formatting) -> None:
        make_private_directory(self._folder)
        write_private(self._path(formatting.volume_id), json.dumps(asdict(formatting)))

    def remove(self, volume_id: str) -> None:
        """Forget it; may be repeated."""
        path = self._path(volume_id)
        if path.exists():
            path.unlink()
            sync_directory(self._folder)

    def has(self, formatting: Formatting) -> bool:
        """Whether exactly this mkfs was begun and has not ended. False for a record that cannot be read."""
        try:
            with self._path(formatting.volume_id).open("rb") as file:
                found = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError):
            return False
        return formatting.is_proof and bool(found == asdict(formatting))

    def _path(self, volume_id: str) -> Path:
        # An id may hold anything, also slashes.
        return self._folder / hashlib.sha256(volume_id.encode()).hexdigest()
