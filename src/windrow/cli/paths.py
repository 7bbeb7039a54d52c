"""Files and directories that a verb will need: looked at before it begins, not after its work is done."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from windrow.cli import exit_codes
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError


def require_writable_directory(path: Path, shown: str) -> None:
    """Complain unless `path` is a directory that can be written to, or one that can be made."""
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise CliError(
            f"The state cannot be kept in {shown}: {nearest} is not a directory that can be written to.",
            "Name a directory that can be written to.",
            exit_codes.USAGE,
        )


def require_writable_file(path: Path, shown: str) -> None:
    """Complain unless `path` can be written as a file."""
    if not path.parent.is_dir():
        problem = "there is no such directory"
    elif path.is_dir():
        problem = "it is a directory"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        problem = "that is not allowed"
    else:
        return
    raise CliError(
        f"The report cannot be written to {shown}: {problem}.",
        "Name a file that can be written.",
        exit_codes.USAGE,
    )


DRIVER_PROGRAM = "docker-machine-driver-harvester"


def find_driver_program(backend: str | None, args: str | None, context: CliContext) -> Path | None:
    """The plugin that shall make machines; None where they are made directly. Complains where there is none."""
    if backend == "direct" and args is not None:
        raise CliError(
            "--machine-backend direct uses no driver file, and --driver names one.",
            "Leave one of the two out.",
            exit_codes.USAGE,
        )
    if args is not None:
        return _require_program(context.cwd / args, args)
    if backend != "plugin":
        return None
    # Beside this interpreter stands the one that was installed together with this program.
    folders = (context.env.get("PATH", ""), str(Path(sys.executable).parent))
    found = shutil.which(DRIVER_PROGRAM, path=os.pathsep.join(place for place in folders if place))
    if found is None:
        raise CliError(
            f"There is no {DRIVER_PROGRAM} in PATH.",
            "Name one with --driver FILE; make driver builds it.",
            exit_codes.USAGE,
        )
    return Path(found)


_PROGRAMS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"#!")
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04")


CLOUD_PROVIDER = "harvester-cloud-provider"


def find_cloud_provider(args: str | None, context: CliContext) -> Path | None:
    """The program that guests shall run as their cloud provider; None for ours, in this process."""
    if args is None:
        return None
    path = context.cwd / args
    hint = f"Name the file {CLOUD_PROVIDER} itself."
    if not args or not path.is_file():
        raise CliError(f"--cloud-provider: there is no file {args!r}.", hint, exit_codes.USAGE)
    if not os.access(path, os.X_OK):
        raise CliError(
            f"{args} may not be executed.", f"Make it executable: chmod +x {args}", exit_codes.USAGE
        )
    return path


def _require_program(path: Path, shown: str) -> Path:
    """Complain unless the file may be a program; whether it is a driver shows when it is asked."""
    problem, hint = _find_problem(path, shown)
    if problem:
        raise CliError(problem, hint, exit_codes.USAGE)
    return path


def _find_problem(path: Path, shown: str) -> tuple[str, str]:
    hint = f"Name the file {DRIVER_PROGRAM} itself; make driver builds it in dist."
    if not shown:
        return "--driver names no file.", hint
    if path.is_dir():
        return f"{shown} is a directory.", hint
    if not path.is_file():
        return f"There is no file {shown}.", hint
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        return f"{shown} cannot be read: {error.strerror}.", "Make it readable, or name another."
    if magic.startswith(_ARCHIVES):
        return f"{shown} is an archive.", f"Unpack it, and name the file {DRIVER_PROGRAM} out of it."
    if not magic.startswith(_PROGRAMS):
        return f"{shown} is no program.", hint
    if not os.access(path, os.X_OK):
        return f"{shown} may not be executed.", f"Make it executable: chmod +x {shown}"
    return "", ""
