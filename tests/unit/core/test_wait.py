"""The first of two decides, and neither is left running."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from windrow.core.wait import Stopped, run_until, start_in


async def test_the_result_of_the_work_is_returned_and_its_error_raised() -> None:
    async def fail() -> None:
        raise LookupError

    assert await run_until(asyncio.sleep(0, "done"), asyncio.Event().wait()) == "done"
    with pytest.raises(LookupError):
        await run_until(fail(), asyncio.Event().wait())


async def test_what_ends_the_work_by_an_error_of_its_own_is_not_taken_for_an_end() -> None:
    async def fail() -> None:
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await run_until(asyncio.Event().wait(), fail())


@pytest.mark.parametrize("ended_by", ["stop", "cancellation"])
async def test_work_that_is_stopped_or_cancelled_has_ended_when_its_caller_goes_on(ended_by: str) -> None:
    cleaned_up: list[str] = []
    begun, stop = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up.append("work")

    running = asyncio.ensure_future(run_until(work(), stop.wait()))
    await begun.wait()
    if ended_by == "stop":
        stop.set()
    else:
        running.cancel()
    with pytest.raises(Stopped if ended_by == "stop" else asyncio.CancelledError):
        await running
    assert cleaned_up == ["work"]


async def test_work_for_a_group_that_ends_is_not_begun_and_no_coroutine_is_left() -> None:
    """What others start in a task's group may come while that task is being cancelled."""
    late: list[object] = []

    async def owner() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(other(group))

    async def other(group: asyncio.TaskGroup) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            late.append(start_in(group, asyncio.sleep(0)))

    running = asyncio.ensure_future(owner())
    await asyncio.sleep(0.001)
    running.cancel()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        await asyncio.gather(running, return_exceptions=True)
        late.append(start_in(None, asyncio.sleep(0)))
        gc.collect()

    assert (late, told) == ([None, None], [])
