"""Mutants of the code that decides: `make mutants`, or python -m tests.mutants. Do the tests notice a small change?

--base REVISION      mutants of the lines that differ from it (default: HEAD~1, with what is not committed)
--core               mutants of the whole deciding core instead (tests/mutants/targets.py), or of the files that are named
--count N            how many are drawn (default: 40; with --core 300)
--seed N             which are drawn (default: 1)
--seconds N          judge no mutant after that (default: 240; with --core 3600)
--processes N        how many run at the same time (default: one per core)

Each survivor is printed: place, change, and how many tests ran. It needs a test, or a line with a reason in
tests/mutants/accepted.toml. Exit code 1 when fewer than 90 % are killed, or when one survives in a file that may let none.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.accepted import read_accepted
from tests.mutants.changes import NoBase, changed_lines
from tests.mutants.loading import SOURCES
from tests.mutants.operators import Mutant, list_mutants
from tests.mutants.runner import BrokenTests, run
from tests.mutants.score import report
from tests.mutants.targets import is_asked, is_core


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", default="HEAD~1")
    parser.add_argument("--core", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("files", nargs="*", help="files of src/windrow, such as clusters/plan/deletion.py")
    wanted = parser.parse_args(arguments)
    whole = wanted.core or bool(wanted.files)
    began = time.monotonic()
    try:
        found = list_core(wanted.files) if whole else list_changed(wanted.base)
    except NoBase as error:
        print(f"mutants: {error}")
        return 0
    accepted = {one.key for one in read_accepted()}
    candidates = [mutant for mutant in found if mutant.key not in accepted]
    drawn = draw(candidates, wanted.count or (300 if whole else 40), wanted.seed)
    where = (
        "the deciding core"
        if wanted.core
        else ", ".join(wanted.files) or f"the lines changed since {wanted.base}"
    )
    print(
        f"mutants: {len(drawn)} of {len(candidates)} of {where}, seed {wanted.seed} "
        f"({len(found) - len(candidates)} accepted)",
        flush=True,
    )
    try:
        outcomes = run(drawn, wanted.seconds or (3600 if whole else 240), wanted.processes)
    except BrokenTests as error:
        print(f"mutants: the tests cannot be run without any mutant: {error}")
        return 2
    text, code = report(outcomes)
    print(f"{text} ({time.monotonic() - began:.0f} s)")
    return code


def list_core(names: Sequence[str]) -> list[Mutant]:
    paths = [str(path.relative_to(SOURCES)) for path in sorted(SOURCES.rglob("*.py"))]
    chosen = [path for path in paths if (path in names or not names) and is_asked(path)]
    if missing := set(names) - set(chosen):
        raise SystemExit(
            f"mutants: no tests are known for {', '.join(sorted(missing))}; see tests/mutants/targets.py"
        )
    return [one for path in chosen if names or is_core(path) for one in list_mutants(path, _text(path))]


def list_changed(base: str) -> list[Mutant]:
    changed = changed_lines(base, SOURCES)
    return [
        one
        for path, lines in sorted(changed.items())
        if is_asked(path)
        for one in list_mutants(path, _text(path))
        if one.line in lines
    ]


def _text(path: str) -> str:
    return Path(SOURCES / path).read_text()


def draw(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """The same ones for the same seed; most of them also after another change, so that a mended hole is seen to be closed."""
    return sorted(mutants, key=lambda one: _rank(seed, one))[:count]


def _rank(seed: int, mutant: Mutant) -> tuple[bytes, int]:
    return hashlib.sha256(repr((seed, mutant.key)).encode()).digest(), mutant.start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
