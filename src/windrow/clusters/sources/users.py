"""Which things Clusters use: the index behind all that is shared by Clusters, begun for the first and ended with the last."""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Set
from typing import Generic, TypeVar

from windrow.kubernetes.resources import ObjectRef

T = TypeVar("T")


class UserIndex(Generic[T]):
    """The things in use, by what uses them, and the other way round. Each update takes time by its own things only."""

    def __init__(self) -> None:
        self._things: dict[ObjectRef, frozenset[T]] = {}
        self._users: dict[T, set[ObjectRef]] = {}

    def update(self, user: ObjectRef, things: Iterable[T]) -> tuple[list[T], list[T]]:
        """`user` uses just these from now on. Which of them nothing used before, and which nothing uses now, in order."""
        before, after = self._things.pop(user, frozenset()), frozenset(things)
        if after:
            self._things[user] = after
        for thing in after - before:
            self._users.setdefault(thing, set()).add(user)
        for thing in before - after:
            self._users[thing].discard(user)
        begun = [thing for thing in after - before if len(self._users[thing]) == 1]
        ended = [thing for thing in before - after if not self._users[thing]]
        for thing in ended:
            del self._users[thing]
        return sorted(begun, key=str), sorted(ended, key=str)

    def things_of(self, user: ObjectRef) -> frozenset[T]:
        return self._things.get(user, frozenset())

    def users_of(self, thing: T) -> Set[ObjectRef]:
        return self._users.get(thing, frozenset())

    def things(self) -> KeysView[T]:
        """All that are in use."""
        return self._users.keys()
