"""The two stores: one that forgets, one that does not."""

from windrow.apiserver.storage.memory import MemoryStore
from windrow.apiserver.storage.sqlite import SqliteStore, StoreInUse

__all__ = ["MemoryStore", "SqliteStore", "StoreInUse"]
