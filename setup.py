"""What pyproject.toml cannot say of a build: its version, which is that of the git tag, and the pages of docs/ in the wheel.

A commit that bears the tag v1.2.3 and a clean work tree build 1.2.3. Every other build is a development release of the version after the
last tag, with the number of commits since and the commit: 1.2.4.dev17+g0123456789ab, and `.dirty` where files differ from the commit.
Without any tag the version is that in src/windrow/__init__.py, and the commits are all of them. Without git, or outside of a
checkout, that version is the build's, and the commit is unknown.

Version, commit, its date and whether the work tree was dirty are written into the `__init__.py` of the wheel and of the sdist, so a wheel that is
built from the sdist is the one that the checkout gives. Nothing in the checkout is changed. Two builds of a commit are equal to the byte:
all is dated by the commit, or by SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
STAMPED = Path("windrow", "__init__.py")
DOCS = Path("windrow", "docs")
SHIPPED = (".md", ".json")  # of docs/: pages, and the schemas that they name
TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)((?:a|b|rc)\d+)?")
DESCRIBED = re.compile(r"(?P<tag>.+)-(?P<distance>\d+)-g[0-9a-f]+")
# 1980, the first year that a zip file can name, where no date is known.
NO_DATE = 315_532_800
Git = Callable[..., str]


@dataclass(frozen=True)
class Release:
    """What is built. `commit` and `date`, its moment in RFC 3339, are "" where git does not tell."""

    version: str
    commit: str = ""
    date: str = ""
    dirty: bool = False

    @property
    def epoch(self) -> int:
        return int(datetime.fromisoformat(self.date).timestamp()) if self.date else NO_DATE


class BadTag(SystemExit):
    """The last tag that begins like a version is none."""


def git_in(root: Path) -> Git:
    """A function that runs git in `root`, and returns what it printed. Raises OSError and CalledProcessError."""

    def run(*words: str) -> str:
        command = ["git", "-c", "core.fsmonitor=false", *words]
        return subprocess.run(
            command, cwd=root, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ).stdout.strip()

    return run


def read_release(root: Path) -> Release:
    """The release of the files below `root`. Raises BadTag."""
    written = read_stamp((root / "src" / STAMPED).read_text())
    if not (
        root / ".git"
    ).exists():  # within another repository, as the sdist of a package of a distribution may be
        return written
    git = git_in(root)
    try:
        commit = git("rev-parse", "HEAD")
        dirty = bool(git("status", "--porcelain"))
        moment = datetime.fromtimestamp(int(git("show", "--no-patch", "--format=%ct", "HEAD")), UTC)
        version = describe(git, written.version, commit, dirty)
    except (OSError, subprocess.CalledProcessError):
        return written
    return Release(version, commit, moment.isoformat(), dirty)


def describe(git: Git, written: str, commit: str, dirty: bool) -> str:
    """The version of a checkout, `written` being that of its source."""
    try:
        found = DESCRIBED.fullmatch(git("describe", "--tags", "--long", "--match", "v[0-9]*"))
    except subprocess.CalledProcessError:  # no tag
        found = None
    base, distance = written, ""
    if found is None:
        distance = git("rev-list", "--count", "HEAD")
    else:
        tag = TAG.fullmatch(found["tag"])
        if tag is None:
            raise BadTag(
                f"the git tag {found['tag']} is no version; wanted v1.2.3, or v1.2.3rc1; remove it, or tag the commit anew"
            )
        distance = found["distance"]
        base = next_version(tag, written)
        if distance == "0" and not dirty:
            return found["tag"][1:]
    return f"{base}.dev{distance}+g{commit[:12]}" + (".dirty" if dirty else "")


def next_version(tag: re.Match[str], written: str) -> str:
    """The version that is worked on after `tag`: that of the source where it is a later one."""
    major, minor, patch = (int(tag[part]) for part in (1, 2, 3))
    after = (major, minor, patch if tag[4] else patch + 1)
    named = re.match(r"(\d+)\.(\d+)\.(\d+)", written)
    source = tuple(map(int, named.groups())) if named else after
    return ".".join(map(str, max(after, source)))


def read_stamp(source: str) -> Release:
    """What `source`, the text of windrow/__init__.py, says of itself."""
    values = {name: text.strip('"') for name, text in re.findall(r"^__([a-z]+)__ = (.+)$", source, re.M)}
    return Release(values["version"], values["commit"], values["date"], values["dirty"] == "True")


def stamp(source: str, release: Release) -> str:
    """`source` with the values of `release`."""
    for name in ("version", "commit", "date", "dirty"):
        value = getattr(release, name)
        shown = f'"{value}"' if isinstance(value, str) else str(value)
        source, count = re.subn(rf"^__{name}__ = .+$", f"__{name}__ = {shown}", source, flags=re.M)
        if count != 1:
            raise SystemExit(f"src/{STAMPED} has {count} lines `__{name}__ = …`, wanted one")
    return source


def write_stamp(path: Path, release: Release) -> None:
    text = stamp(path.read_text(), release)
    path.unlink()  # an sdist is made of hard links
    path.write_text(text)


def level_modes(folder: Path) -> None:
    """One mode for all files, whatever the umask of who checked them out."""
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


RELEASE = read_release(ROOT)


class BuildPy(build_py):
    """Adds docs/ and the stamp. An editable installation has neither: it reads docs/ and asks git."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        built = Path(self.build_lib)
        for page in sorted(path for path in (ROOT / "docs").rglob("*") if path.suffix in SHIPPED):
            place = built / DOCS / page.relative_to(ROOT / "docs")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, place)
        write_stamp(built / STAMPED, RELEASE)
        level_modes(built)


class BdistWheel(bdist_wheel):
    """Gives what is said of the package the modes that the package has."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        super().write_wheelfile(wheelfile_base, *arguments)
        level_modes(Path(wheelfile_base))


class Sdist(sdist):
    """Carries the stamp."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_stamp(Path(base_dir, "src") / STAMPED, RELEASE)


def main() -> None:
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(RELEASE.epoch))
    # What an earlier build left in build/ would go into the wheel.
    with tempfile.TemporaryDirectory() as scratch:
        setup(
            version=RELEASE.version,
            cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel, "sdist": Sdist},
            options={"build": {"build_base": scratch}},
        )


if __name__ == "__main__":
    main()
