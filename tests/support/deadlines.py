"""A pytest plugin: a test that pytest-timeout could not end, ends its process.

pytest-timeout raises an exception in the main thread. A task of asyncio keeps it to itself when nothing awaits that task,
and a loop in C never sees it: the test goes on, and so does what it allocates. Some seconds
later the process ends from a thread without the GIL, after the stacks of all threads; pytest-xdist then reports the test
as failed and starts another worker. The stacks are read while the threads run; should that crash, the process has ended,
too, and without its stack. An ordinary hang never gets here, and its fixtures are torn down.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest
from pytest_timeout import _get_item_settings  # type: ignore[import-untyped]

GRACE_S = 20.0
_STDERR = pytest.StashKey[int]()


def arm(item: pytest.Item) -> None:
    """From now on the test has as long as pytest-timeout gives it, and the grace."""
    if seconds := _get_item_settings(item).timeout:
        faulthandler.dump_traceback_later(seconds + GRACE_S, exit=True, file=item.config.stash[_STDERR])


def pytest_configure(config: pytest.Config) -> None:
    # While a test runs, pytest has put a file of its own in the place of descriptor 2.
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    arm(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    # After a failure nothing else ends a fixture that hangs: pytest-timeout raises once, and pytest's own faulthandler
    # plugin has cancelled the dump (there is one for the whole process).
    arm(item)
    return (yield)
