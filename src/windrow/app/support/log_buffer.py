"""The last lines of the log of this process, in memory."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from windrow.core.logs import JsonFormatter

MAX_BYTES = 1 << 20


class LogBuffer(logging.Handler):
    """Keeps the latest lines, as JSON, of at most `max_bytes` together. Threads may log while others read.

    `position` is how many lines there were: what is read after it is new.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self._max_bytes, self._bytes = max_bytes, 0
        self._lines: deque[str] = deque()
        self.position = 0
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        self._lines.append(line)
        self.position += 1
        self._bytes += len(line) + 1
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._lines.popleft()) + 1
        while self._waiting:
            event, loop = self._waiting.popitem()
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(event.set)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines_after(0)[0])

    def lines_after(self, position: int) -> tuple[list[str], int]:
        """The lines that came after the first `position` ones and are still kept, and the position of the last."""
        assert self.lock is not None
        with self.lock:
            dropped = self.position - len(self._lines)
            return list(islice(self._lines, max(0, position - dropped), None)), self.position

    async def wait_beyond(self, position: int) -> None:
        """Return once there is a line after `position`. May be cancelled."""
        assert self.lock is not None
        while True:
            event = asyncio.Event()
            with self.lock:
                if self.position > position:
                    return
                self._waiting[event] = asyncio.get_running_loop()
            try:
                await event.wait()
            finally:
                self._waiting.pop(event, None)


@contextmanager
def recording_logs() -> Iterator[LogBuffer]:
    """A buffer of what this process logs meanwhile, at the levels that are logged anyway."""
    buffer, root = LogBuffer(), logging.getLogger()
    root.addHandler(buffer)
    try:
        yield buffer
    finally:
        root.removeHandler(buffer)
