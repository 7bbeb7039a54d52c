"""A clock for tests, and an event loop on which it passes without waiting.

A DrivenLoop is an asyncio event loop whose time jumps to the next timer as soon as no task can run. With the in-process
transport and the memory store nothing uses a socket or a thread, so an hour takes a second and is the same every time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
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
        return self._start + self.monotonic()

    def monotonic(self) -> timedelta:
        return timedelta(seconds=asyncio.get_running_loop().time() - self._zero)

    def set_wall(self, by: timedelta) -> None:
        """Set the wall clock forward, or back, while the monotonic one goes on."""
        self._start += by

    async def sleep_until(self, instant: datetime) -> None:
        left = (instant - self.now()).total_seconds()
        await asyncio.sleep(max(left, 0.0))


class _JumpingSelector(selectors.SelectSelector):
    """Never blocks: instead of waiting for `timeout`, it advances the loop's time by it."""

    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        # Besides the pipe that wakes the loop from another thread nothing is registered, or nearly always: no system call.
        ready = super().select(0) if len(self.get_map()) > 1 else []
        if ready or timeout is None or timeout <= 0:
            if timeout is None and not ready:
                raise Deadlock("every task waits, and no timer or other task will wake one")
            return ready
        self.elapsed += timeout
        return ready


class Deadlock(RuntimeError):
    """Every task waits, and no timer or other task will wake one."""


class DrivenLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while every task waits. For tests without sockets or threads."""

    def __init__(self) -> None:
        self._selector_clock = _JumpingSelector()
        super().__init__(self._selector_clock)

    def time(self) -> float:
        return self._selector_clock.elapsed

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """In place: a thread would take time that this loop does not know of."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run_driven(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a driven clock and return its result. Raises Deadlock."""
    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        return runner.run(main)
