"""Where the one-file driver is that these tests look at."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BUILT = ROOT / "dist" / "docker-machine-driver-harvester"
PATH_ENV = "WINDROW_DRIVER_ELF"


@pytest.fixture(scope="session")
def driver() -> Path:
    """The program: named by WINDROW_DRIVER_ELF, or where `make driver` puts it."""
    path = Path(os.environ.get(PATH_ENV) or BUILT)
    if not path.is_file():
        pytest.skip(f"{path} is not there; run: make driver")
    if path == BUILT and (newer := newer_modules(path)):
        warnings.warn(f"{path.name} is older than {newer[0]}; run: make driver", stacklevel=1)
    return path


def newer_modules(program: Path) -> list[str]:
    """The frozen modules of ours that changed since the program was built."""
    info = next(iter(program.parent.glob("*.BUILDINFO")), None)
    names = (
        [line.split()[0] for line in info.read_text().splitlines() if line.startswith("  windrow.")]
        if info
        else []
    )
    stems = [ROOT / "src" / name.replace(".", "/") for name in names]
    files = [
        file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.exists()
    ]
    return [file.name for file in files if file.stat().st_mtime > program.stat().st_mtime]
