"""Who has which number of a range: cluster addresses, node ports.

Nobody tells when a Service goes, changes its type or could not be written after all. What it held counts as taken until
somebody else wants it; only then is the store asked whether that is still so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Owner:
    """A Service as the store knows it, of this life."""

    key: str
    uid: str


Holds = Callable[[Owner, int], Awaitable[bool]]


class RangeAllocator:
    """The numbers `first` to `last`. The lower `kept` ones are given only to who asks for them by number, as long as
    there are others."""

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
        """Whether `owner` may have it; what it has already is free to it."""
        found = self._owners.get(number)
        if found is None or found == owner:
            return True
        if await self._holds(found, number):
            return False
        self._owners.pop(number, None)
        return True

    async def find_free(self, owner: Owner, wish: str) -> int | None:
        """A number that nobody has: the same for the same `wish` as long as it is free. None where all are taken."""
        for number in self._order(wish):
            if self._owners.get(number) != owner and await self.is_free(number, owner):
                return number
        return None

    def _order(self, wish: str) -> Iterator[int]:
        low = self.first + self._reserved
        size = self.last - low + 1
        start = crc32(wish.encode()) % size if size > 0 else 0
        yield from (low + (start + step) % size for step in range(max(size, 0)))
        yield from range(self.first, min(low, self.last + 1))
