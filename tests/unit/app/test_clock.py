import asyncio
import logging
from datetime import timedelta

import pytest
from tests.support.clock import NOON, run_driven

from windrow.app.clock import SystemClock, read_monotonic

MINUTE = timedelta(minutes=1)


class Computer:
    """A wall clock that can be set, and a monotonic one that cannot; both follow the event loop."""

    def __init__(self):
        self.wall_at_zero = NOON

    def elapsed(self):
        return timedelta(seconds=asyncio.get_running_loop().time())

    def wall(self):
        return self.wall_at_zero + self.elapsed()

    def clock(self):
        return SystemClock(self.wall, self.elapsed)


@pytest.mark.parametrize("minutes", [-60, -5, 60])
def test_a_sleep_lasts_as_long_as_it_should_while_the_clock_is_set(minutes):
    async def story():
        computer = Computer()
        clock = computer.clock()
        sleeping = asyncio.create_task(clock.sleep_until(clock.now() + 10 * MINUTE))
        await asyncio.sleep(150)
        computer.wall_at_zero += minutes * MINUTE
        await sleeping
        return computer.elapsed()

    assert run_driven(story()) == 10 * MINUTE


def test_each_jump_is_logged_once(caplog):
    async def story():
        computer = Computer()
        clock = computer.clock()
        for by in (-5, 0, 60, 0):
            computer.wall_at_zero += by * MINUTE
            await asyncio.sleep(60)
            clock.now()
            clock.now()

    with caplog.at_level(logging.WARNING):
        run_driven(story())

    assert caplog.messages == [
        "the system clock was set back by 5m0s, to 2026-01-01T11:56:00+00:00; timers, leases and timeouts are not "
        "affected",
        "the system clock was set forward by 1h0m0s, to 2026-01-01T12:58:00+00:00; timers, leases and timeouts are not "
        "affected",
    ]


def test_a_correction_by_ntp_is_no_jump(caplog):
    async def story():
        computer = Computer()
        clock = computer.clock()
        for _ in range(100):
            computer.wall_at_zero += timedelta(milliseconds=30)
            await asyncio.sleep(60)
            clock.now()

    with caplog.at_level(logging.WARNING):
        run_driven(story())

    assert caplog.messages == []


def test_the_monotonic_clock_of_this_computer_goes_on():
    first = read_monotonic()

    assert timedelta() <= read_monotonic() - first < MINUTE
