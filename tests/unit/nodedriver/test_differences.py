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


def test_every_test_that_is_named_exists() -> None:
    there = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert set(re.findall(r"`(test_\w+)`", SECTION)) - there == set()
