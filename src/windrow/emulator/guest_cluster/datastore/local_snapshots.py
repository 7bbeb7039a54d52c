"""The snapshots on a member's own disk: their directory, the metadata beside them, retention."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from windrow.core.formats.json import dumps, loads_or_none
from windrow.emulator.guest_cluster.datastore.snapshot_content import COMPRESSED
from windrow.emulator.guest_cluster.datastore.snapshot_file import SnapshotFile, read_created
from windrow.emulator.guest_os.budget import DiskFull
from windrow.emulator.guest_os.operating_system import GuestOS

METADATA = ".metadata"  # the directory of what belongs to snapshots, beside that of the snapshots
MAX_SNAPSHOTS = 500  # on one disk; a real one is full then
_LONGEST_PATH = 1024


class NoDirectory(Exception):
    """The snapshot directory cannot be used; the message is the program's."""


class LocalSnapshots:
    """The files in one directory. Only the directory that is the default is made when it is missing."""

    def __init__(self, guest: GuestOS, node: str, data_directory: str, directory: str = "") -> None:
        self.guest = guest
        self.node = node
        default = f"{data_directory}/server/db/snapshots"
        self.directory = posixpath.normpath(directory or default)
        self._is_default = self.directory == default

    def open(self) -> None:
        """Raises NoDirectory."""
        path = self.directory
        if not path.startswith("/") or len(path) > _LONGEST_PATH:
            raise NoDirectory(f"failed to get etcd-snapshot-dir: stat {path[:80]}: no such file or directory")
        if self.guest.is_file(path):
            raise NoDirectory(f"failed to get etcd-snapshot-dir: {path} is not a directory")
        if not self.guest.is_directory(path):
            if not self._is_default:
                raise NoDirectory(f"failed to get etcd-snapshot-dir: stat {path}: no such file or directory")
            self.guest.make_directory(path)

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def save(self, name: str, content: bytes, metadata: Mapping[str, str]) -> None:
        """Write a snapshot. Raises DiskFull."""
        if len(self.guest.list_under(self.directory)) >= MAX_SNAPSHOTS:
            raise DiskFull
        self.guest.budget.check_disk(len(content))
        self.guest.write(self.path(name), content, 0o600)
        if metadata:
            self.guest.write(self._metadata_path(name), dumps(dict(metadata)), 0o600)

    def delete(self, name: str) -> bool:
        """Whether there was one."""
        self.guest.remove(self._metadata_path(name))
        return self.guest.is_file(self.path(name)) and self.guest.remove(self.path(name))

    def list_files(self) -> list[SnapshotFile]:
        """All snapshots, by name."""
        found = []
        for path in self.guest.list_under(self.directory)[:MAX_SNAPSHOTS]:
            name = posixpath.basename(path)
            metadata = loads_or_none(self.guest.read(self._metadata_path(name)) or b"")
            found.append(
                SnapshotFile(
                    name,
                    read_created(name, self.guest.now()),
                    len(self.guest.read(path) or b""),
                    self.node,
                    f"file://{self.directory}/{name}",
                    metadata=metadata if isinstance(metadata, dict) else {},
                )
            )
        return found

    def prune(self, prefix: str, retention: int) -> list[str]:
        """Delete all but the newest whose name begins so; the names of the deleted."""
        if retention < 1:
            return []
        files = [one for one in self.list_files() if one.name.startswith(prefix)]
        newest_first = sorted(files, key=lambda one: (one.created, one.name), reverse=True)
        return [one.name for one in newest_first[retention:] if self.delete(one.name)]

    def _metadata_path(self, name: str) -> str:
        return f"{posixpath.dirname(self.directory)}/{METADATA}/{name}"


def name_snapshot(prefix: str, node: str, timestamp: int, *, is_compressed: bool) -> str:
    return f"{prefix}-{node}-{timestamp}{COMPRESSED if is_compressed else ''}"
