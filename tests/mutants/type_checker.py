"""Whether mypy refuses a mutant: `make check` then does not let a person make the same mistake, whatever the tests say."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.mutants.loading import ROOT, SOURCES
from tests.mutants.operators import Mutant


def is_refused(mutant: Mutant) -> bool:
    """With the cache of `make check` it takes about a second. A file that mypy refuses as it is says nothing of its mutants."""
    path = SOURCES / mutant.path
    if not _is_accepted(path):
        return False
    with tempfile.TemporaryDirectory(prefix="windrow-mypy-") as folder:
        shadow = Path(folder, path.name)
        shadow.write_text(mutant.apply(path.read_text()))
        return _run_mypy(path, "--shadow-file", str(path.relative_to(ROOT)), str(shadow)) == 1


@cache
def _is_accepted(path: Path) -> bool:
    return _run_mypy(path) == 0


def _run_mypy(path: Path, *options: str) -> int:
    """Its exit code: 0 where it finds nothing wrong, 1 where it does, others where it could not be run."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *options, str(path.relative_to(ROOT))]
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True).returncode
