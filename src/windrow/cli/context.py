"""Everything the command line takes from its surroundings, in one value, so that tests can hand in others."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

WIDTH = 80


@dataclass(frozen=True, slots=True)
class CliContext:
    """`terminal` says whether `out` is one; `colour` whether colours are wanted there."""

    env: Mapping[str, str]
    cwd: Path
    stdin: TextIO
    out: TextIO
    err: TextIO
    now: Callable[[], datetime]
    terminal: bool = False
    colour: bool = False
    width: int = WIDTH

    def print(self, line: str = "") -> None:
        """One line of the answer."""
        print(line, file=self.out, flush=True)

    def print_note(self, line: str) -> None:
        """One line beside the answer: standard error, so that the answer can be piped on."""
        print(line, file=self.err, flush=True)


def process_context() -> CliContext:
    """The edge of this process."""
    terminal = sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"
    return CliContext(
        env=os.environ,
        cwd=Path.cwd(),
        stdin=sys.stdin,
        out=sys.stdout,
        err=sys.stderr,
        now=lambda: datetime.now(UTC),
        terminal=terminal,
        colour=terminal and not os.environ.get("NO_COLOR"),
        width=shutil.get_terminal_size((WIDTH, 24)).columns if terminal else WIDTH,
    )
