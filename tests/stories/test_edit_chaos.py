"""Whatever a user edits, several fields at once and in the middle, under a storm: what was planned is what was done.

`make test-long` lives a few seeds; `python -m tests.stories.edit_chaos 0 80` lives two thousand edits, and
`python -m tests.stories.edit_chaos SEED` tells one life.
"""

from __future__ import annotations

import os

import pytest

from windrow.core.rng import Rng

from .edit_chaos import EDITS, SHAPES, draw_shape, live

LIVES = int(os.environ.get("WINDROW_SEEDS", "2000")) // 500


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(max(LIVES, 1)))
def test_what_was_planned_of_edits_is_done_in_a_storm(seed: int) -> None:
    outcome = live(seed)

    print(f"seed {seed}", *outcome.lines, *outcome.faults, sep="\n")
    assert outcome.faults == ()
    assert outcome.edits


def test_two_hundred_seeds_have_every_shape_of_a_cluster() -> None:
    drawn = [draw_shape(Rng(f"edits/{seed}")) for seed in range(200)]

    shapes = {", ".join(f"{pool.quantity} {pool.roles}" for pool in one.pools) for one in drawn}
    assert shapes == set(SHAPES)
    assert {one.distribution for one in drawn} == {"rke2", "k3s"}
    assert len({edit.__name__ for edit in EDITS}) >= 25
