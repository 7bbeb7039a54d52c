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

HOST_ID_ENV = "WINDROW_PLUGIN_OF"
_HOST_ID_FILE = "host"

log = logging.getLogger(__name__)


def reap_previous_host(state_dir: Path, host_id: str) -> None:
    """End what the host before this one left, and be the one whose number stands in the directory."""
    path = state_dir / _HOST_ID_FILE
    with suppress(FileNotFoundError):
        if previous := path.read_text().strip():
            kill_orphans(previous)
    path.write_text(f"{host_id}\n")


def kill_orphans(host_id: str) -> int:
    """Kill all that bear this number; return how many there were. What they start meanwhile is killed, too."""
    marker = f"{HOST_ID_ENV}={host_id}".encode()
    killed: set[int] = set()
    while found := {pid for pid in _processes() if pid not in killed and _kill(pid, marker)}:
        killed |= found
    if killed:
        log.warning("%d processes that plugins had left behind were ended", len(killed))
    return len(killed)


def _processes() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                yield int(name)


def _kill(pid: int, marker: bytes) -> bool:
    """Whether that process bore the mark, lived, and was killed: the very one, as its pidfd holds it."""
    if not _has_marker(pid, marker):
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return False
    try:
        if not _has_marker(pid, marker):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _has_marker(pid: int, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
