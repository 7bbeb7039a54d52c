"""Prints where the emulator and the real admission code differ, and the closing line.

python -m tests.conformance.admission [--group vm] [--only TEXT] [--count] [--mutations 200] [--products 100]
python -m tests.conformance.admission --renew     take out of known-differences.txt what is answered alike now
python -m tests.conformance.admission --count --mutations 5000 --products 1000     the whole, of which make test-long has a part
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
from collections import Counter
from pathlib import Path

from tests.conformance.admission.known import closing_line, read_known, renew
from tests.conformance.admission.suite import SEED, Report, run
from tests.support.clock import DrivenLoop

ROOT = Path(__file__).parents[3]


def find_program() -> str:
    where = [str(ROOT / "scripts/reference-programs"), "--where"]
    found = subprocess.run(where, capture_output=True, text=True, check=True)
    return str(Path(found.stdout.strip()) / "admission")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
    parser.add_argument("--program", default="", help="another reference program")
    parser.add_argument("--renew", action="store_true", help="shorten known-differences.txt")
    parser.add_argument("--add", action="store_true", help="with --renew: take up new cases, too")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    with asyncio.Runner(loop_factory=DrivenLoop) as runner:
        report: Report = runner.run(
            run(
                options.program or find_program(),
                mutations=options.mutations,
                combinations=options.products,
                seed=options.seed,
                wanted=lambda one: options.group in ("", one.group) and options.only in one.name,
            )
        )
    results = [*report.cases, *report.mutations]
    if options.renew:
        renew(results, add=options.add)
    known = read_known()
    sorts: Counter[tuple[str, str]] = Counter()
    for result in results:
        difference = result.difference
        sorts[result.question.group, difference.sort if difference else "equal"] += 1
        if difference and not options.count and not (options.new and difference.key in known):
            print(difference, end="\n\n")
    for judged in report.products:
        if judged.is_refused:
            print(judged, end="\n\n")
    for (group, sort), count in sorted(sorts.items()):
        print(f"{group:20} {sort:10} {count:5}")
    if report.products:
        by_us = sum(bool(one.made.problems) for one in report.products)
        refused = sum(one.is_refused for one in report.products)
        print(
            f"{len(report.products)} combinations: {by_us} refused by our checks, {refused} by the real code only"
        )
    print(closing_line(results))


if __name__ == "__main__":
    main()
