"""Seeds of random walks: `make test` runs a sample of them, `make test-long` the others."""

from __future__ import annotations

import pytest


def sampled(seeds: range, sample: int) -> list[object]:
    """Parameters for `parametrize`: of these seeds, all but the first `sample` are marked `long`."""
    return [
        pytest.param(seed, marks=pytest.mark.long if place >= sample else ())
        for place, seed in enumerate(seeds)
    ]
