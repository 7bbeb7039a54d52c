"""A worker that ends costs the test it was running, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from .planted import run_planted

TEST = """
import os

import pytest

def test_first():
    pass

@pytest.mark.xdist_group("same worker")
def test_before():
    pass

@pytest.mark.xdist_group("same worker")
def test_crash():
    os._exit(1)

@pytest.mark.xdist_group("same worker")
def test_after():
    pass
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_the_tests_after_the_end_of_a_worker_run_once(tmp_path: Path, workers: int):
    options = ("-p", "tests.support.scheduling", "--numprocesses", str(workers), "--dist", "loadgroup")

    done = run_planted(tmp_path, *options, conftest="", test=TEST)

    assert "1 failed, 3 passed" in done.stdout
