"""Files and directories that a verb will write to: looked at before it begins, not after its work is done."""

from __future__ import annotations

import os
from pathlib import Path

from windrow.cli import exits
from windrow.cli.complaints import Complaint


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
