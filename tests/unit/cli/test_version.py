"""`windrow version`: which Windrow this is."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import windrow as package
from windrow.cli.commands.version import read_checkout

Windrow = Callable[..., Any]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a wheel."""
    monkeypatch.setattr(package, "__version__", "1.2.3")
    monkeypatch.setattr(package, "__commit__", "0123abcd")
    monkeypatch.setattr(package, "__date__", "2026-11-24T02:00:00+00:00")
    monkeypatch.setattr(package, "__dirty__", False)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("words", [("version",), ("--version",)])
def test_a_build_says_its_version_its_commit_and_the_python_that_runs_it(
    windrow: Windrow, words: tuple[str, ...]
):
    assert windrow(*words).out.splitlines() == [
        "windrow 1.2.3",
        "commit  0123abcd of 2026-11-24T02:00:00+00:00",
        f"python  {platform.python_version()}",
    ]


@pytest.mark.usefixtures("built")
def test_programs_read_the_same(windrow: Windrow, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(package, "__dirty__", True)

    assert json.loads(windrow("version", "-o", "json").out) == {
        "windrow": "1.2.3",
        "commit": "0123abcd",
        "date": "2026-11-24T02:00:00+00:00",
        "dirty": True,
        "python": platform.python_version(),
    }
    assert ", dirty\n" in windrow("version").out


def test_a_build_without_git_does_not_know_its_commit(windrow: Windrow, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(package, "__file__", "/nowhere/at/all/windrow/__init__.py")

    assert windrow("version").out.splitlines()[1] == "commit  unknown"


def test_a_checkout_asks_git_for_its_commit_and_for_files_that_differ(tmp_path: Path):
    env = {**os.environ, "HOME": str(tmp_path)}

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, env=env, check=True, capture_output=True)
        return done.stdout.decode().strip()

    git("init", "--quiet")
    (tmp_path / "setup.py").write_text("")
    git("add", "setup.py")
    git("commit", "--quiet", "--message", "one")
    commit = git("rev-parse", "HEAD")

    assert read_checkout(tmp_path, env)[::2] == (commit, False)
    (tmp_path / "more.py").write_text("")
    assert read_checkout(tmp_path, env)[::2] == (commit, True)


def test_another_repository_around_an_installation_is_not_asked(tmp_path: Path):
    (tmp_path / ".git").mkdir()

    assert read_checkout(tmp_path, {"PATH": os.environ["PATH"]}) == ("", "", False)


def test_a_checkout_without_git_has_no_commit(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "setup.py").touch()

    assert read_checkout(tmp_path, {"PATH": "/nowhere"}) == ("", "", False)
    assert read_checkout(tmp_path, {"PATH": os.environ["PATH"]}) == ("", "", False)
