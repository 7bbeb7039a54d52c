"""Randomness as a thing that is passed in: names, jitter and uids come from here.

`secrets` (keys, passwords) never come from `Chance`; they come from the operating system.
"""

from __future__ import annotations

import random
import uuid

# apimachinery's rand.SafeEncodeString alphabet: no vowels and no look-alikes (reference/05 §7.6).
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Chance:
    """A seeded source of suffixes, uids and jitter. The same seed gives the same sequence."""

    def __init__(self, seed: int | str | None = None) -> None:
        self._random = random.Random(seed)

    def suffix(self, length: int = 5) -> str:
        """`length` characters that are safe in a DNS label."""
        return "".join(self._random.choice(ALPHABET) for _ in range(length))

    def uid(self) -> str:
        """A version-4 UUID in its usual text form."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def between(self, low: float, high: float) -> float:
        """A number from `low` to `high`, evenly spread."""
        return self._random.uniform(low, high)

    def integer(self, below: int) -> int:
        """A whole number from 0 to `below` - 1."""
        return self._random.randrange(below)
