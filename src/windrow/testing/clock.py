"""The clocks that the edge hands out: the real one, and one for stories in which nobody ever waits.

A story runs on a `DrivenLoop`: an asyncio event loop whose time jumps to the next timer as soon as no task can go
on. With the in-process transport and the memory store nothing touches a socket or a thread, so an hour of cluster
life takes a second and is the same every time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class LoopClock:
    """A clock that follows the running event loop's time; on a DrivenLoop it is a driven clock."""

    def __init__(self, start: datetime = NOON) -> None:
        self._start = start
        self._zero = asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=asyncio.get_running_loop().time() - self._zero)

    async def sleep_until(self, instant: datetime) -> None:
        left = (instant - self.now()).total_seconds()
        await asyncio.sleep(max(left, 0.0))


class _JumpingSelector(selectors.SelectSelector):
    """Never blocks: instead of waiting for `timeout`, it moves the loop's time by it."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout is None or timeout <= 0:
            if timeout is None and not ready:
                raise Deadlock("every task waits for something that no timer and no other task will bring")
            return ready
        self.elapsed += timeout
        return ready


class Deadlock(RuntimeError):
    """Nothing can happen any more: the story would wait for ever."""


class DrivenLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when all tasks wait. For stories without sockets or threads."""

    def __init__(self) -> None:
        self._selector_clock = _JumpingSelector()
        super().__init__(self._selector_clock)

    def time(self) -> float:
        return self._selector_clock.elapsed


def run_driven(main: Coroutine[Any, Any, T]) -> T:
    """Run `story` on a driven clock and return what it returns. Raises Deadlock when it can never end."""
    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        return runner.run(main)
