"""A controller that works by time goes on after a defect, with back-off."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.controllers.loop import PeriodicController
from windrow.core.clock import sleep


class Flaky(PeriodicController):
    """Fails three times, then works every minute."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__(clock)
        self.tried: list[datetime] = []

    async def run_once(self) -> datetime:
        self.tried.append(self._clock.now())
        if len(self.tried) <= 3:
            raise ZeroDivisionError
        return self._clock.now() + timedelta(minutes=1)


def test_a_defect_is_logged_and_tried_again_with_back_off(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> list[float]:
        clock = LoopClock()
        flaky = Flaky(clock)
        task = asyncio.create_task(flaky.run())
        await sleep(clock, timedelta(seconds=100))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [(at - flaky.tried[0]).total_seconds() for at in flaky.tried]

    assert run_driven(story()) == [0, 1, 3, 7, 67]
    assert caplog.text.count("Flaky failed; trying again") == 3
