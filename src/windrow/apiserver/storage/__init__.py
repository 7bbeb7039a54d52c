"""The stores: in memory, and in an SQLite file."""

from windrow.apiserver.storage.memory import MemoryStore
from windrow.apiserver.storage.sqlite import SqliteStore, StoreDamaged, StoreInUse, StoreUnusable

__all__ = ["MemoryStore", "SqliteStore", "StoreDamaged", "StoreInUse", "StoreUnusable"]
