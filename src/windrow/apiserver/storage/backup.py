"""Backups of a SqliteStore: one SQLite file with its objects, and the files that belong to it.

It is written from the objects in memory, which are the store's as of one revision. So neither a reader nor a writer of the
store waits for it, and it may be written by another thread.

A backup is input from outside when it is restored. So it is opened in memory, checked, and read row by row into a
database that is made anew: nothing of its schema (a trigger, a view) reaches the store.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from windrow.apiserver.storage.port import Entry
from windrow.apiserver.storage.sqlite import APPLICATION_ID, SCHEMA, SCHEMA_VERSION
from windrow.core.errors import UserError
from windrow.core.files import open_private
from windrow.core.formats.fastjson import loads

_FILES = "CREATE TABLE files (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID"
_MAGIC = b"SQLite format 3\0"
_ROW_BYTES, _FILE_BYTES = 64, 256 * 1024  # beside the values themselves
# What was acknowledged after the backup had revisions, too, which clients still hold. A restored store begins after them,
# so that each client lists again instead of waiting for changes that it believes to have seen.
REVISION_GAP = 1_000_000


class NotBackup(UserError):
    """The file is not a sound backup."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the file is not a sound backup of Windrow: {found}", "Name a file of windrow backup."
        )


@dataclass(frozen=True, slots=True)
class Backup:
    """`objects` are the encoded objects by key, with the revision of each; `files` those that belong to the store."""

    rev: int
    objects: Mapping[str, tuple[int, bytes]] = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a backup is written from: the objects of a store as of `rev`, and the files that belong to it."""

    rev: int
    entries: Sequence[Entry] = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)

    def size(self) -> int:
        """About how many bytes the backup has. It encodes what is not yet: for another thread."""
        return sum(len(entry.data) + len(entry.key) + _ROW_BYTES for entry in self.entries) + _FILE_BYTES


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a backup to a new file (0600). Raises OSError, also where the disk is full; then a part of it may be there."""
    os.close(open_private(path, os.O_RDWR | os.O_EXCL))
    try:
        _write(snapshot, path)
    except sqlite3.Error as error:
        raise OSError(errno.EIO, str(error)) from error


def _write(snapshot: Snapshot, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("PRAGMA journal_mode = OFF")  # no other file; what a crash leaves is no backup
        made.execute("PRAGMA synchronous = OFF")
        made.executescript(SCHEMA)
        made.execute(_FILES)
        made.execute("BEGIN")
        rows = ((entry.rev, entry.key, entry.data) for entry in snapshot.entries)
        made.executemany("INSERT INTO changes VALUES (?, ?, ?)", rows)
        made.execute("INSERT INTO marks VALUES ('compacted', ?)", (snapshot.rev,))
        made.executemany("INSERT INTO files VALUES (?, ?)", snapshot.files.items())
        made.execute("COMMIT")
        made.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        made.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def read_backup(data: bytes) -> Backup:
    """What `make_backup` made. Raises NotBackup."""
    if not data.startswith(_MAGIC):
        raise NotBackup("it is no SQLite database")
    try:
        with closing(_open(data)) as copy:
            return _read(copy)
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise NotBackup(str(error)) from error


def _open(data: bytes) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    copy.deserialize(data)
    copy.execute("PRAGMA trusted_schema = OFF")
    return copy


def _read(copy: sqlite3.Connection) -> Backup:
    application, version = (
        copy.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application != APPLICATION_ID or version > SCHEMA_VERSION:
        raise NotBackup(f"application {application:#x}, schema {version}")
    (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise NotBackup(found)
    objects: dict[str, tuple[int, bytes]] = {}
    rev = 0
    for rev, key, value in copy.execute("SELECT rev, key, value FROM changes ORDER BY rev"):
        if value is None:
            objects.pop(key, None)
            continue
        loads(value)
        objects[key] = (rev, value)
    marks = dict(copy.execute("SELECT name, rev FROM marks"))
    files = dict(copy.execute("SELECT name, content FROM files"))
    return Backup(max(rev, int(marks.get("compacted", 0))), objects, files)


def render_store(backup: Backup, after: int) -> tuple[bytes, int]:
    """The file of a store with the objects of `backup`, and its revision, above those of the backup and of `after`."""
    rev = max(backup.rev, after) + REVISION_GAP
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        made.executescript(SCHEMA)
        rows = ((at, key, value) for key, (at, value) in backup.objects.items())
        made.executemany("INSERT INTO changes VALUES (?, ?, ?)", rows)
        made.execute("INSERT INTO marks VALUES ('compacted', ?)", (rev,))
        made.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        made.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        return made.serialize(), rev
