"""What Clusters use: the index behind all that is shared by Clusters, begun for the first and ended with the last."""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Set
from typing import Generic, TypeVar

from windrow.kubernetes.resources import ObjectRef

T = TypeVar("T")


class UserIndex(Generic[T]):
    """What is in use, by its users, and the other way round. Each update takes time by what its own user uses only."""

    def __init__(self) -> None:
        self._used: dict[ObjectRef, frozenset[T]] = {}
        self._users: dict[T, set[ObjectRef]] = {}

    def update(self, user: ObjectRef, used: Iterable[T]) -> tuple[list[T], list[T]]:
        """`user` uses just these from now on. Which of them nothing used before, and which nothing uses now, in order."""
        before, after = self._used.pop(user, frozenset()), frozenset(used)
        if after:
            self._used[user] = after
        for one in after - before:
            self._users.setdefault(one, set()).add(user)
        for one in before - after:
            self._users[one].discard(user)
        begun = [one for one in after - before if len(self._users[one]) == 1]
        ended = [one for one in before - after if not self._users[one]]
        for one in ended:
            del self._users[one]
        return sorted(begun, key=str), sorted(ended, key=str)

    def used_by(self, user: ObjectRef) -> frozenset[T]:
        return self._used.get(user, frozenset())

    def users_of(self, used: T) -> Set[ObjectRef]:
        return self._users.get(used, frozenset())

    def in_use(self) -> KeysView[T]:
        """All that are in use."""
        return self._users.keys()
