"""SqliteStore: the memory store, with every change written to a file before it is visible.

One table holds each change as a row, newest last. An object is the latest row of its key; a row without a value is a
removal. Reads never touch the file. After a crash the file holds every committed change and no partial
one. One process at a time: a second one is refused at once, since both would count revisions.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from windrow.apiserver.storage.memory import BACKLOG, HISTORY, MemoryStore
from windrow.apiserver.storage.port import Change, Entry
from windrow.core.errors import UserError
from windrow.core.fastjson import loads

SCHEMA = """
CREATE TABLE IF NOT EXISTS changes (
    rev   INTEGER PRIMARY KEY,
    key   TEXT NOT NULL,
    value BLOB
);
CREATE INDEX IF NOT EXISTS changes_by_key ON changes (key, rev);
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, rev INTEGER NOT NULL) WITHOUT ROWID;
"""
PRUNE_EVERY = 1_000


class StoreInUse(UserError):
    """Another process has the file open."""


class SqliteStore(MemoryStore):
    """Opens or creates the file at `path`. Raises StoreInUse. `close` gives it back."""

    def __init__(self, path: str | Path, *, history: int = HISTORY, backlog: int = BACKLOG) -> None:
        super().__init__(history=history, backlog=backlog)
        self._file = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
        try:
            self._file.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._file.execute("PRAGMA journal_mode = WAL")
            # A commit survives a crash of the process; a power failure may lose the last ones.
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.executescript(SCHEMA)
        except sqlite3.OperationalError as error:
            self._file.close()
            raise StoreInUse(
                f"the store {path} is in use by another process ({error})",
                "stop that one, or name another directory",
            ) from error
        self._unpruned: int | None = None  # None while loading
        self._load()
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
        self._oldest = max(self._oldest, compacted)
        while self._ring and self._ring[0].rev <= self._oldest:
            self._ring.popleft()

    @staticmethod
    def _change_at(rev: int, key: str, before: Entry | None, value: bytes | None) -> Change:
        if value is None:
            assert before is not None
            head = {**before.raw["metadata"], "resourceVersion": str(rev)}
            return Change(rev, key, before, None, Entry(key, rev, {**before.raw, "metadata": head}))
        after = Entry(key, rev, loads(value), value)
        return Change(rev, key, before, after, after)

    def _persist(self, change: Change) -> None:
        value = change.after.data if change.after else None
        self._file.execute("INSERT INTO changes VALUES (?, ?, ?)", (change.rev, change.key, value))

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
        """Drop rows that neither the present nor the kept history needs."""
        self._unpruned = 0
        with self._file:
            self._file.execute("BEGIN")
            self._file.execute("INSERT OR REPLACE INTO marks VALUES ('compacted', ?)", (self._oldest,))
            # The newest row stays in any case: it holds the counter.
            self._file.execute(
                """DELETE FROM changes WHERE rev <= :oldest AND rev < (SELECT max(rev) FROM changes) AND (
                       value IS NULL
                       OR EXISTS (SELECT 1 FROM changes newer WHERE newer.key = changes.key
                                  AND newer.rev > changes.rev AND newer.rev <= :oldest))""",
                {"oldest": self._oldest},
            )

    def close(self) -> None:
        super().close()
        self._file.close()
