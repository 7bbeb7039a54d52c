"""Finds the reference programs: programs that we did not write, built by `scripts/reference-programs`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def reference_program() -> Callable[[str], str]:
    """Finds the program of that name; the test is skipped, saying what to type, where it was not built."""
    found = subprocess.run(
        [str(ROOT / "scripts/reference-programs"), "--where"], capture_output=True, text=True, check=True
    )
    where = Path(found.stdout.strip())

    def find(name: str) -> str:
        if not (where / name).exists():
            pytest.skip(f"{name} is not built; run scripts/reference-programs (needs Go)")
        return str(where / name)

    return find
