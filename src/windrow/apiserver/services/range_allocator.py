"""RangeAllocator: owners of the numbers of a range (cluster IPs, node ports).

Numbers are not released when a Service is deleted, changes its type or fails to be written. A number counts as taken
until another Service requests it; then the store is read to find out whether its owner still holds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Owner:
    """A Service by store key and uid."""

    key: str
    uid: str


Holds = Callable[[Owner, int], Awaitable[bool]]


class RangeAllocator:
    """The numbers `first` to `last`. The lower `reserved` ones are allocated on request only, as long as
    others are free."""

    def __init__(self, first: int, last: int, reserved: int, holds: Holds) -> None:
        self.first, self.last = first, last
        self._reserved = reserved
        self._holds = holds
        self._owners: dict[int, Owner] = {}

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def record(self, number: int, owner: Owner) -> None:
        self._owners[number] = owner

    async def is_free(self, number: int, owner: Owner) -> bool:
        """Whether `owner` may have the number; its own ones count as free."""
        found = self._owners.get(number)
        if found is None or found == owner:
            return True
        if await self._holds(found, number):
            return False
        self._owners.pop(number, None)
        return True

    async def find_free(self, owner: Owner, seed: str) -> int | None:
        """A free number: the same for the same `seed` while it is free. None when the range is exhausted."""
        for number in self._order(seed):
            if self._owners.get(number) != owner and await self.is_free(number, owner):
                return number
        return None

    def _order(self, seed: str) -> Iterator[int]:
        low = self.first + self._reserved
        size = self.last - low + 1
        start = crc32(seed.encode()) % size if size > 0 else 0
        yield from (low + (start + step) % size for step in range(max(size, 0)))
        yield from range(self.first, min(low, self.last + 1))
