"""Days of churn leave the memory as it was. `python -m benchmarks soak` prints the figures of 24 hours."""

from __future__ import annotations

import pytest
from benchmarks.soak import Sample, soak
from tests.support.clock import run_driven

HOURS = 4


@pytest.mark.long
@pytest.mark.parametrize("part", ["emulator", "cloud provider"])
def test_memory_is_flat_after_the_first_hours(part: str) -> None:
    async def samples() -> list[Sample]:
        return [sample async for sample in soak(part, HOURS)]

    _, second, *_, last = run_driven(samples())

    assert last.blocks < 1.02 * second.blocks  # when all history was kept: 6 % more each hour
