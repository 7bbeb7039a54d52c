"""Words for whoever sits before the host: standard output at Info level, standard error with `--debug`.

The host's reader stops at a line of 64 KiB, and Rancher keeps 4096 bytes of all that is said; so lines are short, and
one whose reader has stopped is dropped: the process must never hang on its own words.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from threading import Lock

from windrow.core.text import one_line

LONGEST = 2000
# What a pipe that polls as writable takes without blocking (PIPE_BUF) is more than any line of ours.
PATIENCE_MS = 500


class Teller:
    """Writes lines to one descriptor. Threads may share it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = Lock()

    def say(self, text: str) -> None:
        """One line, cut if it is long, dropped if nobody takes it."""
        line = one_line(text, LONGEST).encode("utf-8", "replace")[:LONGEST] + b"\n"
        with self._lock, suppress(OSError, ValueError):
            look = select.poll()
            look.register(self._descriptor, select.POLLOUT)
            if look.poll(PATIENCE_MS):
                os.write(self._descriptor, line)
