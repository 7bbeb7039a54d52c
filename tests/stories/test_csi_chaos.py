"""After any faults, deaths and calls that were given up, volumes are where they were asked for, and deleted ones leave nothing.

`make test` walks a sample, `make test-long` a tenth of WINDROW_SEEDS; `python -m tests.stories.csi_chaos 0 2000` walks far, and
`python -m tests.stories.csi_chaos SEED` tells one of them.
"""

from __future__ import annotations

import os

import pytest
from tests.support.seeds import sampled

from .csi_chaos import live

SEEDS = int(os.environ.get("WINDROW_SEEDS", "2000")) // 10
SAMPLE = 20
CHUNK = 20
CHUNKS = sampled(range(0, max(SEEDS, SAMPLE), CHUNK), SAMPLE // CHUNK)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", CHUNKS)
def test_after_any_faults_volumes_are_where_they_were_asked_for_and_nothing_is_left(first: int) -> None:
    broken = [outcome for seed in range(first, first + CHUNK) if (outcome := live(seed)).faults]
    for outcome in broken[:3]:
        print(f"seed {outcome.seed}", *outcome.lines, *outcome.faults, "", sep="\n")
    assert not broken, f"seeds {[outcome.seed for outcome in broken]}"
