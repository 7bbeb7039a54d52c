"""A test that an exception cannot end does not run, nor allocate, for ever."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from .planted import run_planted

CONFTEST = """
from tests.support import deadlines

deadlines.GRACE_S = 0.3
"""

# What pytest-timeout raises is kept by the task, or never raised.
ENDLESS = {
    "a task that nothing awaits": """
import asyncio

async def spin():
    while True:
        pass

async def begin():
    task = asyncio.create_task(spin())
    while True:
        await asyncio.sleep(0)

def test_endless():
    asyncio.run(begin())
""",
    "a loop in C": """
import itertools

def test_endless():
    all(itertools.repeat(True))
""",
    "a fixture after a test that failed": """
import itertools

import pytest

@pytest.fixture
def hangs():
    yield
    def test_endless_teardown():
        all(itertools.repeat(True))
    test_endless_teardown()

def test_fails(hangs):
    raise AssertionError
""",
}


LIMITS = ("-p", "tests.support.deadlines", "-o", "timeout=0.3")


@pytest.mark.parametrize("loop", ENDLESS)
def test_the_process_of_a_test_that_cannot_be_ended_ends_with_its_stack(tmp_path: Path, loop: str):
    # CPython reads the frames of a thread that goes on running: now and then that ends the process before its stack is told.
    for _ in range(3):
        done = run_planted(tmp_path, *LIMITS, conftest=CONFTEST, test=ENDLESS[loop])
        if done.returncode != -signal.SIGSEGV:
            break

    assert done.returncode == 1
    assert "test_planted.py" in done.stderr
    assert "in test_endless" in done.stderr


SLOW = """
import time

def test_slow():
    time.sleep(60)

def test_next():
    pass
"""


def test_a_test_that_an_exception_ends_leaves_the_others_their_turn(tmp_path: Path):
    done = run_planted(tmp_path, *LIMITS, conftest=CONFTEST, test=SLOW)

    assert "1 failed, 1 passed" in done.stdout


def test_a_limit_of_the_command_line_counts(tmp_path: Path):
    done = run_planted(
        tmp_path,
        *LIMITS,
        "--timeout=0",
        conftest=CONFTEST,
        test="""
import time

def test_longer_than_the_grace():
    time.sleep(1)
""",
    )

    assert "1 passed" in done.stdout
