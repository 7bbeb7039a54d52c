"""Plugin binaries for tests: a script with this interpreter in its first line."""

from __future__ import annotations

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
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"{folder}/docker-machine-driver-".encode() in line and state != "Z":
            found.add(int(entry.name))
    return found
