"""Plugin binaries for tests: a script with this interpreter in its first line."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[3]


def a_binary(folder: Path, name: str, body: str) -> Path:
    """An executable file that runs `body` as a Python program."""
    path = folder / f"docker-machine-driver-{name}"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n{textwrap.dedent(body)}"
    )
    path.chmod(0o755)
    return path


def noop_driver(folder: Path) -> Path:
    """The foreign driver of `tests.unit.machines.noop_driver`."""
    return a_binary(folder, "noop", "from tests.unit.machines.noop_driver import main\nmain()")


def our_driver(folder: Path) -> Path:
    """Our own plugin, run from the sources."""
    return a_binary(folder, "harvester", "from windrow.plugin.__main__ import main\nmain()")


def living(folder: Path) -> set[int]:
    """The processes of plugins in `folder` that run; a zombie does not."""
    found = set()
    mark = f"{folder}/docker-machine-driver-".encode()
    for name in os.listdir("/proc"):
        try:
            # A zombie has no command line any more.
            if name.isdigit() and mark in Path("/proc", name, "cmdline").read_bytes():
                found.add(int(name))
        except OSError:
            continue
    return found
