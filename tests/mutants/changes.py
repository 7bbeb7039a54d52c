"""The lines of src/windrow that differ from a revision, from `git diff`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_FILE = re.compile(r"\+\+\+ b/(.*)")
_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


class NoBase(Exception):
    """There is no such revision here, so nothing to compare with."""


def changed_lines(base: str, sources: Path) -> dict[str, frozenset[int]]:
    """Per file, relative to `sources`, the lines that are new or changed since `base`. Raises NoBase."""
    command = ["git", "diff", "--unified=0", "--no-color", "--no-ext-diff", "--relative", base, "--", "."]
    try:
        done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoBase(f"git does not run: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["git diff failed"])[0]
        raise NoBase(
            f"wanted the lines that changed since {base}, found: {last}; name another revision with --base"
        )
    return parse_diff(done.stdout)


def parse_diff(text: str) -> dict[str, frozenset[int]]:
    lines: dict[str, set[int]] = {}
    path = ""
    for line in text.splitlines():
        if found := _FILE.fullmatch(line):
            path = found[1]
        elif line.startswith("+++ "):
            path = ""  # deleted
        elif path and (hunk := _HUNK.match(line)):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + count))
    return {path: frozenset(found) for path, found in lines.items() if found}
