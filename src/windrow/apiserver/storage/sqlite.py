"""SqliteStore: the memory store, with every change written to a file before it is visible.

One table holds each change as a row, newest last. An object is the latest row of its key; a row without a value is a
removal. Reads never touch the file. After a crash, also of the power, the file holds every committed change and no
partial one. One process at a time: a second one is refused at once, since both would count revisions.

* **Secrets leave the file.** A Secret that is changed or deleted leaves no former value: its older rows go in the same
  transaction, SQLite overwrites them (`secure_delete`), and the WAL is truncated before the write is answered; where
  many are deleted for one answer, after each `TRUNCATE_EVERY` of them and at the end (`batch`). After a restart, history
  begins after the last such write.
* **Damage is noticed.** Each start runs `quick_check` and compares the last revision with the high-water mark. A store
  that is corrupt, or ends before what it has acknowledged, is refused; it never begins with a part of its objects.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from windrow.apiserver.apierrors import internal
from windrow.apiserver.storage.high_water import HighWaterMark, mark_path
from windrow.apiserver.storage.memory import BACKLOG, HISTORY, HISTORY_BYTES, MemoryStore
from windrow.apiserver.storage.port import Change, Entry
from windrow.core.errors import UserError
from windrow.core.files import PRIVATE_FILE, open_private
from windrow.core.formats.fastjson import loads

_log = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS changes (
    rev   INTEGER PRIMARY KEY,
    key   TEXT NOT NULL,
    value BLOB
);
CREATE INDEX IF NOT EXISTS changes_by_key ON changes (key, rev);
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, rev INTEGER NOT NULL) WITHOUT ROWID;
"""
APPLICATION_ID = 0x57494E44  # "WIND", in the header of the file
SCHEMA_VERSION = 1  # 0: former values of Secrets may be in unused pages
SECRETS = "/secrets/"  # the keys without history
PRUNE_EVERY = 1_000
TRUNCATE_EVERY = 64  # former values of Secrets of a batch

# The store that this task batches.
_batching: ContextVar[MemoryStore | None] = ContextVar("_batching", default=None)


class StoreInUse(UserError):
    """Another process has the file open."""


class StoreUnusable(UserError):
    """The file cannot be opened or written: permissions, a full disk, a file system without locks."""


class StoreDamaged(UserError):
    """The file is corrupt, or lacks changes that were acknowledged."""


class SqliteStore(MemoryStore):
    """Opens or creates the file at `path` (0600). Raises StoreInUse, StoreUnusable and StoreDamaged.

    `close` gives it back.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        history: int = HISTORY,
        history_bytes: int = HISTORY_BYTES,
        backlog: int = BACKLOG,
    ) -> None:
        super().__init__(history=history, history_bytes=history_bytes, backlog=backlog)
        self._path = Path(path)
        self._unpruned: int | None = None  # None while loading
        self._scrubbed = 0  # the file has no history of Secrets up to here
        self._former_secrets = 0  # in the WAL, until it is truncated
        try:
            self._file = connect_private(self._path)
            try:
                self._open()
            except BaseException:
                self._file.close()
                raise
        except (sqlite3.Error, OSError, ValueError) as error:
            raise _opening_error(self._path, error) from error

    def _open(self) -> None:
        execute = self._file.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA temp_store = MEMORY")  # no other file
        execute("PRAGMA secure_delete = ON")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        version = check_file(self._file, self._path)
        self._file.executescript(SCHEMA)
        self._load()
        mark = HighWaterMark(mark_path(self._path))
        try:
            self._refuse_missing_changes(mark.read())
            if version < SCHEMA_VERSION:
                self._upgrade()
            self._truncate_wal()
            mark.record(self._rev)
        except BaseException:
            mark.close()
            raise
        self._mark = mark
        self._unpruned = 0

    def _load(self) -> None:
        """Build the present and the kept history from the rows."""
        marks = dict(self._file.execute("SELECT name, rev FROM marks"))
        compacted = int(marks.get("compacted", 0))
        for rev, key, value in self._file.execute("SELECT rev, key, value FROM changes ORDER BY rev"):
            before = self._entries.get(key)
            if value is None:
                if before is None:
                    self._rev = rev  # the removal of an object whose rows are pruned
                    continue
                self._apply(self._change_at(rev, key, before, None))
            else:
                self._apply(self._change_at(rev, key, before, value))
        self._rev = max(self._rev, compacted)  # a restored backup continues after the revisions that it lacks
        self._scrubbed = compacted
        super().compact(compacted)

    @staticmethod
    def _change_at(rev: int, key: str, before: Entry | None, value: bytes | None) -> Change:
        if value is None:
            assert before is not None
            head = {**before.raw["metadata"], "resourceVersion": str(rev)}
            return Change(rev, key, before, None, Entry(key, rev, {**before.raw, "metadata": head}))
        after = Entry(key, rev, loads(value), value)
        return Change(rev, key, before, after, after)

    def _refuse_missing_changes(self, acknowledged: int) -> None:
        if self._rev >= acknowledged:
            return
        raise StoreDamaged(
            f"the store {self._path} lacks changes that it had acknowledged: it ends at revision {self._rev}, and "
            f"revision {acknowledged} was written. Its WAL was lost or cut, or an older copy was put in its place",
            f"{_restore_hint(self._path)}. To go on without these changes, delete {mark_path(self._path)}; the "
            "machines made in between are then unknown to the manager.",
        )

    def _upgrade(self) -> None:
        """Take former values of Secrets out of a file of an earlier version, and out of its unused pages."""
        with self._file:
            self._file.execute("BEGIN")
            self._file.execute(
                """DELETE FROM changes WHERE key >= ? AND key < ? AND EXISTS
                   (SELECT 1 FROM changes newer WHERE newer.key = changes.key AND newer.rev > changes.rev)""",
                (SECRETS, SECRETS + "\U0010ffff"),
            )
            self._record_compacted(self._rev)
        self._file.execute("VACUUM")
        self._file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._file.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _persist(self, change: Change) -> None:
        value = change.after.data if change.after else None
        is_former_secret = change.before is not None and change.key.startswith(SECRETS)
        try:
            with self._file:
                self._file.execute("BEGIN")
                self._file.execute("INSERT INTO changes VALUES (?, ?, ?)", (change.rev, change.key, value))
                if is_former_secret:
                    self._file.execute(
                        "DELETE FROM changes WHERE key = ? AND rev < ?", (change.key, change.rev)
                    )
                    self._record_compacted(change.rev)
        except sqlite3.Error as error:
            _log.warning("cannot write %s: %s", self._path, error)
            raise internal(f"the store cannot be written: {error}") from error
        self._former_secrets += is_former_secret
        if self._former_secrets and (_batching.get() is not self or self._former_secrets >= TRUNCATE_EVERY):
            self._truncate_wal()
        with suppress(OSError):  # the change is committed; the next one records a later mark
            self._mark.record(change.rev)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """The WAL is truncated once for many Secrets; a write of another task meanwhile truncates it as ever."""
        outer = _batching.set(self)
        try:
            yield
        finally:
            _batching.reset(outer)
            if self._former_secrets:
                self._truncate_wal()

    def _record_compacted(self, rev: int) -> None:
        """After a restart, history begins after `rev`."""
        self._scrubbed = max(self._scrubbed, rev)
        self._file.execute("INSERT OR REPLACE INTO marks VALUES ('compacted', ?)", (self._scrubbed,))

    def _truncate_wal(self) -> None:
        """Move the WAL into the database, whose freed pages are overwritten. Tried again at the next write."""
        try:
            busy = self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            _log.warning("cannot truncate the WAL of %s: %s", self._path, error)
            return
        if not busy:
            self._former_secrets = 0

    def _apply(self, change: Change) -> None:
        super()._apply(change)
        if self._unpruned is None:
            return
        self._unpruned += 1
        if self._unpruned >= PRUNE_EVERY:
            self._prune()

    def compact(self, rev: int) -> None:
        super().compact(rev)
        self._prune()

    def _prune(self) -> None:
        """Drop rows that neither the present nor the kept history needs. The change is committed: this may fail."""
        self._unpruned = 0
        try:
            with self._file:
                self._file.execute("BEGIN")
                self._record_compacted(self._oldest)
                # The newest row stays in any case: it holds the counter.
                self._file.execute(
                    """DELETE FROM changes WHERE rev <= :oldest AND rev < (SELECT max(rev) FROM changes) AND (
                           value IS NULL
                           OR EXISTS (SELECT 1 FROM changes newer WHERE newer.key = changes.key
                                      AND newer.rev > changes.rev AND newer.rev <= :oldest))""",
                    {"oldest": self._oldest},
                )
        except sqlite3.Error as error:
            _log.warning("cannot drop old history of %s: %s", self._path, error)

    def check_writable(self) -> None:
        try:
            self._file.execute("INSERT OR REPLACE INTO marks VALUES ('writable', ?)", (self._rev,))
        except sqlite3.OperationalError as error:
            raise OSError(str(error)) from error

    def close(self) -> None:
        super().close()
        self._file.close()
        with suppress(OSError):
            self._mark.close()


def connect_private(path: Path) -> sqlite3.Connection:
    """A connection to the file, which and whose WAL only their owner may read. Raises OSError and sqlite3.Error."""
    os.close(open_private(path, os.O_RDWR))
    for suffix in ("-wal", "-shm", "-journal"):  # made by SQLite with the mode of the file
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).chmod(PRIVATE_FILE)
    return sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)


def check_file(file: sqlite3.Connection, path: Path) -> int:
    """The schema version of a sound database of ours, 0 for an empty one. Raises StoreDamaged and sqlite3.Error."""
    application, version = (
        file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application not in (0, APPLICATION_ID) or version > SCHEMA_VERSION:
        raise StoreDamaged(
            f"{path} is not a store of this version of Windrow (application {application:#x}, schema {version})",
            "Run the version of Windrow that wrote it, or name another directory with --state-dir.",
        )
    (found,) = file.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise _damaged(path, found)
    return int(version)


def _opening_error(path: Path, error: Exception) -> UserError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreInUse(
            f"the store {path} is in use by another process ({error})",
            "stop that one, or name another directory",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, ValueError):
        return _damaged(path, str(error))
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return StoreUnusable(
        f"the store {path} cannot be opened: {reason}",
        "Free space and give access there, or name a directory on a local file system with --state-dir.",
    )


def _damaged(path: Path, found: str) -> StoreDamaged:
    return StoreDamaged(f"the store {path} is corrupt: {found}", f"{_restore_hint(path)}.")


def _restore_hint(path: Path) -> str:
    return f"Restore a backup: windrow restore FILE --state-dir {path.parent}"
