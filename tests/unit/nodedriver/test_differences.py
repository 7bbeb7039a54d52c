"""The list of differences is whole, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "differences.md").read_text()
SECTION = PAGE.partition("\n## Node driver\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (D\d+) \| (.*) \|$", SECTION, re.M)


def test_every_defect_of_the_go_driver_has_one_row_that_says_what_became_of_it() -> None:
    assert [number for number, _ in ROWS] == [f"D{number}" for number in range(1, 48)]
    for number, row in ROWS:
        _, ours, _ = row.split(" | ")
        assert re.search(r"Fixed|[Kk]ept", ours), number


def test_every_defect_names_a_test() -> None:
    assert [number for number, row in ROWS if "`test_" not in row] == []


def test_every_test_that_is_named_exists_exactly_once() -> None:
    """A name that two tests bear is written with its file: `test_x.py::test_name`."""
    places: dict[str, list[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.M):
            places.setdefault(name, []).append(path.name)
    named = re.findall(r"`(?:(test_\w+\.py)::)?(test_\w+)`", SECTION)
    assert named
    found = {
        (file, name): [place for place in places.get(name, []) if file in ("", place)] for file, name in named
    }
    assert {test: where for test, where in found.items() if len(where) != 1} == {}
