"""Prints where the emulator and the real admission code differ, and the closing line of each release.

python -m tests.conformance.admission [--release v1.8.1] [--group vm] [--only TEXT] [--count] [--mutations 200] [--products 100]
python -m tests.conformance.admission --renew     take out of known-differences.txt what is answered alike now
python -m tests.conformance.admission --whole     all cases, 5,000 mutations and 1,000 combinations of the driver's options; ends
                                                  with 1 where the lists and the bounds do not allow what was found
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from tests.conformance.admission.accepted import read_accepted
from tests.conformance.admission.known import (
    COMBINATIONS,
    MUTATIONS,
    MUTATIONS_THAT_DIFFER,
    closing_line,
    find_unexpected,
    read_known,
    renew,
)
from tests.conformance.admission.suite import RELEASES, SEED, Result, run
from tests.support.clock import DrivenLoop

from windrow.machines.port import Problem

ROOT = Path(__file__).parents[3]


def find_program(release: str) -> str:
    where = [str(ROOT / "scripts/reference-programs"), "--where"]
    found = subprocess.run(where, capture_output=True, text=True, check=True)
    return str(Path(found.stdout.strip()) / f"admission-{release}")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--release", choices=RELEASES, action="append", help="only this release (may be repeated)"
    )
    parser.add_argument("--group", default="", help="only this group: vm, claim, image, …")
    parser.add_argument("--only", default="", help="only cases with this text in their name")
    parser.add_argument(
        "--new", action="store_true", help="only differences that known-differences.txt does not have"
    )
    parser.add_argument("--count", action="store_true", help="only the counts")
    parser.add_argument(
        "--mutations", type=int, default=0, help="as many random changes of valid requests on top"
    )
    parser.add_argument(
        "--products", type=int, default=0, help="as many random combinations of the driver's options on top"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--program", default="", help="another reference program, with --release")
    parser.add_argument("--renew", action="store_true", help="shorten known-differences.txt")
    parser.add_argument("--add", action="store_true", help="with --renew: take up new cases, too")
    parser.add_argument("--whole", action="store_true", help="what CI runs")
    options = parser.parse_args()
    if options.whole:
        options.mutations, options.products, options.count = MUTATIONS, COMBINATIONS, True
    return options


@dataclass(frozen=True, slots=True)
class Findings:
    """A run of one release."""

    release: str
    cases: list[Result]
    mutations: list[Result]
    refused: list[str]  # of the combinations of options that our checks let through
    combinations: int
    refused_by_us: dict[int, list[Problem]]  # by number of the combination

    @property
    def results(self) -> list[Result]:
        return [*self.cases, *self.mutations]

    @property
    def faults(self) -> list[str]:
        """What neither the lists nor the bounds allow."""
        unexpected = find_unexpected(self.cases, read_known(), read_accepted())
        faults = [*map(str, unexpected), *self.refused]
        differing = len(find_unexpected(self.mutations, {}, read_accepted()))
        if differing > MUTATIONS_THAT_DIFFER:
            faults.append(f"{differing} mutations differ, the bound is {MUTATIONS_THAT_DIFFER}")
        return faults


def compare_release(release: str, options: argparse.Namespace) -> Findings:
    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        report = runner.run(
            run(
                options.program or find_program(release),
                release,
                mutations=options.mutations,
                combinations=options.products,
                seed=options.seed,
                wanted=lambda one: options.group in ("", one.group) and options.only in one.name,
            )
        )
    refused = [str(one) for one in (*report.products, *report.affinities) if one.is_refused]
    by_us = {one.made.number: list(one.made.problems) for one in report.products if one.made.problems}
    return Findings(release, report.cases, report.mutations, refused, len(report.products), by_us)


def show(findings: Findings, options: argparse.Namespace) -> None:
    known, sorts = read_known(), Counter[tuple[str, str]]()
    for result in findings.results:
        difference = result.difference
        sort = (
            "wording" if difference and difference.is_wording else difference.sort if difference else "equal"
        )
        sorts[result.question.group, sort] += 1
        if (
            sort not in ("equal", "wording")
            and not options.count
            and not (options.new and result.question.key in known)
        ):
            print(difference, end="\n\n")
    print(findings.release)
    for (group, sort), count in sorted(sorts.items()):
        print(f"  {group:20} {sort:10} {count:5}")
    if findings.combinations:
        print(
            f"  {findings.combinations} combinations: {len(findings.refused_by_us)} refused by our checks, "
            f"{len(findings.refused)} by the real code only"
        )
        for sentence in sample_refusals(findings.refused_by_us):
            print(f"    {sentence}")


def sample_refusals(refused: Mapping[int, Iterable[Problem]]) -> list[str]:
    """One sentence of our checks for each field, with how many combinations were refused for it: to be read by a person."""
    first: dict[str, str] = {}
    counts = Counter[str]()
    for number, problems in refused.items():
        for field, problem in {one.field: one for one in problems}.items():
            counts[field] += 1
            first.setdefault(field, f"e.g. {number}: {problem.message}; {problem.hint}")
    return [f"{count:4} {first[field]}" for field, count in counts.most_common()]


def main() -> int:
    options = read_options()
    releases = tuple(options.release or RELEASES)
    missing = [one for one in releases if not Path(options.program or find_program(one)).exists()]
    if missing:
        print(f"no reference program for {', '.join(missing)}; run scripts/reference-programs (needs Go)")
        return 3
    with ProcessPoolExecutor() as processes:
        found = list(processes.map(compare_release, releases, repeat(options)))
    if options.renew:
        renew([result for findings in found for result in findings.results], add=options.add)
    for findings in found:
        show(findings, options)
    faults = [f"{one.release}: {fault}" for one in found for fault in one.faults] if options.whole else []
    print(*faults, sep="\n\n", end="\n\n" if faults else "")
    for findings in found:
        print(closing_line(findings.release, findings.results))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
