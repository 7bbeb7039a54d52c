"""The last lines of the log of this process, in memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from windrow.core.logs import JsonFormatter

MAX_BYTES = 1 << 20


class LogBuffer(logging.Handler):
    """Keeps the latest lines, as JSON, of at most `max_bytes` together."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self._max_bytes, self._bytes = max_bytes, 0
        self._lines: deque[str] = deque()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        self._lines.append(line)
        self._bytes += len(line) + 1
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._lines.popleft()) + 1

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


@contextmanager
def recording_logs() -> Iterator[LogBuffer]:
    """A buffer of what this process logs meanwhile, at the levels that are logged anyway."""
    buffer, root = LogBuffer(), logging.getLogger()
    root.addHandler(buffer)
    try:
        yield buffer
    finally:
        root.removeHandler(buffer)
