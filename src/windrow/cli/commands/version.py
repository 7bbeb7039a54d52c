"""Print Windrow's version, the commit that it was built from, and the Python that runs it.

In a checkout the commit is that of the checkout at present. `dirty`: files differ from those of the commit.

Examples:
  windrow version
  windrow version -o json
"""

from __future__ import annotations

import argparse
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

import windrow
from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext
from windrow.cli.output.data import render_data

GIT_TIMEOUT_S = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    options.add_output(parser)


def run(args: argparse.Namespace, context: CliContext) -> int:
    commit, dirty = windrow.__commit__, windrow.__dirty__
    date = windrow.__date__
    if not commit:
        commit, date, dirty = read_checkout(Path(windrow.__file__).parents[2], context.env)
    said = {
        "windrow": windrow.__version__,
        "commit": commit,
        "date": date,
        "dirty": dirty,
        "python": platform.python_version(),
    }
    if args.output:
        context.print(render_data(said, args.output))
        return exit_codes.OK
    context.print(f"windrow {windrow.__version__}")
    context.print(f"commit  {commit or 'unknown'}{f' of {date}' if date else ''}{', dirty' if dirty else ''}")
    context.print(f"python  {said['python']}")
    return exit_codes.OK


def read_checkout(root: Path, env: Mapping[str, str]) -> tuple[str, str, bool]:
    """Commit of the checkout at `root`, its date, and whether files differ; no commit where `root` is none, or git is missing."""
    if not (root / ".git").exists() or not (root / "setup.py").exists():
        return "", "", False
    try:
        commit, _, date = _git(root, env, "show", "--no-patch", "--format=%H %cI", "HEAD").partition(" ")
        return commit, date, bool(_git(root, env, "status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return "", "", False


def _git(root: Path, env: Mapping[str, str], *words: str) -> str:
    # fsmonitor is a program that the repository's configuration may name.
    command = ["git", "-c", "core.fsmonitor=false", "--no-optional-locks", *words]
    return subprocess.run(
        command, cwd=root, env=dict(env), capture_output=True, check=True, text=True, timeout=GIT_TIMEOUT_S
    ).stdout.strip()
