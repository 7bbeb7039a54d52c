import asyncio
from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.core.stamps import ObservedStamps

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("jump", [-5 * MINUTE, -60 * MINUTE, 60 * MINUTE])
def test_the_age_of_a_stamp_grows_by_the_time_that_passes(jump):
    async def story():
        clock = LoopClock()
        stamps, written = ObservedStamps(clock), clock.now() - 3 * MINUTE
        stamps.read("uid", "created", written)
        await asyncio.sleep(60)
        clock.set_wall(jump)
        await asyncio.sleep(60)
        return clock.now() - stamps.read("uid", "created", written)

    assert run_driven(story()) == 5 * MINUTE


def test_a_stamp_is_read_as_it_was_written_while_the_clock_is_right():
    async def story():
        clock = LoopClock()
        stamps, written = ObservedStamps(clock), clock.now() - timedelta(seconds=0.7)
        stamps.read("uid", "created", written)
        await asyncio.sleep(6000)
        return stamps.read("uid", "created", written) == written

    assert run_driven(story())


def test_a_stamp_from_the_future_counts_from_its_first_observation():
    async def story():
        clock = LoopClock()
        stamps, written = ObservedStamps(clock), clock.now() + 60 * MINUTE
        stamps.read("uid", "created", written)
        await asyncio.sleep(120)
        return clock.now() - stamps.read("uid", "created", written)

    assert run_driven(story()) == 2 * MINUTE


def test_another_stamp_of_the_same_field_counts_anew():
    async def story():
        clock = LoopClock()
        stamps = ObservedStamps(clock)
        stamps.read("uid", "ready", clock.now())
        await asyncio.sleep(600)
        return clock.now() - stamps.read("uid", "ready", clock.now())

    assert run_driven(story()) == timedelta()


def test_objects_that_are_gone_are_forgotten():
    async def story():
        stamps = ObservedStamps(LoopClock())
        stamps.read("uid", "created", LoopClock().now())
        stamps.forget("uid")
        return stamps._observed

    assert run_driven(story()) == {}


@pytest.mark.parametrize("jump", [-60 * MINUTE, 60 * MINUTE])
def test_what_was_stamped_before_this_process_counts_from_its_first_observation(jump):
    async def story():
        clock = LoopClock()
        stamps, written = ObservedStamps(clock), clock.now() - 90 * MINUTE
        at_first = clock.now() - stamps.read_observed("uid", "update", written)
        await asyncio.sleep(60)
        clock.set_wall(jump)
        await asyncio.sleep(60)
        return at_first, clock.now() - stamps.read_observed("uid", "update", written)

    assert run_driven(story()) == (timedelta(), 2 * MINUTE)


def test_what_this_process_has_stamped_is_read_as_it_was_written():
    async def story():
        clock = LoopClock()
        stamps, written = ObservedStamps(clock), clock.now() - timedelta(seconds=0.7)
        stamps.read_observed("uid", "update", written)
        await asyncio.sleep(6000)
        return stamps.read_observed("uid", "update", written) == written

    assert run_driven(story())
