"""MAC addresses of simulated NICs."""

from __future__ import annotations

from windrow.core.rng import Rng


def new_mac(rng: Rng) -> str:
    """A locally administered unicast address."""
    # Bit 1 of the first byte set, bit 0 clear: locally administered, unicast.
    first = (rng.below(64) << 2) | 0b10
    return ":".join(f"{byte:02x}" for byte in (first, *(rng.below(256) for _ in range(5))))
