"""The files of the host's machine store, on the machine where the plugin runs."""

from __future__ import annotations

import os
from contextlib import suppress

from windrow.core.rng import Rng
from windrow.nodedriver.ssh.access import WriteFile

# No document or key comes near to this; a device or a pipe may go on for ever.
MAX_FILE_SIZE = 2**24
_FOLDER_MODE = 0o700


class LocalFiles:
    """Reads whole files, and writes them whole or not at all. Raises OSError."""

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
