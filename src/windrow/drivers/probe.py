"""Asking an installed driver for its create flags: the first time that it is run. What goes wrong becomes a Fault."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from windrow.core.clock import Clock, sleep
from windrow.drivers.faults import Fault
from windrow.drivers.platforms import find_loader
from windrow.protocols.dockermachine import Flag

T = TypeVar("T")

# Starts the program as docker-machine's host does, and reads its create flags.
ReadFlags = Callable[[Path], Awaitable[tuple[Flag, ...]]]

PROBE_TIMEOUT = timedelta(seconds=10)
MESSAGE_LIMIT = 500
# Any program may end so, or print something. A driver that cannot start here ends in another way, and says why.
_NOT_A_DRIVER = re.compile(
    r"ended with exit code (0 |\d+ before it printed its address$)|where 127\.0\.0\.1:PORT was expected"
)
RUN_BY_HAND_HINT = "run it by hand, with MACHINE_PLUGIN_TOKEN=42, and see what it prints"


async def probe_flags(path: Path, read_flags: ReadFlags, clock: Clock) -> tuple[Flag, ...]:
    """The create flags of the driver at `path`. Raises Fault; the program has ended or been told to by then."""
    try:
        return await with_timeout(clock, PROBE_TIMEOUT, read_flags(path))
    except Fault:
        raise
    except Exception as error:
        raise translate_error(error, path) from error


async def with_timeout(clock: Clock, span: timedelta, work: Awaitable[T]) -> T:
    """The result of `work`. Raises TimeoutError after `span` by that clock, when `work` has been cancelled."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(sleep(clock, span))
    try:
        await asyncio.wait((task, timer), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimeoutError
        return task.result()
    finally:
        for one in (task, timer):
            one.cancel()
        await asyncio.gather(task, timer, return_exceptions=True)


def translate_error(error: Exception, path: Path) -> Fault:
    """Why the program could not be asked, and the cure."""
    name = path.name
    if isinstance(error, TimeoutError):
        return Fault(
            f"{name} gave no answer within {PROBE_TIMEOUT.total_seconds():.0f} s",
            RUN_BY_HAND_HINT,
            "NoAnswer",
        )
    number = _errno(error) or _errno(error.__cause__)  # the host of plugins wraps what the system says
    if number == errno.ENOENT:
        loader = find_loader(path)
        return Fault(
            f"{name} needs the loader {loader}, which is not here" if loader else f"{name} is not there",
            "name a build that is linked statically, or for the C library of this system",
            "NotExecutable",
        )
    if number in (errno.EACCES, errno.EPERM):
        return Fault(
            f"{name} may not be run",
            "put the state directory on a file system that is not mounted noexec",
            "NotExecutable",
        )
    if number == errno.ENOEXEC:
        return Fault(
            f"{name} is no program for this system",
            "name the URL and the SHA-256 of the one that is",
            "NotExecutable",
        )
    text = " ".join((str(getattr(error, "message", "")) or str(error) or type(error).__name__).split())[
        :MESSAGE_LIMIT
    ]
    text = text.removeprefix("plugin ")
    if not text.startswith(name):
        text = f"{name} could not be asked for its create flags: {text}"
    if _NOT_A_DRIVER.search(text):
        return Fault(text, "name another file: this is no docker-machine driver", "NoAnswer")
    return Fault(text, f"name a build for this system; to see more, {RUN_BY_HAND_HINT}", "NoAnswer")


def _errno(error: BaseException | None) -> int | None:
    return error.errno if isinstance(error, OSError) else None
