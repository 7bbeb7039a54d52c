"""The random source that is passed in: for names, uids and jitter.

Keys and passwords never come from a plain `Rng`, which its seed gives away, but from the operating system's source,
`SystemRng`.
"""

from __future__ import annotations

import random

# apimachinery's rand.SafeEncodeString alphabet: no vowels and no look-alikes (reference/05 §7.6).
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Rng:
    """A seeded source of suffixes, uids and jitter. The same seed gives the same sequence."""

    def __init__(self, seed: int | str | None = None) -> None:
        self._random = random.Random(seed)

    def name_suffix(self, length: int = 5) -> str:
        """`length` characters that are safe in a DNS label."""
        return "".join(self._random.choice(ALPHABET) for _ in range(length))

    def uid(self) -> str:
        """A version-4 UUID in its usual text form."""
        # By hand: the uuid module costs a plugin process half a megabyte.
        number = self._random.getrandbits(128) & ~(0xF000 << 64) & ~(0xC000 << 48) | 4 << 76 | 0x8000 << 48
        text = f"{number:032x}"
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def bits(self, count: int) -> int:
        """A number of `count` random bits."""
        return self._random.getrandbits(count)

    def uniform(self, low: float, high: float) -> float:
        """A number from `low` to `high`, evenly spread."""
        return self._random.uniform(low, high)

    def below(self, limit: int) -> int:
        """A whole number from 0 to `below` - 1."""
        return self._random.randrange(limit)


class SystemRng(Rng):
    """The operating system's random source: not repeatable, and fit for keys."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.SystemRandom()
