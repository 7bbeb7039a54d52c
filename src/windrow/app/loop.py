"""Running a service: uvloop where it is installed, and an orderly end on SIGTERM and SIGHUP as on Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_STOP_SIGNALS = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # optional, and absent on Windows
        return None
    return uvloop.new_event_loop


def run_service(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end and return what it returns.

    SIGTERM, and SIGHUP of a terminal that closes, cancel it as Ctrl-C does, so that leases are given back, stores
    closed and scratch directories removed; all raise KeyboardInterrupt here once `main` has ended.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_run_until_signal(main))


async def _run_until_signal(main: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(main)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows, or not in the main thread
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if stopped:
            raise KeyboardInterrupt from None
        raise
