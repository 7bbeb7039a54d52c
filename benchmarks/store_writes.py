"""Writes to the manager's database, each synced to the disk before it is acknowledged.

Baselines: the same writes to the store in memory, and to SQLite with `synchronous = NORMAL`, which loses what it has
acknowledged when the power fails. A Secret costs more: its former value is overwritten and the WAL truncated.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks import Figure
from windrow.apiserver.storage.memory import MemoryStore
from windrow.apiserver.storage.sqlite import SqliteStore

WRITES = 1_000
PAYLOAD = "x" * 4_000  # a Machine with its status
UNSYNCED = "PRAGMA synchronous = NORMAL"


async def _write(store: MemoryStore, kind: str) -> float:
    """Milliseconds for each write: one creation, then updates."""
    key = f"/{kind}/default/one"
    raw: dict[str, Any] = {"metadata": {"name": "one", "namespace": "default"}, "data": PAYLOAD}
    entry = await store.commit(key, raw, None)
    began = time.perf_counter()
    for number in range(WRITES):
        entry = await store.commit(key, {**raw, "number": number}, entry.rev)
    return (time.perf_counter() - began) / WRITES * 1000


def _on_disk(kind: str, *, synced: bool) -> float:
    with (
        tempfile.TemporaryDirectory(dir=".") as directory,
        closing(SqliteStore(Path(directory) / "manager.db")) as store,
    ):
        if not synced:
            store._file.execute(UNSYNCED)
        return asyncio.run(_write(store, kind))


def measure() -> Iterator[Figure]:
    memory = asyncio.run(_write(MemoryStore(), "machines"))
    for kind in ("machines", "secrets"):
        unsynced, synced = _on_disk(kind, synced=False), _on_disk(kind, synced=True)
        yield Figure(f"{kind}: one write, in memory", memory, "ms", memory, "in memory")
        yield Figure(f"{kind}: one write, not synced", unsynced, "ms", memory, "in memory")
        yield Figure(f"{kind}: one write, as it is", synced, "ms", unsynced, "not synced")
