"""ProcessEnv: argv, environment, clock, randomness, files and log of the plugin process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from windrow.core.rng import SystemRng
from windrow.plugin.files import LocalFiles


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
