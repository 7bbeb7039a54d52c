"""Each check of docs/reference/demo.md is made, or listed with the reason why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windrow.app.clock import SystemClock
from windrow.demo.cluster import PoolSpec
from windrow.demo.report import Report
from windrow.demo.scenarios import list_skipped

PAGE = (Path(__file__).parents[3] / "docs/reference/demo.md").read_text()
# The checks of the table, by when they run.
CHECKS = dict(re.findall(r"^\| `([a-z-]+)` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE))

SERVERS = PoolSpec(0, "servers", 3, True, True, False)
WORKERS = PoolSpec(1, "workers", 2, False, False, True)
ONE = PoolSpec(0, "all", 1, True, True, True)


@pytest.mark.parametrize(
    ("pools", "keep", "run"),
    [
        ([SERVERS, WORKERS], False, {"with a worker-only pool", "with three or more", "without `--keep`"}),
        ([SERVERS, WORKERS], True, {"with a worker-only pool", "with three or more"}),
        ([ONE], False, {"with one etcd member", "without `--keep`"}),
        ([SERVERS], False, {"with three or more", "without `--keep`"}),
        ([ONE, PoolSpec(1, "workers", 0, False, False, True)], True, {"with one etcd member"}),
    ],
)
def test_what_a_manifest_does_not_allow_is_what_the_reference_says(
    pools: list[PoolSpec], keep: bool, run: set[str]
) -> None:
    expected = {name for name, when in CHECKS.items() if when.startswith("with") and when not in run}

    assert len(CHECKS) > 15
    assert {one.name for one in list_skipped(pools, keep=keep)} == expected


def test_a_check_is_listed_once_with_its_first_reason() -> None:
    report = Report(SystemClock(), lambda one: None)

    report.skip(["service-gone", "zones"], "no cloud provider")
    report.skip(["service-gone"], "with --keep the cluster goes on")

    assert [(one.name, one.why) for one in report.skipped] == [
        ("service-gone", "no cloud provider"),
        ("zones", "no cloud provider"),
    ]
