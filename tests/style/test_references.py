"""Files and tests that pages, docstrings and comments name in backticks exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "scripts", "benchmarks", "docs", "deploy")
# What changed in earlier versions may name what was there then.
HISTORY = "CHANGELOG.md"
FILE = re.compile(r"`([\w.\-/]+\.py|(?:src|tests|docs|scripts|deploy|benchmarks)/[\w\-./]+)`")
TEST = re.compile(r"`(test_\w+)`")


@cache
def texts() -> dict[str, str]:
    found = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".md", ".yaml"}
    ]
    found += [path for path in ROOT.glob("*.md") if path.name != HISTORY]
    found += ROOT.glob("*.py")
    return {str(path.relative_to(ROOT)): path.read_text() for path in found}


def named(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    return ((path, name) for path, text in texts().items() for name in pattern.findall(text))


def test_files_that_are_named_exist():
    places = {"/" + path for path in texts()}
    places |= {f"/{folder}" for path in texts() for folder in PurePosixPath(path).parents}
    others = [name for _, name in named(FILE) if not name.endswith((".py", ".md", "/"))]
    places |= {f"/{name}" for name in others if (ROOT / name).exists()}

    wrong = [
        f"{path}: {name}"
        for path, name in named(FILE)
        if not any(place.endswith(f"/{name.rstrip('/')}") for place in places)
    ]
    assert not wrong


def test_tests_that_are_named_exist():
    defined = {name for text in texts().values() for name in re.findall(r"def (test_\w+)\(", text)}
    defined |= {PurePosixPath(path).stem for path in texts()}

    assert not [f"{path}: {name}" for path, name in named(TEST) if name not in defined]
