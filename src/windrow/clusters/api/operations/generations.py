"""Generations of requests below `rkeConfig`: each is carried out once, and a new one is above every earlier. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from windrow.kubernetes.objects import Raw, nested


def next_generation(cluster: Raw, key: str, done: Sequence[str] = ()) -> int:
    """One more than was ever asked for, or carried out, which the status has at `done` (default: the same key)."""
    asked = nested(cluster, "spec", "rkeConfig", key, "generation", default=0) or 0
    carried_out = nested(cluster, "status", *(done or (key, "generation")), default=0) or 0
    return int(max(asked, carried_out)) + 1
