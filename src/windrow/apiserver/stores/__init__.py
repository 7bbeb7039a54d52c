"""The two stores: one that forgets, one that does not."""

from windrow.apiserver.stores.memory import MemoryStore
from windrow.apiserver.stores.sqlite import SqliteStore, StoreInUse

__all__ = ["MemoryStore", "SqliteStore", "StoreInUse"]
