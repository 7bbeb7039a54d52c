"""Runs drawn mutants in one process of pytest (`session`) and reads the outcomes of its stages."""

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

from tests.mutants.loading import ROOT, SOURCES
from tests.mutants.operators import Mutant
from tests.mutants.session import ORDER
from tests.mutants.targets import TESTS, group_of, list_stages
from tests.mutants.type_checker import is_refused


@dataclass(frozen=True, slots=True)
class Outcome:
    """`outcome` is killed, survived, not run, or undecided: it survived those tests that were asked, and not all were, since
    the time was up, or they fail without any mutant, or take too long for one.

    `tests` ran, of all that reach it. `by_types`: not they have killed it, but mypy.
    """

    mutant: Mutant
    outcome: str = "not run"
    tests: int = 0
    of: int = 0
    by_types: bool = False


class BrokenTests(Exception):
    """The tests fail without any mutant."""


def run(mutants: Sequence[Mutant], seconds: float, processes: int) -> list[Outcome]:
    """The outcome of each; after `seconds` what is not judged is left."""
    deadline = time.monotonic() + seconds
    if not mutants:
        return []
    groups: dict[str, list[int]] = {}
    for number, mutant in enumerate(mutants):
        groups.setdefault(group_of(mutant.path), []).append(number)
    with tempfile.TemporaryDirectory(prefix="windrow-mutants-") as folder:
        results = Path(folder, "results")
        order = {
            "mutants": [_order(mutant) for mutant in mutants],
            "groups": [
                {"mutants": numbers, "tests": list_stages(name, {mutants[one].path for one in numbers})}
                for name, numbers in groups.items()
            ],
            "results": str(results),
            "deadline": deadline,
            "processes": processes,
        }
        Path(folder, "order").write_text(json.dumps(order))
        tests = sorted({path for name in groups for stage in TESTS[name] for path in stage})
        command = [sys.executable, "-m", "pytest", "-p", "tests.mutants.session", "-n", "0", "-q"]
        command += ["-m", "not long", "-p", "no:cacheprovider", "--no-header", *_outermost(tests)]
        env = {**os.environ, ORDER: str(Path(folder, "order")), "CI": "true"}
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if not results.exists():
            raise BrokenTests(f"{' '.join(tests)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        found = json.loads(results.read_text())
    if found["broken"]:
        print(f"mutants: not asked, for they fail without any: {', '.join(found['broken'])}")
    outcomes: dict[int, Outcome] = {}
    for one in found["results"]:
        outcome = Outcome(mutants[one["id"]], one["outcome"], one["tests"], one["of"])
        outcomes[one["id"]] = join(outcomes.get(one["id"]), outcome)
    return [check_types(outcomes[number]) for number in range(len(mutants))]


def check_types(outcome: Outcome) -> Outcome:
    """What the tests let live is asked of mypy, too."""
    if outcome.outcome in ("survived", "undecided") and is_refused(outcome.mutant):
        return replace(outcome, outcome="killed", by_types=True)
    return outcome


def _outermost(paths: Sequence[str]) -> list[str]:
    """Without those that are in a folder of another."""
    return [one for one in paths if not any(one.startswith(f"{other}/") for other in paths if other != one)]


def join(before: Outcome | None, after: Outcome) -> Outcome:
    if before is None:
        return after
    if after.outcome == "not run":
        return replace(before, outcome="undecided")
    if after.outcome == "survived":
        after = replace(after, outcome=before.outcome)
    return replace(after, tests=before.tests + after.tests, of=before.of + after.of)


def _order(mutant: Mutant) -> dict[str, Any]:
    text = (SOURCES / mutant.path).read_text()
    return {
        "path": mutant.path,
        "function": mutant.function,
        "start": mutant.start,
        "end": mutant.end,
        "text": mutant.apply(text),
    }
