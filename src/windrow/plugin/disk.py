"""The files of the host's machine store, on the machine where the plugin runs."""

from __future__ import annotations

import os
from contextlib import suppress

from windrow.core.rng import Rng
from windrow.nodedriver.ssh_access import WriteFile

# No document or key comes near to this; a device or a pipe may go on for ever.
LONGEST = 2**24
_FOLDER_MODE = 0o700


class Disk:
    """Reads and writes; `nodedriver.ssh_access.Files` among others. Raises OSError."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def read(self, path: str) -> bytes | None:
        """The content, None where there is no such file."""
        try:
            with open(path, "rb") as file:
                content = file.read(LONGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if len(content) > LONGEST:
            raise OSError(f"{path} is larger than {LONGEST} bytes")
        return content

    def mode(self, path: str) -> int:
        """The permission bits of a file that exists."""
        return os.stat(path).st_mode & 0o777

    def write(self, file: WriteFile) -> None:
        """The whole file or nothing, and never readable for others in between; its folders as well."""
        folder = os.path.dirname(file.path)
        if folder:
            os.makedirs(folder, _FOLDER_MODE, exist_ok=True)
        beside = f"{file.path}.{self._rng.name_suffix(8)}"
        made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, file.mode)
        try:
            with os.fdopen(made, "wb") as stream:
                stream.write(file.content)
                os.fchmod(made, file.mode)
            os.rename(beside, file.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise
