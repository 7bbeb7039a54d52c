"""Run a service until it ends or a signal stops it, on uvloop where that is installed; run services beside a block."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")
Service = Callable[[], Coroutine[Any, Any, None]]

_STOP_SIGNALS = ("SIGTERM", "SIGHUP")  # SIGINT is asyncio.Runner's


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # optional, and absent on Windows
        return None
    return uvloop.new_event_loop


MAX_OPEN_FILES = 65_536


def _set_limits() -> None:
    """Open files up to the hard limit, as Go programs do: shells start programs with 1024, one for each connection.

    And no core dump: a service holds Secrets in memory, and other programs collect dumps.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a further bound
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_service(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end and return what it returns.

    SIGTERM, SIGHUP and SIGINT cancel `main`, so that leases are released, stores closed and temporary directories
    removed; then this raises KeyboardInterrupt. A signal that the process ignores when it starts (SIGHUP under nohup,
    SIGINT in the background of a script) stays ignored, as in a shell's own commands.
    """
    _set_limits()
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
    for name in _STOP_SIGNALS:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is None or signal.getsignal(number) is signal.SIG_IGN:
            continue
        with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows, or not in the main thread
            loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if stopped:
            raise KeyboardInterrupt from None
        raise


@asynccontextmanager
async def running(*services: Service) -> AsyncIterator[None]:
    """Run `services` while the block runs. One that fails ends the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(service()) for service in services]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
