"""After any weather and any number of deaths, load balancers are as their services ask, and nothing is left over.

`make test` walks a sample; `WINDROW_SEEDS=20000 make test-long ARGS=tests/stories/test_services_chaos.py` walks far. One seed alone is told by
`python -m tests.stories.service_chaos SEED`.
"""

from __future__ import annotations

import os

import pytest
from tests.support.seeds import sampled

from .service_chaos import live

SEEDS = int(os.environ.get("WINDROW_SEEDS", "2000"))
SAMPLE = 50
CHUNK = 50
CHUNKS = sampled(range(0, max(SEEDS, SAMPLE), CHUNK), SAMPLE // CHUNK)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", CHUNKS)
def test_after_any_weather_services_have_what_they_ask_for_and_harvester_holds_nothing_else(
    first: int,
) -> None:
    broken = [outcome for seed in range(first, first + CHUNK) if (outcome := live(seed)).faults]
    for outcome in broken[:3]:
        print(f"seed {outcome.seed}", *outcome.lines, *outcome.faults, "", sep="\n")
    assert not broken, f"seeds {[outcome.seed for outcome in broken]}"
