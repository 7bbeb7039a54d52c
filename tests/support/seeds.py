"""Seeds of random walks and enumerations: `make test` runs a sample of them, `make test-long` the others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def sampled(seeds: range, sample: int) -> list[object]:
    """Parameters for `parametrize`: of these seeds, all but the first `sample` are marked `long`."""
    return [
        pytest.param(seed, marks=pytest.mark.long if place >= sample else ())
        for place, seed in enumerate(seeds)
    ]


def partly_long(cases: Iterable[object], of_make_test: Iterable[object]) -> list[object]:
    """Parameters for `parametrize`: of these cases, all but those `of_make_test` are marked `long`."""
    quick = list(of_make_test)
    return [pytest.param(case, marks=() if case in quick else pytest.mark.long) for case in cases]
