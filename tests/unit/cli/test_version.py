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


Git = Callable[..., str]
SOURCE = Path(__file__).parents[3]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    """Git in a repository of one commit."""
    env = {**os.environ, "HOME": str(tmp_path)}

    def run(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgSign=false")
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, env=env, check=True, capture_output=True)
        return done.stdout.decode().strip()

    run("init", "--quiet")
    (tmp_path / "setup.py").write_text("")
    run("add", "setup.py")
    run("commit", "--quiet", "--message", "one")
    return run


def test_a_checkout_asks_git_for_its_commit_and_for_files_that_differ(git: Git, tmp_path: Path):
    commit, date = git("rev-parse", "HEAD"), git("show", "--no-patch", "--format=%cI")

    assert read_checkout(tmp_path, os.environ) == (commit, date, False)
    (tmp_path / "more.py").write_text("")
    assert read_checkout(tmp_path, os.environ) == (commit, date, True)


@pytest.mark.skipif(not (SOURCE / ".git").exists(), reason="this is no checkout: it has no commit")
def test_this_checkout_is_asked(windrow: Windrow):
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=SOURCE, check=True, capture_output=True, text=True
    )

    assert json.loads(windrow("version", "-o", "json", env=env).out)["commit"] == head.stdout.strip()


def test_another_repository_around_an_installation_is_not_asked(git: Git, tmp_path: Path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "setup.py").touch()
    git("mv", "setup.py", "other.py")

    assert read_checkout(tmp_path, os.environ) == ("", "", False)
    assert read_checkout(inner, os.environ) == ("", "", False)


def test_a_checkout_without_git_has_no_commit(git: Git, tmp_path: Path):
    broken = tmp_path / "broken"
    (broken / ".git").mkdir(parents=True)
    (broken / "setup.py").touch()

    assert read_checkout(tmp_path, {"PATH": "/nowhere"}) == ("", "", False)
    assert read_checkout(broken, {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}) == ("", "", False)
