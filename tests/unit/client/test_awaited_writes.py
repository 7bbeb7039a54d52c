"""A cancelled write ends with its answer, a cancelled read at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.client.middleware.awaited_writes import AwaitedWrites
from windrow.kubernetes.errors import OutcomeUnknown
from windrow.kubernetes.requests import Reply, Request

ANSWERS_AFTER_S = 5.0


class Slow:
    """Answers after a while; `error` is raised instead."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.answered = 0

    async def send(self, request: Request) -> Reply:
        await asyncio.sleep(ANSWERS_AFTER_S)
        self.answered += 1
        if self._error is not None:
            raise self._error
        return Reply(200, b"{}")

    def stream(self, request: Request) -> Any:
        raise NotImplementedError

    async def aclose(self) -> None:
        pass


def cancelled_after(seconds: float, method: str, slow: Slow, *more: float) -> float:
    """When a request that is cancelled, and again after `more` seconds each, ended."""

    async def story() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        task = asyncio.create_task(AwaitedWrites(slow).send(Request(method, "/api/v1/nodes/a")))
        for pause in (seconds, *more):
            await asyncio.sleep(pause)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return loop.time() - began

    return run_driven(story())


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_cancelled_write_ends_with_its_answer(method: str):
    slow = Slow()
    assert cancelled_after(1, method, slow) == ANSWERS_AFTER_S
    assert slow.answered == 1


def test_a_write_that_is_cancelled_twice_ends_with_its_answer_too():
    assert cancelled_after(1, "POST", Slow(), 1) == ANSWERS_AFTER_S


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_cancelled_read_ends_at_once(method: str):
    slow = Slow()
    assert cancelled_after(1, method, slow) == 1
    assert slow.answered == 0


def test_the_error_of_a_cancelled_write_is_read(complaints: list[str]):
    assert cancelled_after(1, "POST", Slow(OutcomeUnknown("lost"))) == ANSWERS_AFTER_S
    assert complaints == []


def test_answers_and_errors_are_passed_on():
    async def send(slow: Slow) -> Reply:
        return await AwaitedWrites(slow).send(Request("POST", "/api/v1/nodes"))

    assert run_driven(send(Slow())).status == 200
    with pytest.raises(OutcomeUnknown):
        run_driven(send(Slow(OutcomeUnknown("lost"))))


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What event loops complain of."""
    found: list[str] = []

    def complain(loop: Any, context: dict[str, Any]) -> None:
        found.append(str(context["message"]))

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_exception_handler", complain)
    return found
