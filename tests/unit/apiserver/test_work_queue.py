"""The work queue of the simulated control planes."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.work_queue import WorkQueue

SECOND = timedelta(seconds=1)


def test_keys_leave_the_queue_in_order_and_once():
    async def scenario() -> list[str]:
        queue: WorkQueue[str] = WorkQueue(LoopClock())
        for key in ("a", "b", "a"):
            queue.add(key)
        return [await queue.get(), await queue.get()]

    assert run_driven(scenario()) == ["a", "b"]


def test_the_earlier_of_two_due_times_holds_until_it_is_forgotten():
    async def scenario() -> list[tuple[str, float]]:
        clock = LoopClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        start = clock.now()
        for key, seconds in (("late", 9), ("late", 5), ("late", 7), ("never", 1), ("early", 3)):
            queue.add_at(key, start + seconds * SECOND)
        queue.forget("never")
        found = [await queue.get() for _ in range(2)]
        return [(key, (clock.now() - start).total_seconds()) for key in found]

    assert run_driven(scenario()) == [("early", 5.0), ("late", 5.0)]


def test_a_key_added_meanwhile_ends_the_wait_for_a_due_time():
    async def scenario() -> tuple[str, float]:
        clock = LoopClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        start = clock.now()
        queue.add_at("later", start + 60 * SECOND)
        getting = asyncio.ensure_future(queue.get())
        await clock.sleep_until(start + SECOND)
        queue.add_at("soon", start + 2 * SECOND)
        return await getting, (clock.now() - start).total_seconds()

    assert run_driven(scenario()) == ("soon", 2.0)
