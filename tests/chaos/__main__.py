"""Random faults against whole programs: `make chaos`, or python -m tests.chaos.

--for SECONDS        go on with new seeds until then (default: one run of --rounds for each seed and setup)
--seed N             the first seed (default: 1); each further run takes the next one
--setup NAME         embedded, plugins or replicas (default: each in turn); may be repeated
--rounds N           rounds of a run, before the last one that deletes the Cluster (default: 8)
--at-once N          how many runs go on at the same time (default: 2)
--time-scale X       the emulator's (default: 200)
--rest-within S      how long programs have to come to rest after faults (default: 120)
--keep               keep the folders of runs without a violation, too

A violation is printed with its seed, its round and the command that runs it again. Exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.chaos.faults import SETUPS, Setup, plan_last, plan_rounds
from tests.chaos.runner import Report, Runner
from tests.chaos.site import Site


async def run_site(seed: int, setup: Setup, args: argparse.Namespace, folder: Path, report: Report) -> None:
    """One run: rounds until one has a violation, then the deletion of the Cluster."""
    name = f"seed {seed} {setup}"

    def log(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {name}: {text}", flush=True)

    again = f"make chaos ARGS='--seed {seed} --setup {setup} --rounds {{}} --time-scale {args.time_scale:g}'"
    try:
        async with Site(setup, folder, args.time_scale) as site:
            runner = Runner(site, log, args.rest_within, report)
            for planned in itertools.islice(plan_rounds(seed, setup), args.rounds):
                faults = await runner.run_round(planned)
                last = planned
                if faults or time.monotonic() > args.until:
                    break
            if faults:
                await site.save_objects()
            elif last.wanted.servers:
                last = plan_last(last.number + 1, last.wanted)
                faults = await runner.run_round(last)
            faults = faults or await runner.end()
            for fault in faults:
                log(f"VIOLATION in round {last.number}: {fault}")
            if faults:
                log(f"again: {again.format(last.number)}; logs: {folder}")
    except Exception as error:
        log(f"VIOLATION: the run ended with {type(error).__name__}: {error}; logs: {folder}")
        report.violations.append(str(error))
        if args.debug:
            raise
    if not report.violations and not args.keep:
        shutil.rmtree(folder, ignore_errors=True)


async def run_all(args: argparse.Namespace) -> list[Report]:
    """Runs one after the other, as many at once as asked for. SIGTERM ends them with what they have started."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    reports: list[Report] = []
    plans = plan_runs(args)
    base = Path(tempfile.mkdtemp(prefix="windrow-chaos-"))

    async def work() -> None:
        for seed, setup in plans:
            reports.append(Report())
            await run_site(seed, setup, args, base / f"{seed}-{setup}", reports[-1])

    with suppress(asyncio.CancelledError):  # what was done until then is reported
        async with asyncio.TaskGroup() as group:
            for _ in range(args.at_once):
                group.create_task(work())
    if not any(report.violations for report in reports) and not args.keep:
        shutil.rmtree(base, ignore_errors=True)
    return reports


def plan_runs(args: argparse.Namespace) -> Iterator[tuple[int, Setup]]:
    setups: list[Setup] = args.setup or list(SETUPS)
    for seed in itertools.count(args.seed):
        for setup in setups:
            if args.lasts and time.monotonic() > args.until:
                return
            yield seed, setup
        if not args.lasts:
            return


def print_summary(reports: list[Report], took_s: float) -> None:
    struck = sum((report.struck for report in reports), Counter[str]())
    skipped = sum((report.skipped for report in reports), Counter[str]())
    violations = [one for report in reports for one in report.violations]
    rounds = sum(report.rounds for report in reports)
    print(f"\n{len(reports)} runs, {rounds} rounds in {took_s:.0f} s; {struck.total()} faults:")
    for name, number in struck.most_common():
        print(f"  {name:20} {number}")
    if skipped:
        print(f"  ({skipped.total()} found nothing to strike at)")
    print(f"violations: {len(violations)}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--for", dest="lasts", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--setup", action="append", choices=SETUPS, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=8, help=argparse.SUPPRESS)
    parser.add_argument("--at-once", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--time-scale", type=float, default=200.0, help=argparse.SUPPRESS)
    parser.add_argument("--rest-within", type=float, default=120.0, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    began = time.monotonic()
    args.until = began + args.lasts if args.lasts else float("inf")
    reports = asyncio.run(run_all(args))
    print_summary(reports, time.monotonic() - began)
    return 1 if any(report.violations for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
