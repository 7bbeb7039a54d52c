"""Processes that a host which was killed left behind: plugins that never spoke, so that no watchdog of theirs runs, and
what they had started, in whatever session it went to.

Each bears in its environment the number of its host, which stands in the host's state directory. So no process can be taken for one that once had
its number, and what was started by a plugin is found as the plugin itself is.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "WINDROW_PLUGIN_OF"
_NUMBER = "host"

log = logging.getLogger(__name__)


def succeed(state: Path, number: str) -> None:
    """End what the host before this one left, and be the one whose number stands in the directory."""
    path = state / _NUMBER
    with suppress(FileNotFoundError):
        if before := path.read_text().strip():
            sweep(before)
    path.write_text(f"{number}\n")


def sweep(number: str) -> int:
    """Kill all that bear this number; return how many there were. What they start meanwhile is killed, too."""
    mark = f"{MARK}={number}".encode()
    swept: set[int] = set()
    while found := {pid for pid in _processes() if pid not in swept and _kill(pid, mark)}:
        swept |= found
    if swept:
        log.warning("%d processes that plugins had left behind were ended", len(swept))
    return len(swept)


def _processes() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                yield int(name)


def _kill(pid: int, mark: bytes) -> bool:
    """Whether that process bore the mark, lived, and was killed: the very one, as its pidfd holds it."""
    if not _bears(pid, mark):
        return False
    try:
        held = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return False
    try:
        if not _bears(pid, mark):
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(held)
    return True


def _bears(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
