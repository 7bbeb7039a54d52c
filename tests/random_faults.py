"""Faults drawn at random, for tests that a client survives any of them."""

from __future__ import annotations

from windrow.core.rng import Rng
from windrow.emulator.faults import (
    CONFLICT,
    INTERNAL_ERROR,
    TOO_MANY_REQUESTS,
    UNAVAILABLE,
    WRITES,
    CutWatch,
    DropReply,
    ExpireWatch,
    Fault,
    Faults,
    Reset,
    Slow,
)


def random_faults(rng: Rng, probability: float = 0.02) -> Faults:
    """Faults of every sort that a client must survive, each with the same small probability."""
    latency = Slow(round(rng.uniform(0.2, 3.0), 3))
    return Faults(
        [
            Fault(latency, probability=min(1.0, probability * 5)),
            Fault(CONFLICT, frozenset({"update", "patch"}), probability=probability),
            Fault(TOO_MANY_REQUESTS, probability=probability),
            Fault(INTERNAL_ERROR, probability=probability),
            Fault(UNAVAILABLE, probability=probability),
            Fault(Reset(), probability=probability),
            Fault(DropReply(), WRITES, probability=probability),
            Fault(CutWatch(1 + rng.below(5)), frozenset({"watch"}), probability=min(1.0, probability * 10)),
            Fault(ExpireWatch(), frozenset({"watch"}), probability=min(1.0, probability * 5)),
        ]
    )
