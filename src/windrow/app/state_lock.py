"""One process per state directory: a lock file, which the system releases when the process ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.core.errors import UserError

try:
    import fcntl
except ImportError:  # Windows has none; there is no lock there
    fcntl = None  # type: ignore[assignment]


class DirectoryInUse(UserError):
    """Another process uses the state directory."""


@contextmanager
def lock_state_dir(state_dir: Path, role: str, program: str) -> Iterator[None]:
    """Hold `state_dir` in this role while the block runs; `program` is the name of such a process. Raises DirectoryInUse.

    The file stays: removing it would allow two processes to lock two files of one name.
    """
    if fcntl is None:
        yield
        return
    path = state_dir / f"{role}.lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            raise DirectoryInUse(
                f"{state_dir} is in use by another {program}{f' (process {holder})' if holder else ''}",
                "Stop that process, or name another directory with --state-dir.",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
