"""What holds for every test: one Hypothesis profile, one worker per file where a file shares programs, bounded skips.

`make test` runs all but the tests marked `long`; `make test-long` runs those, with WINDROW_SEEDS seeds per random walk.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.skip_bounds import read_skip_bounds, skips_over_bounds

# No deadline and no health check that reads the clock: a busy machine fails no property. A CI run draws the same
# examples each time; a run by hand draws new ones, so that a rare failure is found by a person and not by a release.
settings.register_profile(
    "windrow",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("windrow")

# Files in these folders start programs or API servers once per file, so one worker runs a file whole.
ONE_WORKER_PER_FILE = ("conformance", "e2e", "elf", "import_contracts")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--skip-bounds",
        metavar="FILE",
        help="fail when more tests are skipped than FILE allows: lines 'NUMBER REASON', REASON a beginning",
    )


def pytest_configure() -> None:
    """A script's background job inherits SIGINT as ignored; so would every program that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        group = str(item.path) if folder in ONE_WORKER_PER_FILE else item.nodeid
        item.add_marker(pytest.mark.xdist_group(group))


def _skips(config: pytest.Config) -> Counter[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)


def _excess(config: pytest.Config) -> Iterator[str]:
    path = config.getoption("--skip-bounds")
    if path and not hasattr(config, "workerinput"):
        yield from skips_over_bounds(_skips(config), read_skip_bounds(Path(path)))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and any(_excess(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--skip-bounds"):
        return
    terminalreporter.section("skipped, by reason")
    for reason, count in sorted(_skips(config).items()):
        terminalreporter.write_line(f"{count:5} {reason}")
    for sentence in _excess(config):
        terminalreporter.write_line(sentence, red=True)
