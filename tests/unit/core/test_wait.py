"""The first of two decides, and neither is left running."""

from __future__ import annotations

import asyncio

import pytest

from windrow.core.wait import Stopped, run_until


async def test_the_result_of_the_work_is_returned_and_its_error_raised() -> None:
    async def fail() -> None:
        raise LookupError

    assert await run_until(asyncio.sleep(0, "done"), asyncio.Event().wait()) == "done"
    with pytest.raises(LookupError):
        await run_until(fail(), asyncio.Event().wait())


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
