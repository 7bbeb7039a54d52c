"""What the process hands in of the world outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from windrow.core.rng import Rng
from windrow.plugin.disk import Disk


@dataclass(frozen=True, slots=True)
class Edge:
    argv: Sequence[str]
    env: Mapping[str, str]
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    rng: Rng
    say: Callable[[str], None]
    disk: Disk

    def read_text(self, path: str) -> str:
        """Raises OSError, UnicodeError."""
        content = self.disk.read(path)
        if content is None:
            raise FileNotFoundError(f"{path} does not exist")
        return content.decode()
