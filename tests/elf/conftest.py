"""Where the one-file driver is that these tests look at."""

from __future__ import annotations

import os
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
    return path
