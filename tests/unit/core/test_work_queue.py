import asyncio
from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.core.work_queue import WorkQueue

SECOND = timedelta(seconds=1)


def test_a_key_waits_once_however_often_it_is_added():
    async def story():
        queue = WorkQueue(LoopClock())
        queue.add("a")
        queue.add("b")
        queue.add("a")
        return [await queue.get(), await queue.get(), len(queue)]

    assert run_driven(story()) == ["a", "b", 0]


def test_a_key_added_during_its_work_comes_again_after_it():
    async def story():
        queue = WorkQueue(LoopClock())
        queue.add("a")
        await queue.get()
        queue.add("a")
        queue.add("b")
        first = await queue.get()
        queue.done("a")
        return [first, await queue.get()]

    assert run_driven(story()) == ["b", "a"]


def test_keys_come_at_their_time_and_the_earliest_time_wins():
    async def story():
        clock = LoopClock()
        start = clock.now()
        queue = WorkQueue(clock)
        queue.add_after("late", 20 * SECOND)
        queue.add_after("late", 9 * SECOND)
        queue.add_after("late", 30 * SECOND)
        queue.add_after("early", 5 * SECOND)
        seen = []
        for _ in range(2):
            key = await queue.get()
            seen.append((key, (clock.now() - start).total_seconds()))
        return seen

    assert run_driven(story()) == [("early", 5.0), ("late", 9.0)]


def test_a_key_given_out_is_not_scheduled_any_more():
    async def story():
        clock = LoopClock()
        queue = WorkQueue(clock)
        queue.add_after("a", SECOND)
        queue.add("a")
        await queue.get()
        queue.done("a")
        queue.add_after("b", 5 * SECOND)
        return await queue.get()

    assert run_driven(story()) == "b"


@pytest.mark.parametrize("jump_s", [-3600, -300, 3600])
def test_a_key_comes_at_its_time_though_the_wall_clock_is_set(jump_s):
    async def story():
        clock = LoopClock()
        start = clock.monotonic()
        queue = WorkQueue(clock)
        queue.add_after("a", 60 * SECOND)
        queue.add_after("b", 90 * SECOND)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(10)
        clock.set_wall(jump_s * SECOND)
        first = await waiting, clock.monotonic() - start
        return first, (await queue.get(), clock.monotonic() - start)

    assert run_driven(story()) == (("a", 60 * SECOND), ("b", 90 * SECOND))


def test_adding_a_key_ends_a_timed_wait():
    async def story():
        clock = LoopClock()
        start = clock.now()
        queue = WorkQueue(clock)
        queue.add_after("b", 60 * SECOND)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(queue.get())
            await asyncio.sleep(1)
            queue.add("a")
        return waiting.result(), clock.now() - start

    assert run_driven(story()) == ("a", SECOND)


def test_adding_a_key_ends_a_wait_without_timer():
    async def story():
        queue = WorkQueue(LoopClock())
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(queue.get())
            await asyncio.sleep(1)
            queue.add("a")
        return waiting.result()

    assert run_driven(story()) == "a"


def test_each_added_key_is_reported_once():
    async def story():
        clock, told = LoopClock(), []
        queue = WorkQueue(clock, told.append)
        queue.add("a")
        queue.add("a")
        queue.add_after("later", SECOND)
        early = list(told)
        await queue.get()
        queue.add("a")
        queue.add("a")
        queue.done("a")
        busy = list(told)
        await queue.get()
        await queue.get()
        return early, busy, told

    assert run_driven(story()) == (["a"], ["a", "a"], ["a", "a", "later"])
