"""The version of a build: that of the git tag."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from windrow.core.formats.yaml import load

ROOT = Path(__file__).resolve().parents[3]
SOURCE = (ROOT / "src" / "windrow" / "__init__.py").read_text()
Git = Callable[..., str]


def load_setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("windrow_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses ask there
    spec.loader.exec_module(module)
    return module


setup = load_setup()


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Git in a checkout of one commit whose source says 0.1.0."""
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def run(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "tag.gpgSign=false")
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)
        return done.stdout.decode().strip()

    place = tmp_path / "src" / setup.STAMPED
    place.parent.mkdir(parents=True)
    place.write_text(re.sub('__version__ = ".*"', '__version__ = "0.1.0"', SOURCE))
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message", "one")
    return run


def commit(git: Git) -> None:
    git("commit", "--quiet", "--allow-empty", "--message", "more")


def test_without_a_tag_it_is_a_development_release_of_the_version_of_the_source(git: Git, tmp_path: Path):
    commit(git)

    found = setup.read_release(tmp_path)

    head = git("rev-parse", "HEAD")
    assert (found.version, found.commit, found.dirty) == (f"0.1.0.dev2+g{head[:12]}", head, False)


@pytest.mark.parametrize("tag", ["v0.1.0", "v0.2.0rc1", "v12.0.34"])
def test_a_tagged_commit_builds_the_version_of_its_tag(git: Git, tmp_path: Path, tag: str):
    git("tag", tag)

    found = setup.read_release(tmp_path)

    assert (found.version, found.commit) == (tag[1:], git("rev-parse", "HEAD"))


@pytest.mark.parametrize(
    ("tag", "base"),
    [
        ("v0.0.9", "0.1.0"),  # the source is ahead
        ("v0.1.0", "0.1.1"),
        ("v0.2.0rc1", "0.2.0"),
        ("v1.9.9", "1.9.10"),
    ],
)
def test_after_a_tag_it_is_a_development_release_of_the_next(git: Git, tmp_path: Path, tag: str, base: str):
    git("tag", tag)
    commit(git)
    commit(git)

    assert setup.read_release(tmp_path).version == f"{base}.dev2+g{git('rev-parse', 'HEAD')[:12]}"


def test_files_that_differ_make_no_release(git: Git, tmp_path: Path):
    git("tag", "v0.1.0")
    (tmp_path / "new.py").write_text("")

    found = setup.read_release(tmp_path)

    assert found.dirty
    assert found.version == f"0.1.1.dev0+g{git('rev-parse', 'HEAD')[:12]}.dirty"


def test_a_tag_that_is_no_version_is_refused_with_what_is_wanted(git: Git, tmp_path: Path):
    git("tag", "v2-final")

    with pytest.raises(SystemExit, match=r"v2-final is no version; wanted v1\.2\.3"):
        setup.read_release(tmp_path)


def test_other_tags_do_not_count(git: Git, tmp_path: Path):
    git("tag", "nightly")

    assert setup.read_release(tmp_path).version.startswith("0.1.0.dev1+g")


def test_the_stamp_is_read_back_as_it_was_written():
    release = setup.Release("1.2.3", "0123", "2026-11-24T02:00:00+00:00", True)

    assert setup.read_stamp(setup.stamp(SOURCE, release)) == release


def test_a_source_without_git_says_what_is_written_in_it(tmp_path: Path):
    """As in an unpacked sdist, also where that lies within a repository of others."""
    release = setup.Release("1.2.3", "0123", "2026-11-24T02:00:00+00:00")
    place = tmp_path / "inner" / "src" / setup.STAMPED
    place.parent.mkdir(parents=True)
    place.write_text(setup.stamp(SOURCE, release))
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)

    assert setup.read_release(tmp_path / "inner") == release


@pytest.mark.parametrize("broken", ["no git", "no commit"])
def test_where_git_does_not_answer_the_version_is_that_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
):
    place = tmp_path / "src" / setup.STAMPED
    place.parent.mkdir(parents=True)
    place.write_text(SOURCE)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    if broken == "no git":
        monkeypatch.setenv("PATH", os.devnull)

    assert setup.read_release(tmp_path) == setup.Release(setup.read_stamp(SOURCE).version)


def test_the_source_itself_claims_no_commit():
    assert setup.read_stamp(SOURCE) == setup.Release(setup.read_stamp(SOURCE).version)


def test_a_stamp_that_has_no_place_stops_the_build():
    with pytest.raises(SystemExit, match="has 0 lines"):
        setup.stamp("__version__ = 1\n", setup.Release("1.2.3"))


@pytest.mark.parametrize(
    "chart", sorted((ROOT / "deploy" / "charts").glob("*/Chart.yaml")), ids=lambda path: path.parent.name
)
def test_a_chart_is_of_the_version_of_the_source(chart: Path):
    """Its image's tag is that of a release."""
    found = load(chart.read_text())

    assert found["version"] == found["appVersion"] == setup.read_stamp(SOURCE).version
