"""How many tests may be skipped for which reason: the bounds of tests/skip-bounds.txt, and what exceeds them.

A skipped test is a fact that was not looked at. A run in CI prints how many there are for each reason, and fails where
a reason skips more tests than its row allows, or has no row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest


def read_skip_bounds(path: Path) -> dict[str, int]:
    """The largest number of skipped tests by reason (or its beginning): lines `NUMBER REASON`, `#` comments."""
    lines = (line.strip() for line in path.read_text().splitlines())
    rows = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return {reason.strip(): int(number) for number, _, reason in rows}


def skips_over_bounds(skips: Mapping[str, int], bounds: Mapping[str, int]) -> list[str]:
    """One sentence for each reason that skips more tests than it may."""
    counts: Counter[str] = Counter()
    for reason, count in skips.items():
        counts[next((start for start in bounds if reason.startswith(start)), reason)] += count
    return [
        f"{count} tests skipped, at most {bounds.get(reason, 0)} allowed: {reason}"
        for reason, count in counts.items()
        if count > bounds.get(reason, 0)
    ]


class SkipBounds:
    """A pytest plugin of the process that reports: prints the skips by reason, and fails the run beyond `bounds`."""

    def __init__(self, reporter: pytest.TerminalReporter, bounds: Mapping[str, int]) -> None:
        self._reporter = reporter
        self._bounds = bounds
        self._skips: Counter[str] = Counter()
        self._over: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        reports = self._reporter.stats.get("skipped", [])
        self._skips.update(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
        self._over = skips_over_bounds(self._skips, self._bounds)
        if exitstatus == pytest.ExitCode.OK and self._over:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self) -> None:
        self._reporter.section("skipped, by reason")
        for reason, count in sorted(self._skips.items()):
            self._reporter.write_line(f"{count:5} {reason}")
        for sentence in self._over:
            self._reporter.write_line(sentence, red=True)
