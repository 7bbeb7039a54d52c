"""Files and directories of a command: checks before it begins, and answers that go to a file."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from windrow.cli import exit_codes
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError
from windrow.core.files import write_private


def require_writable_directory(path: Path, shown: str) -> None:
    """Raise CliError unless `path` is a writable directory, or can be created as one."""
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise CliError(
            f"The state cannot be kept in {shown}: {nearest} is not a writable directory.",
            "Name a writable directory with --state-dir.",
            exit_codes.USAGE,
        )


def write_secret_answer(path: Path, text: str) -> None:
    """Write an answer that holds a secret to the file that the user names, mode 0600. Raises OSError."""
    if path.exists() and not path.is_file():  # a pipe or a terminal
        path.write_text(text)
    else:
        write_private(path.resolve(), text)  # a link stays, and leads to the new file


def require_writable_file(path: Path, shown: str) -> None:
    """Raise CliError unless `path` can be written as a file."""
    if not path.parent.is_dir():
        problem = "no such directory"
    elif path.is_dir():
        problem = "it is a directory"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        problem = "permission denied"
    else:
        return
    raise CliError(
        f"The report cannot be written to {shown}: {problem}.",
        "Name a writable file.",
        exit_codes.USAGE,
    )


DRIVER_PROGRAM = "docker-machine-driver-harvester"
CLOUD_PROVIDER = "harvester-cloud-provider"
BUILD_HINTS = {DRIVER_PROGRAM: "; `make driver` builds it in dist"}


def find_driver_program(backend: str | None, named: str | None, context: CliContext) -> Path | None:
    """The docker-machine plugin for --machine-backend plugin, None for direct. Raises CliError where there is none."""
    if backend == "direct" and named is not None:
        raise CliError(
            "--machine-backend direct and --driver exclude each other.",
            "Remove one of them.",
            exit_codes.USAGE,
        )
    if named is not None:
        return _require_program(context.cwd / named, named, "--driver", DRIVER_PROGRAM)
    if backend != "plugin":
        return None
    # Beside this interpreter lies the driver that was installed with this program.
    folders = (context.env.get("PATH", ""), str(Path(sys.executable).parent))
    found = shutil.which(DRIVER_PROGRAM, path=os.pathsep.join(place for place in folders if place))
    if found is None:
        raise CliError(
            f"{DRIVER_PROGRAM} not found in PATH.",
            "Name it with --driver FILE; `make driver` builds it.",
            exit_codes.USAGE,
        )
    return Path(found)


# A file that a person wrote has some kilobytes; a device has no end.
MAX_TEXT_FILE = 16 * 1024 * 1024


def read_text_file(path: Path, shown: str) -> str:
    """The text of a file in UTF-8. Raises CliError for one without end, OSError, UnicodeDecodeError."""
    with open(path, encoding="utf-8") as file:
        return limit_text(file.read(MAX_TEXT_FILE + 1), shown)


def limit_text(text: str, shown: str) -> str:
    """The text, which was read up to one character beyond MAX_TEXT_FILE. Raises CliError where it is longer."""
    if len(text) > MAX_TEXT_FILE:
        raise CliError(
            f"{shown} has more than {MAX_TEXT_FILE // 1024**2} MiB.",
            "Name a file of YAML.",
            exit_codes.REFUSED,
        )
    return text


# Beyond it a file is refused as too large, whatever follows.
_MATRIX_READ = 1024 * 1024 + 1


def read_support_matrix(named: str | None, context: CliContext) -> str:
    """The text of the file for --support-matrix, "" for none. Raises OSError, UnicodeDecodeError."""
    if not named:
        return ""
    with open(context.cwd / named, encoding="utf-8") as file:
        return file.read(_MATRIX_READ)


_PROGRAMS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"#!")
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04")


def find_cloud_provider(named: str | None, context: CliContext) -> Path | None:
    """The program for --cloud-provider; None for Windrow's own, in this process. Raises CliError."""
    return (
        None
        if named is None
        else _require_program(context.cwd / named, named, "--cloud-provider", CLOUD_PROVIDER)
    )


def _require_program(path: Path, shown: str, flag: str, program: str) -> Path:
    """Raise CliError unless the file looks like a program; `app.machines` checks that a driver is one."""
    problem, hint = _find_problem(path, shown, flag, program)
    if problem:
        raise CliError(problem, hint, exit_codes.USAGE)
    return path


def _find_problem(path: Path, shown: str, flag: str, program: str) -> tuple[str, str]:
    hint = f"Name the program {program} itself{BUILD_HINTS.get(program, '')}."
    if not shown:
        return f"{flag} names no file.", hint
    if path.is_dir():
        return f"{shown} is a directory.", hint
    if not path.is_file():
        return f"{shown} is not a file.", hint
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        return f"{shown} cannot be read: {error.strerror}.", "Make it readable, or name another file."
    if magic.startswith(_ARCHIVES):
        return f"{shown} is an archive.", f"Unpack it, and name the program {program} in it."
    if not magic.startswith(_PROGRAMS):
        return f"{shown} is not a program.", hint
    if not os.access(path, os.X_OK):
        return f"{shown} is not executable.", f"Make it executable: chmod +x {shown}"
    return "", ""
