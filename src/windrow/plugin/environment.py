"""What the plugin process has of its machine: files, log, clock, randomness, argv and environment."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Lock

from windrow.core.rng import Rng, SystemRng
from windrow.core.text import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windrow.nodedriver.ssh.access import WriteFile

# No document or key comes near to this; a device or a pipe may go on for ever.
MAX_FILE_SIZE = 2**24
_FOLDER_MODE = 0o700

MAX_LINE = 2000
# What a pipe that polls as writable takes without blocking (PIPE_BUF) is more than any line of ours.
WRITE_TIMEOUT_MS = 500


class LocalFiles:
    """The files of the host's machine store: reads whole files, and writes them whole or not at all. Raises OSError."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def read(self, path: str) -> bytes | None:
        """The content, None where there is no such file."""
        found = self.read_with_mode(path)
        return found[0] if found is not None else None

    def read_with_mode(self, path: str) -> tuple[bytes, int] | None:
        """Content and permission bits, None where there is no such file."""
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_FILE_SIZE + 1)
                mode = os.fstat(file.fileno()).st_mode & 0o777
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(content) > MAX_FILE_SIZE:
            raise OSError(f"{path} is larger than {MAX_FILE_SIZE} bytes")
        return content, mode

    def write(self, file: WriteFile) -> None:
        """The whole file or nothing, and never readable for others in between; its folders as well."""
        folder = os.path.dirname(file.path)
        if folder:
            os.makedirs(folder, _FOLDER_MODE, exist_ok=True)
        temporary = f"{file.path}.{self._rng.name_suffix(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, file.mode)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(file.content)
                os.fchmod(descriptor, file.mode)
            os.rename(temporary, file.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


class LineWriter:
    """Writes log lines to one descriptor: hosts show standard output at Info level, standard error with `--debug`. Threads
    may share it.

    The host's reader stops at a line of 64 KiB, and Rancher keeps 4096 bytes in all; so lines are short, and a line whose
    reader has stopped is dropped: the process must never block on its log.
    """

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


@dataclass(frozen=True, slots=True)
class ProcessEnv:
    argv: Sequence[str]
    env: Mapping[str, str]
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    rng: SystemRng  # keys are made of it
    log: Callable[[str], None]
    files: LocalFiles

    def read_text(self, path: str) -> str:
        """Raises OSError, UnicodeError."""
        content = self.files.read(path)
        if content is None:
            raise FileNotFoundError(f"{path} does not exist")
        return content.decode()
