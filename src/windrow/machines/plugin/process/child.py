"""A child process that cannot be leaked.

It has a process group of its own, both of its pipes are always drained, and its end is reported by a pidfd: no thread,
no signal handler, no task. There is no await between the start of the process and the moment from which `kill` reaches
it, so no cancellation can come between. The process is reaped only after its whole group was killed: until then its
pid cannot belong to another process. Then whatever left the group is killed, too. With a sandbox it is in that from its first instruction on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from windrow.machines.plugin.process.orphans import HOST_ID_ENV, kill_marked, marked
from windrow.machines.plugin.process.sandbox import Sandbox, call_in_sandbox, limit_process

LINE_LIMIT = 4096
# Between the kept beginning of a line and the size of the rest.
CUT_MARK = " … ("
_READ_SIZE = 65536
_MAX_LAST_READS = 32
# The interval of polling for the exit where the kernel has no pidfds.
_POLL_S = 0.1
# A process that hangs in the kernel survives SIGKILL for a while; it is awaited no longer than this.
_KILL_TIMEOUT_S = 5.0

log = logging.getLogger(__name__)


class LineBuffer:
    """Splits a stream into lines of any length, of which it keeps the beginning."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._line = bytearray()
        self._dropped = 0

    def feed(self, data: bytes) -> list[str]:
        *complete, rest = data.split(b"\n")
        lines = []
        for piece in complete:
            self._add(piece)
            lines.append(self._flush())
        self._add(rest)
        return lines

    def end(self) -> list[str]:
        """The text after the last newline."""
        return [self._flush()] if self._line or self._dropped else []

    def _add(self, piece: bytes) -> None:
        space = self._limit - len(self._line)
        self._line += piece[:space]
        self._dropped += max(len(piece) - space, 0)

    def _flush(self) -> str:
        text = self._line.decode(errors="replace").rstrip("\r")
        if self._dropped:  # a multi-byte character may have been cut, too
            text = f"{text.rstrip(chr(0xFFFD))}{CUT_MARK}{self._dropped} bytes more)"
        self._line, self._dropped = bytearray(), 0
        return text


class _Pipe:
    def __init__(self, stream: IO[bytes], on_line: Callable[[str], None], on_end: Callable[[], None]) -> None:
        self.stream, self.on_line, self.on_end = stream, on_line, on_end
        self.buffer = LineBuffer()


class ChildProcess:
    """A running process. `on_stdout` and `on_stderr` get each of its lines; `out_ended` and `exited` are set once.

    Raises OSError when it cannot be started, and SandboxFailed. The owner must `kill` it or see `exited`.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        on_stdout: Callable[[str], None],
        on_stderr: Callable[[str], None],
        folder: Path | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.out_ended = asyncio.Event()
        self.exited = asyncio.Event()
        self.code: int | None = None
        self._pidfd = -1
        self._poll_timer: asyncio.TimerHandle | None = None
        self._pipes: dict[int, _Pipe] = {}

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                cwd=folder,
                umask=0o077,
                process_group=0,
            )

        with marked(env.get(HOST_ID_ENV, "")) as self._mark:
            self._process = start() if sandbox is None else call_in_sandbox(sandbox, start)
        self.pid = self._process.pid
        limit_process(self.pid)
        try:
            self._drain(self._process.stdout, on_stdout, self.out_ended.set)
            self._drain(self._process.stderr, on_stderr, lambda: None)
            self._watch_exit()
        except BaseException:
            self.kill()
            self._reap()
            raise

    def terminate(self) -> None:
        """Send SIGTERM to the process group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process group. May be repeated."""
        self._signal(signal.SIGKILL)

    async def wait_exited(self, within_s: float) -> None:
        """Return when the process has ended, or after that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.exited.wait()

    async def kill_and_wait(self) -> None:
        """Kill the process group, and return once the process has ended, also when cancelled meanwhile."""
        self.kill()
        cancelled: asyncio.CancelledError | None = None
        deadline = self._loop.time() + _KILL_TIMEOUT_S
        timer = self._loop.call_at(deadline, self.exited.set)
        while not self.exited.is_set():
            try:
                await self.exited.wait()
            except asyncio.CancelledError as cancel:
                cancelled = cancel
        timer.cancel()
        if self.code is None:
            log.error("process %d does not end after SIGKILL; it is abandoned", self.pid)
        if cancelled is not None:
            raise cancelled

    def _signal(self, signal_number: int) -> None:
        if self.code is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal_number)

    # --- the pipes ------------------------------------------------------------------------------------------------

    def _drain(
        self, pipe: IO[bytes] | None, on_line: Callable[[str], None], on_end: Callable[[], None]
    ) -> None:
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        self._pipes[pipe.fileno()] = _Pipe(pipe, on_line, on_end)
        self._loop.add_reader(pipe.fileno(), self._read, pipe.fileno())

    def _read(self, fd: int) -> bool:
        """Read once; False when there is no more for now."""
        pipe = self._pipes[fd]
        try:
            data = os.read(fd, _READ_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        for line in pipe.buffer.feed(data) if data else ():
            pipe.on_line(line)
        if not data:
            self._close(fd)
        return bool(data)

    def _close(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        pipe = self._pipes.pop(fd)
        pipe.stream.close()
        for line in pipe.buffer.end():
            pipe.on_line(line)
        pipe.on_end()

    # --- the end --------------------------------------------------------------------------------------------------

    def _watch_exit(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._poll_timer = self._loop.call_later(_POLL_S, self._poll_exit)
        else:
            self._loop.add_reader(self._pidfd, self._on_exit)

    def _poll_exit(self) -> None:
        if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return self._on_exit()
        self._poll_timer = self._loop.call_later(_POLL_S, self._poll_exit)
        return None

    def _on_exit(self) -> None:
        """The process has exited and is not reaped yet: its pid still names its group, and no other."""
        self.kill()
        self._reap()

    def _reap(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        self.code = self._process.wait()
        # Its last output is still in the pipes. Another process may hold the other end, so the reads are bounded.
        for fd in list(self._pipes):
            reads = 0
            while reads < _MAX_LAST_READS and fd in self._pipes and self._read(fd):
                reads += 1
            if fd in self._pipes:
                self._close(fd)
        if self._mark is None:
            self.exited.set()
        else:  # it reads a file of each process of the computer
            self._loop.run_in_executor(None, self._kill_left, self._mark)

    def _kill_left(self, mark: int) -> None:
        try:
            kill_marked(mark)
        finally:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.exited.set)
