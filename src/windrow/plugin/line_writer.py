"""LineWriter: the plugin's log lines; hosts show standard output at Info level, standard error with `--debug`.

The host's reader stops at a line of 64 KiB, and Rancher keeps 4096 bytes in all; so lines are short, and a line whose
reader has stopped is dropped: the process must never block on its log.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from threading import Lock

from windrow.core.text import one_line

MAX_LINE = 2000
# What a pipe that polls as writable takes without blocking (PIPE_BUF) is more than any line of ours.
WRITE_TIMEOUT_MS = 500


class LineWriter:
    """Writes lines to one descriptor. Threads may share it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = Lock()

    def write(self, text: str) -> None:
        """One line, cut if it is long, dropped where the reader has stopped."""
        line = one_line(text, MAX_LINE).encode("utf-8", "replace")[:MAX_LINE] + b"\n"
        with self._lock, suppress(OSError, ValueError):
            poller = select.poll()
            poller.register(self._descriptor, select.POLLOUT)
            if poller.poll(WRITE_TIMEOUT_MS):
                os.write(self._descriptor, line)
