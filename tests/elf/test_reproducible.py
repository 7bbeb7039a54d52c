"""The same sources give the same file, on any machine, in any folder, at any time.

The libraries are taken as `make driver` left them; `scripts/driver/build.py --verify` compiles those twice, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from scripts.driver import build
from tests.elf.conftest import ROOT


@pytest.fixture(scope="module")
def libraries() -> None:
    try:
        build.check_tools()
    except build.CannotBuild as why:
        pytest.skip(str(why))
    if not (build.cache() / build.key(build.pins()) / "done").exists():
        pytest.skip("the pinned libraries are not compiled here; run: make driver")


def build_in(folder: Path, environment: Mapping[str, str], umask: int) -> dict[str, bytes]:
    """Everything a build leaves, by name."""
    (folder / "tmp").mkdir(parents=True)
    script = ROOT / "scripts" / "driver" / "build.py"
    known = {
        "PATH": os.environ["PATH"],
        "XDG_CACHE_HOME": str(build.cache().parent.parent),
        "TMPDIR": str(folder / "tmp"),
    }
    done = subprocess.run(
        [sys.executable, script, "--strict", "--no-measure", "--out", folder / "out"],
        cwd=folder, env=known | environment, umask=umask, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in (folder / "out").iterdir()}


@pytest.mark.usefixtures("libraries")
@pytest.mark.long
def test_two_builds_in_different_places_are_the_same_to_the_byte(tmp_path: Path) -> None:
    one = build_in(tmp_path / "a", {"TZ": "UTC", "HOME": "/", "PYTHONHASHSEED": "1"}, 0o022)
    two = build_in(
        tmp_path / "another" / "and-a-much-longer-one",
        {
            "TZ": "Pacific/Auckland",
            "HOME": str(tmp_path),
            "LANG": "de_DE.UTF-8",
            "PYTHONHASHSEED": "77",
            "USER": "x",
        },
        0o077,
    )

    assert len(one) == 4
    assert [name for name in one if one[name] != two.get(name)] == []
