"""Runs of pytest on a test and a conftest.py that are written for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run_planted(folder: Path, *arguments: str, conftest: str, test: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, in which `tests.support` can be imported."""
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_planted.py").write_text(test)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", folder, *arguments, folder],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
