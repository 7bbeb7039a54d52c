"""Runs drawn mutants through the tests of their packages, in two stages: the unit tests, then the stories for what is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.mutants.operators import Mutant
from tests.mutants.session import ORDER, ROOT, SOURCES
from tests.mutants.targets import TESTS, group_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """`outcome` is killed, survived, not run, or undecided: it survived those tests that were asked, and not all were, since
    the time was up, or they fail without any mutant, or take too long for one.

    `tests` ran, of all that reach it.
    """

    mutant: Mutant
    outcome: str = "not run"
    tests: int = 0
    of: int = 0


class BrokenTests(Exception):
    """The tests fail without any mutant."""


def run(mutants: Sequence[Mutant], seconds: float, processes: int) -> list[Outcome]:
    """The outcome of each; `seconds` after the beginning no further one is begun."""
    deadline = time.monotonic() + seconds
    packages: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        packages.setdefault(group_of(mutant.path), []).append(mutant)
    outcomes: dict[Mutant, Outcome] = {}
    for stage, part in enumerate(STAGES):
        for number, (package, group) in enumerate(packages.items()):
            left = [one for one in group if stage == 0 or outcomes[one].outcome in _ALIVE]
            # Each package gets its share of the time that is left to the stage.
            share = (deadline - time.monotonic()) * part / max(1, len(packages) - number)
            for outcome in run_stage(left, TESTS[package][stage], share, processes) if left else ():
                outcomes[outcome.mutant] = join(outcomes.get(outcome.mutant), outcome)
    return [outcomes[mutant] for mutant in mutants]


_ALIVE = ("survived", "undecided")
# Of the time that is left: the stories have to judge what the unit tests let live.
STAGES = (0.6, 1.0)


def join(before: Outcome | None, after: Outcome) -> Outcome:
    if before is None:
        return after
    if after.outcome == "not run":
        return replace(before, outcome="undecided")
    if after.outcome == "survived":
        after = replace(after, outcome=before.outcome)
    return replace(after, tests=before.tests + after.tests, of=before.of + after.of)


def run_stage(
    mutants: Sequence[Mutant], tests: Sequence[str], seconds: float, processes: int
) -> list[Outcome]:
    if seconds <= 0:
        return [Outcome(mutant) for mutant in mutants]
    with tempfile.TemporaryDirectory(prefix="windrow-mutants-") as folder:
        results = Path(folder, "results")
        order = {
            "mutants": [_order(number, mutant) for number, mutant in enumerate(mutants)],
            "results": str(results),
            "seconds": seconds,
            "processes": processes,
        }
        Path(folder, "order").write_text(json.dumps(order))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.mutants.session",
            "-n",
            "0",
            "-q",
            "-m",
            "not long",
        ]
        command += ["-p", "no:cacheprovider", "--no-header", *tests]
        env = {**os.environ, ORDER: str(Path(folder, "order")), "CI": "true"}
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if not results.exists():
            raise BrokenTests(f"{' '.join(tests)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        found = json.loads(results.read_text())
    if found["broken"]:
        print(f"mutants: not asked, for they fail without any: {', '.join(found['broken'])}")
    return [Outcome(mutants[one["id"]], one["outcome"], one["tests"], one["of"]) for one in found["mutants"]]


def _order(number: int, mutant: Mutant) -> dict[str, Any]:
    text = (SOURCES / mutant.path).read_text()
    return {
        "id": number,
        "path": mutant.path,
        "lines": list(mutant.lines),
        "function": mutant.function,
        "text": mutant.apply(text),
    }
