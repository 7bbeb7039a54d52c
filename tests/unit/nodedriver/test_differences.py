"""The list of differences is whole, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "reference").glob("differences-*.md"))
NODE_DRIVER = (ROOT / "docs" / "reference" / "differences-node-driver.md").read_text()
ROWS = re.findall(r"^\| (D\d+) \| (.*) \|$", NODE_DRIVER, re.M)


def test_every_defect_of_the_go_driver_has_one_row_that_says_what_became_of_it() -> None:
    assert [number for number, _ in ROWS] == [f"D{number}" for number in range(1, 50)]
    for number, row in ROWS:
        _, ours, _ = row.split(" | ")
        assert re.search(r"Fixed|[Kk]ept", ours), number


def test_every_defect_names_a_test() -> None:
    assert [number for number, row in ROWS if "`test_" not in row] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_is_named_exists(page: Path) -> None:
    there = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = set(re.findall(r"`(?:[\w./]+: )?(test_\w+)`", page.read_text()))
    assert named - there == set()
