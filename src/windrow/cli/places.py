"""Files and directories that a verb will need: looked at before it begins, not after its work is done."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from windrow.cli import exits
from windrow.cli.complaints import Complaint
from windrow.cli.edge import Edge


def insist_on_directory(path: Path, said: str) -> None:
    """Complain unless `path` is a directory that can be written to, or one that can be made."""
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise Complaint(
            f"The state cannot be kept in {said}: {nearest} is not a directory that can be written to.",
            "Name a directory that can be written to.",
            exits.USAGE,
        )


def insist_on_file(path: Path, said: str) -> None:
    """Complain unless `path` can be written as a file."""
    if not path.parent.is_dir():
        fault = "there is no such directory"
    elif path.is_dir():
        fault = "it is a directory"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        fault = "that is not allowed"
    else:
        return
    raise Complaint(
        f"The report cannot be written to {said}: {fault}.", "Name a file that can be written.", exits.USAGE
    )


DRIVER = "docker-machine-driver-harvester"


def find_driver(way: str | None, given: str | None, edge: Edge) -> Path | None:
    """The plugin that shall make machines; None where they are made directly. Complains where there is none."""
    if way == "direct" and given is not None:
        raise Complaint(
            "--machines direct uses no driver file, and --driver names one.",
            "Leave one of the two out.",
            exits.USAGE,
        )
    if given is not None:
        return _insist_on_program(edge.cwd / given, given)
    if way != "plugin":
        return None
    # Beside this interpreter stands the one that was installed together with this program.
    places = (edge.env.get("PATH", ""), str(Path(sys.executable).parent))
    found = shutil.which(DRIVER, path=os.pathsep.join(place for place in places if place))
    if found is None:
        raise Complaint(
            f"There is no {DRIVER} in PATH.",
            "Name one with --driver FILE; make driver builds it.",
            exits.USAGE,
        )
    return Path(found)


_PROGRAMS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"#!")
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04")


CLOUD_PROVIDER = "harvester-cloud-provider"


def find_cloud_provider(given: str | None, edge: Edge) -> Path | None:
    """The program that guests shall run as their cloud provider; None for ours, in this process."""
    if given is None:
        return None
    path = edge.cwd / given
    cure = f"Name the file {CLOUD_PROVIDER} itself."
    if not given or not path.is_file():
        raise Complaint(f"--cloud-provider: there is no file {given!r}.", cure, exits.USAGE)
    if not os.access(path, os.X_OK):
        raise Complaint(f"{given} may not be executed.", f"Make it executable: chmod +x {given}", exits.USAGE)
    return path


def _insist_on_program(path: Path, said: str) -> Path:
    """Complain unless the file may be a program; whether it is a driver shows when it is asked."""
    fault, cure = _find_fault(path, said)
    if fault:
        raise Complaint(fault, cure, exits.USAGE)
    return path


def _find_fault(path: Path, said: str) -> tuple[str, str]:
    name_it = f"Name the file {DRIVER} itself; make driver builds it in dist."
    if not said:
        return "--driver names no file.", name_it
    if path.is_dir():
        return f"{said} is a directory.", name_it
    if not path.is_file():
        return f"There is no file {said}.", name_it
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        return f"{said} cannot be read: {error.strerror}.", "Make it readable, or name another."
    if head.startswith(_ARCHIVES):
        return f"{said} is an archive.", f"Unpack it, and name the file {DRIVER} out of it."
    if not head.startswith(_PROGRAMS):
        return f"{said} is no program.", name_it
    if not os.access(path, os.X_OK):
        return f"{said} may not be executed.", f"Make it executable: chmod +x {said}"
    return "", ""
