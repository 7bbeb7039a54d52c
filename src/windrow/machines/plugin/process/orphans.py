"""Processes that outlive what started them: what a plugin left when it ended, and the plugins of a host that was killed,
in whatever session.

Each has the id of its host in its environment; the host keeps its id in its state directory. So an unrelated process
with a reused pid is never killed. A process can start another with an empty environment. So each has a number made of the
id as a limit as well: fork and exec keep it, and the sandbox does not let it be changed. The limit is RLIMIT_RTTIME, which
matters only to real-time processes, and to those not before two weeks of processor time. Its low bits count the plugins of
a host, so that what one of them left is told from the others'.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from windrow.core.files import write_private
from windrow.core.rng import Rng

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

HOST_ID_ENV = "WINDROW_PLUGIN_OF"
_HOST_ID_FILE = "host"
_SERIAL_BITS = 20
_serials = itertools.count()

log = logging.getLogger(__name__)


def new_host_id(rng: Rng, state_dir: Path) -> str:
    """The id of a host that begins now."""
    return f"{rng.uid()}@{state_dir}"


@contextmanager
def marked(host_id: str) -> Iterator[int | None]:
    """What this process starts meanwhile is known by `kill_orphans`, whatever its environment becomes, and by
    `kill_marked` with the mark that this yields; None where there is none."""
    limit = getattr(resource, "RLIMIT_RTTIME", None)
    if limit is None or not host_id:
        yield None
        return
    soft, hard = resource.getrlimit(limit)
    mark = _mark(host_id) + next(_serials) % 2**_SERIAL_BITS
    is_marked = False
    with suppress(OSError, ValueError):  # the hard limit is lower: only the environment tells
        resource.setrlimit(limit, (mark, hard))
        is_marked = True
    try:
        yield mark if is_marked else None
    finally:
        resource.setrlimit(limit, (soft, hard))


def _mark(host_id: str) -> int:
    """Of a host, with the number of no plugin. In microseconds: 2**40 are twelve days."""
    return 2**40 + (int.from_bytes(hashlib.sha256(host_id.encode()).digest()[:5]) << _SERIAL_BITS)


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
    first = _mark(host_id)
    killed = _kill_all(marker, range(first, first + 2**_SERIAL_BITS))
    if killed:
        log.warning("killed %d orphaned plugin processes", killed)
    return killed


def kill_marked(mark: int) -> int:
    """Kill all that a plugin started, where it left its process group; returns how many there were. It has ended."""
    killed = _kill_all(None, range(mark, mark + 1))
    if killed:
        log.warning("killed %d processes that a plugin left", killed)
    return killed


def _kill_all(marker: bytes | None, limits: range) -> int:
    killed: set[int] = set()
    while found := {pid for pid in _processes() if pid not in killed and _kill(pid, marker, limits)}:
        killed |= found
    return len(killed)


def _processes() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                yield int(name)


def _kill(pid: int, marker: bytes | None, limits: range) -> bool:
    """Whether that process had the marker and was killed; its pidfd excludes a reused pid."""
    if not _has_marker(pid, marker, limits) or _is_zombie(pid):
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return False
    try:
        if not _has_marker(pid, marker, limits):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _is_zombie(pid: int) -> bool:
    """Whether it has ended, and waits only for its parent: its limits can still be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"Z"
    except OSError:
        return True


def _has_marker(pid: int, marker: bytes | None, limits: range) -> bool:
    try:
        if marker is not None and marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return True
    except OSError:  # a process can make its environment unreadable, but not its limits
        pass
    try:
        _, _, line = Path(f"/proc/{pid}/limits").read_bytes().partition(b"Max realtime timeout")
        return int(line.split()[0]) in limits
    except (OSError, ValueError, IndexError):  # "unlimited"
        return False
