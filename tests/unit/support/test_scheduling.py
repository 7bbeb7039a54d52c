"""Tests that share a program run on one worker; a worker that ends costs the test it was running, and nothing else."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from .planted import ROOT, run_planted

CRASHING = """
import os
import time

def test_first():
    pass

def test_before():
    pass

def test_crash():
    time.sleep(0.3)  # the scheduler has said what comes next: pytest-xdist ends where it cannot say it any more
    os._exit(1)

def test_after():
    pass
"""

NOTING = """
import os
import time
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range(8))
def test_other(number):
    time.sleep(0.01)

@pytest.mark.parametrize("number", range(8))
def test_sharing(number):
    time.sleep(0.01)
    with Path("workers").open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " ")
"""


def options(workers: int, *group: str) -> tuple[str, ...]:
    loaded = ("-p", "tests.support.scheduling", "-o", f"one_worker={' '.join(group)}")
    return (*loaded, "--numprocesses", str(workers), "--dist", "loadgroup")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_tests_after_the_end_of_a_worker_run_once(tmp_path: Path, workers: int):
    group = [f"test_planted.py::test_{name}" for name in ("before", "crash", "after")]

    done = run_planted(tmp_path, *options(workers, *group), conftest="", test=CRASHING)

    assert "1 failed, 3 passed" in done.stdout


@pytest.mark.parametrize("named", ["test_planted.py::test_sharing", "test_planted.py"])
def test_a_group_runs_on_one_worker(tmp_path: Path, named: str):
    done = run_planted(tmp_path, *options(2, named), conftest="", test=NOTING)

    assert "16 passed" in done.stdout
    (worker,) = {*(tmp_path / "workers").read_text().split()}
    assert worker.startswith("gw")


def test_every_group_names_files_that_exist():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]

    named = [name for line in settings["one_worker"] for name in line.split()]

    assert [name for name in named if not (ROOT / name.partition("::")[0]).is_file()] == []
    assert len(named) == len(set(named))
