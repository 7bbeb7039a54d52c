"""What holds for every test: one Hypothesis profile, one worker for tests that share programs, an end, bounded skips.

`make test` runs all but the tests marked `long`; `make test-long` runs those, with WINDROW_SEEDS seeds per random walk.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support import deadlines, scheduling
from tests.support.skip_bounds import SkipBounds, read_skip_bounds

# No deadline and no health check that reads the clock: a busy machine fails no property. A CI run draws the same
# examples each time; a run by hand draws new ones, so that a rare failure is found by a person and not by a release.
settings.register_profile(
    "windrow",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("windrow")


def pytest_addoption(parser: pytest.Parser) -> None:
    scheduling.pytest_addoption(parser)
    parser.addoption(
        "--skip-bounds",
        metavar="FILE",
        help="fail when more tests are skipped than FILE allows: lines 'NUMBER REASON', REASON a beginning",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    for plugin in (deadlines, scheduling):
        config.pluginmanager.register(plugin)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if (bounds := config.getoption("--skip-bounds")) and reporter and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipBounds(reporter, read_skip_bounds(Path(bounds))))
    # A script's background job inherits SIGINT as ignored; so would every program that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """No garbage collection while thousands of tests are collected: all of it stays, and later collections pass it over."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        # Full collections, rarer: what a test leaves behind is many objects in cycles, and nearly nothing of it is old.
        gc.set_threshold(700, 10, 60)
