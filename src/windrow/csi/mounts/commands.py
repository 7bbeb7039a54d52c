"""Runs programs and calls that may block, each with a time limit: the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Thread
from typing import Any, TypeVar

from windrow.core.clock import Clock, sleep
from windrow.core.wait import run_until
from windrow.csi.mounts.port import NotAnswering, ToolFailed

T = TypeVar("T")

# Nothing of the process's own environment is passed on.
_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
# How much of a program's output is kept: the end, where the reason is.
_KEPT_BYTES = 16384
_SHOWN = 300
_HINT = "see the node's kernel log for the disk or the server behind it"


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that has ended. `output` is the end of what it wrote, its errors included."""

    code: int
    output: str

    @property
    def reason(self) -> str:
        """For an error: the exit code, and the end of the output in one line."""
        return f"exit code {self.code}: {' '.join(self.output.split())[-_SHOWN:] or 'no output'}"


async def run_command(
    clock: Clock, argv: Sequence[str], timeout: timedelta, inherited: tuple[int, ...] = ()
) -> Finished:
    """Run a program to its end. `inherited` are descriptors that it keeps open.

    It is killed when the time is up or the call is cancelled. Raises ToolFailed where it cannot be started or takes longer.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env=_ENVIRONMENT,
            pass_fds=inherited,
        )
    except OSError as error:
        raise ToolFailed(
            f"cannot start {argv[0]}: {error.strerror}", "the image of the driver has to contain it"
        ) from error
    late = ToolFailed(
        f"{' '.join(argv)} was killed: it had not ended after {timeout}",
        "see the node's kernel log for its disk",
    )
    try:
        return await run_until(_finish(process), sleep(clock, timeout), late)
    finally:
        with suppress(ProcessLookupError):
            process.kill()


async def _finish(process: Process) -> Finished:
    assert process.stdout is not None
    kept = b""
    while piece := await process.stdout.read(_KEPT_BYTES):
        kept = (kept + piece)[-_KEPT_BYTES:]
    return Finished(await process.wait(), kept.decode(errors="replace"))


class BlockingCalls:
    """Runs calls that may block for ever, as on a filesystem whose server is away, in threads of their own.

    A thread that hangs cannot be ended. So there is one at most for each subject: while it hangs, further calls for the same
    subject fail at once. The threads do not keep the process from ending.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, asyncio.Future[Any]] = {}
        self._late: set[str] = set()

    async def run(self, subject: str, timeout: timedelta, call: Callable[[], T]) -> T:
        """The result of `call`. Raises what it raises, or NotAnswering."""
        if subject in self._running:
            raise NotAnswering(f"{subject} has still not answered an earlier call", _HINT)
        return await self._answer(subject, timeout, self._start(subject, call))

    async def read(self, subject: str, timeout: timedelta, call: Callable[[], T]) -> T:
        """As `run`, for a call that changes nothing and is the same for all of its subject: they share one answer."""
        if subject in self._late:
            raise NotAnswering(f"{subject} has still not answered an earlier call", _HINT)
        running: asyncio.Future[T] = self._running.get(subject) or self._start(subject, call)
        return await self._answer(subject, timeout, running)

    async def _answer(self, subject: str, timeout: timedelta, running: asyncio.Future[T]) -> T:
        late = NotAnswering(f"{subject} has not answered within {timeout}", _HINT)
        try:
            return await run_until(asyncio.shield(running), sleep(self._clock, timeout), late)
        except NotAnswering:
            if not running.done():
                self._late.add(subject)
            raise

    def _start(self, subject: str, call: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        running: asyncio.Future[T] = loop.create_future()
        # Read once, so that nothing is logged where all callers have gone.
        running.add_done_callback(asyncio.Future.exception)

        def resolve(result: T | None, error: BaseException | None) -> None:
            del self._running[subject]
            self._late.discard(subject)
            if error is not None:
                running.set_exception(error)
            else:
                running.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            result, failure = None, None
            try:
                result = call()
            except BaseException as error:
                failure = error
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(resolve, result, failure)

        self._running[subject] = running
        Thread(target=work, name=f"blocking {subject}", daemon=True).start()
        return running
