from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.skip_bounds import read_skip_bounds, skips_over_bounds

from .planted import run_planted


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


CONFTEST = """
import pytest
from tests.support.skip_bounds import SkipBounds

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    config.pluginmanager.register(SkipBounds(reporter, {}))
"""
TEST = """
import pytest

def test_one():
    pytest.skip("no kubectl")

def test_another():
    pass
"""


def test_a_run_with_too_many_skips_fails_and_prints_them_once(tmp_path: Path):
    done = run_planted(tmp_path, conftest=CONFTEST, test=TEST)

    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert done.stdout.count("    1 no kubectl") == 1
    assert done.stdout.count("1 tests skipped, at most 0 allowed: no kubectl") == 1
