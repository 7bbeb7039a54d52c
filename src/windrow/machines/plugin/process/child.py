"""A child process that cannot be left behind.

It lives in a process group of its own, both of its pipes are drained from the first moment to the last, and its end
is heard through a pidfd: no thread, no signal handler, no task. Nothing here waits between the start of the process
and the moment from which `kill` reaches it, so no cancellation can come between them. The process is reaped only
after its whole group was killed: until then its number cannot belong to anybody else.
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

LINE_LIMIT = 4096
# Between the beginning of a line and how much more there was.
CUT_MARK = " … ("
_READ_SIZE = 65536
_MAX_LAST_READS = 32
# Where the kernel has no pidfds the process is looked at so often.
_POLL_S = 0.1
# A killed process is dead in no time; one that hangs in the kernel is not waited for.
_KILL_TIMEOUT_S = 5.0

log = logging.getLogger(__name__)


class LineBuffer:
    """Cuts a stream into lines, whatever their length: of each the beginning is kept."""

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
        """What stands after the last newline."""
        return [self._flush()] if self._line or self._dropped else []

    def _add(self, piece: bytes) -> None:
        space = self._limit - len(self._line)
        self._line += piece[:space]
        self._dropped += max(len(piece) - space, 0)

    def _flush(self) -> str:
        text = self._line.decode(errors="replace").rstrip("\r")
        if self._dropped:  # the last letter may have been cut, too
            text = f"{text.rstrip(chr(0xFFFD))}{CUT_MARK}{self._dropped} bytes more)"
        self._line, self._dropped = bytearray(), 0
        return text


class _Pipe:
    def __init__(self, stream: IO[bytes], on_line: Callable[[str], None], on_end: Callable[[], None]) -> None:
        self.stream, self.on_line, self.on_end = stream, on_line, on_end
        self.buffer = LineBuffer()


class ChildProcess:
    """A running process. `out` and `err` hear each line of it; `out_ended` and `exited` are set once.

    Raises OSError when it cannot be started. Whoever makes a Child must `kill` it or see `exited`.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        on_stdout: Callable[[str], None],
        on_stderr: Callable[[str], None],
        folder: Path | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.out_ended = asyncio.Event()
        self.exited = asyncio.Event()
        self.code: int | None = None
        self._pidfd = -1
        self._poll_timer: asyncio.TimerHandle | None = None
        self._pipes: dict[int, _Pipe] = {}
        self._process = subprocess.Popen(
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
        self.pid = self._process.pid
        try:
            self._drain(self._process.stdout, on_stdout, self.out_ended.set)
            self._drain(self._process.stderr, on_stderr, lambda: None)
            self._watch_exit()
        except BaseException:
            self.kill()
            self._reap()
            raise

    def terminate(self) -> None:
        """Ask the process to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process and whatever it started. May be repeated."""
        self._signal(signal.SIGKILL)

    async def kill_and_wait(self) -> None:
        """Kill, and return once the process is gone. A cancellation waits for that, and then goes its way."""
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
            log.error("process %d was killed and does not end; it is left to the system", self.pid)
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
        """Take a portion of what is there; False when there is no more for now."""
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
        """The process is dead and not yet reaped: now its number still names its group, and nobody else's."""
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
        # Its last words are still in the pipes; a stranger who holds the other end is not waited for.
        for fd in list(self._pipes):
            reads = 0
            while reads < _MAX_LAST_READS and fd in self._pipes and self._read(fd):
                reads += 1
            if fd in self._pipes:
                self._close(fd)
        self.exited.set()
