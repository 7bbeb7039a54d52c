from __future__ import annotations

from pathlib import Path

from tests.skip_bounds import read_skip_bounds, skips_over_bounds


def test_a_reason_that_skips_as_many_tests_as_its_row_allows_exceeds_nothing():
    assert skips_over_bounds({"kubectl is missing": 2, "no Go here": 1}, {"kubectl": 2, "no Go": 4}) == []


def test_reasons_with_the_same_beginning_are_counted_together():
    assert skips_over_bounds({"kubectl is missing": 2, "kubectl is old": 1}, {"kubectl": 2}) == [
        "3 tests skipped, at most 2 allowed: kubectl"
    ]


def test_a_reason_without_a_row_may_skip_nothing():
    assert skips_over_bounds({"a reason of yesterday": 1}, {}) == [
        "1 tests skipped, at most 0 allowed: a reason of yesterday"
    ]


def test_bounds_are_read_from_lines_with_a_number_and_a_reason(tmp_path: Path):
    bounds = tmp_path / "bounds.txt"
    bounds.write_text(
        "# programs that are named by hand\n12 WINDROW_GO_NODE_DRIVER is not set\n\n0 kubectl\n"
    )

    assert read_skip_bounds(bounds) == {"WINDROW_GO_NODE_DRIVER is not set": 12, "kubectl": 0}
