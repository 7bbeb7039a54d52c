"""How soon a large object is reconciled again for what has changed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.controller.spacing import Spacing, spacing_of
from windrow.core.clock import sleep


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("parts", "wanted"), [(0, 0), (24, 0), (25, 0.25), (150, 1.5), (200, 2), (201, 2), (1000, 2)]
)
def test_the_changes_of_a_large_object_are_gathered_for_a_moment_that_grows_with_it(
    parts: int, wanted: float
):
    assert spacing_of(parts) == seconds(wanted)


def test_a_change_waits_from_the_last_reconcile_on_and_each_key_for_itself():
    async def story() -> None:
        clock = LoopClock()
        spacing: Spacing[str] = Spacing(clock)
        assert spacing.left("large") == seconds(0)
        spacing.on_reconciled("large", 100)
        spacing.on_reconciled("small", 3)
        assert spacing.left("large") == seconds(1)
        assert spacing.left("small") == seconds(0)
        await sleep(clock, seconds(0.4))
        assert spacing.left("large") == seconds(0.6)
        spacing.on_reconciled("large", 100)
        assert spacing.left("large") == seconds(1), "it counts from the last one"
        await sleep(clock, seconds(5))
        assert spacing.left("large") == seconds(0)
        spacing.on_reconciled("large", 100)
        spacing.forget("large")
        spacing.forget("large")
        assert spacing.left("large") == seconds(0)

    run_driven(story())
