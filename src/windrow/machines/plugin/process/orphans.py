"""Orphaned processes of a plugin host that was killed: plugins whose watchdog never started, and what plugins started,
in whatever session.

Each has the id of its host in its environment; the host keeps its id in its state directory. So an unrelated process
with a reused pid is never killed.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from windrow.core.files import write_private

HOST_ID_ENV = "WINDROW_PLUGIN_OF"
_HOST_ID_FILE = "host"

log = logging.getLogger(__name__)


def reap_previous_host(state_dir: Path, host_id: str) -> None:
    """Kill the orphans of the previous host with this state directory, and record `host_id` as its host."""
    path = state_dir / _HOST_ID_FILE
    with suppress(FileNotFoundError):
        if previous := path.read_text().strip():
            kill_orphans(previous)
    write_private(path, f"{host_id}\n")


def kill_orphans(host_id: str) -> int:
    """Kill all processes of this host id; returns how many there were. What they start meanwhile is killed, too."""
    marker = f"{HOST_ID_ENV}={host_id}".encode()
    killed: set[int] = set()
    while found := {pid for pid in _processes() if pid not in killed and _kill(pid, marker)}:
        killed |= found
    if killed:
        log.warning("killed %d orphaned plugin processes", len(killed))
    return len(killed)


def _processes() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                yield int(name)


def _kill(pid: int, marker: bytes) -> bool:
    """Whether that process had the marker and was killed; its pidfd excludes a reused pid."""
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
