"""An unexpected error is logged with its stack and its object, and what works for others goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

from windrow.core.crash import handle_crash

log = logging.getLogger("windrow.test_crash")


def test_an_unexpected_error_is_logged_with_its_stack_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    with handle_crash(log, "reading %s failed", "it", node="n1") as crash:
        raise TypeError("a list")

    (record,) = caplog.records
    assert isinstance(crash.error, TypeError)
    assert record.getMessage() == "reading it failed"
    assert record.exc_info is not None
    assert record.exc_info[1] is crash.error
    assert record.exc_info[2] is not None
    assert vars(record)["fields"] == {"node": "n1"}


def test_without_an_error_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with handle_crash(log, "failed") as crash:
        pass

    assert crash.error is None
    assert not caplog.records


def test_the_errors_of_a_task_group_are_one_crash(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise KeyError("spec")

    async def run() -> Exception | None:
        with handle_crash(log, "failed") as crash:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        return crash.error

    assert isinstance(asyncio.run(run()), ExceptionGroup)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_cancellation_and_the_end_of_the_process_pass(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(error), handle_crash(log, "failed"):
        raise error

    assert not caplog.records
