"""What the command line takes from its process: streams, environment, directory, clock. Tests pass their own."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from windrow.cli.output.lines import wrap_line
from windrow.core.errors import UserError
from windrow.core.text import printable

WIDTH = 80
PROGRAM = "windrow"
# `windrow` where a command follows it: not a path, a module or an API group.
_COMMAND = re.compile(r"(?<![\w./-])windrow(?= (?:-|[a-z]+\b))")


class OutputFailed(UserError):
    """The answer cannot be printed."""


@dataclass(frozen=True, slots=True)
class CliContext:
    """`terminal`: whether `out` is one. `colour`: whether to print colours there. `program`: how a user types `windrow`
    in this shell; every command that a note, a hint or the demo offers is printed with it."""

    env: Mapping[str, str]
    cwd: Path
    stdin: TextIO
    out: TextIO
    err: TextIO
    now: Callable[[], datetime]
    terminal: bool = False
    colour: bool = False
    width: int = WIDTH
    program: str = PROGRAM

    def print(self, line: str = "") -> None:
        """One line of the answer, or a document, to standard output, without what a terminal would obey."""
        self.print_coloured(printable(line, besides="\n\t"))

    def print_wrapped(self, text: str) -> None:
        """A sentence of the answer, wrapped between words, so that a name in it stays whole."""
        for line in wrap_line(text, self.width):
            self.print(line)

    def print_coloured(self, line: str) -> None:
        """A line that holds nothing of others but printable text."""
        try:
            print(line, file=self.out, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(
                f"standard output cannot be written: {error.strerror or error}",
                "Free space where it goes to, or send it elsewhere.",
            ) from error

    def print_note(self, text: str) -> None:
        """A sentence beside the answer, wrapped, to standard error, so that the answer can be piped."""
        for line in wrap_line(text, self.width):
            print(self.typed(printable(line)), file=self.err, flush=True)

    def typed(self, text: str) -> str:
        """`text` with each `windrow COMMAND` in it as the user can type it."""
        return text if self.program == PROGRAM else _COMMAND.sub(self.program, text)


def process_context() -> CliContext:
    """The context of this process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a locale without → or ├ must not end a command
            stream.reconfigure(errors="replace")
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
        program=_typed_program(),
    )


def _typed_program() -> str:
    """The first words of a command line that starts this program again from the present directory."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{_shortest(Path(sys.executable), 'python')} -m {PROGRAM}"
    return _shortest(started, PROGRAM) if started.name == PROGRAM else PROGRAM


def _shortest(program: Path, name: str) -> str:
    """`name` where the PATH leads to that very file, else its path, relative to the directory where it lies below."""
    found = shutil.which(name)
    if found is not None and Path(found).absolute() == program.absolute():
        return name
    with suppress(ValueError):
        below = str(program.absolute().relative_to(Path.cwd()))
        return below if os.sep in below else os.path.join(os.curdir, below)
    return str(program)
