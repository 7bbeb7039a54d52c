"""The two stores: one that forgets, one that does not."""

from windrow.apiserver.stores.memory import MemoryStore

__all__ = ["MemoryStore"]
