"""Measure a driver from outside: start to address line, to answered flags, CPU, memory, and the same with a TLS GET.

    python scripts/driver/measure.py [PROGRAM]... [--rounds N] [--json]
    python scripts/driver/measure.py [PROGRAM] --at-once N

Several programs are measured in turn, so that what else the machine does falls on all alike; the first round does not
count, and the median is reported. A small static launcher starts them, because a child's peak memory includes that of
the process that forked it. With --at-once, that many are started together, and it is told when the last one had answered.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "src")]

import host  # noqa: E402

DEFAULT = ROOT / "dist" / "docker-machine-driver-harvester"


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians. `flags` are of a process that was asked for its create flags alone, as Rancher does; the last three of one
    that answered one GetState, for which it asked over TLS."""

    program: str
    size_mb: float
    address_ms: float
    address_worst_ms: float
    cpu_ms: float
    rss_mb: float
    flags_ms: float
    flags_cpu_ms: float
    get_ms: float
    get_cpu_ms: float
    get_rss_mb: float


@dataclass(frozen=True, slots=True)
class Run:
    line_ms: float
    end_ms: float
    cpu_ms: float
    rss_kib: int


def make_launcher(into: Path) -> Path:
    launcher = into / "launcher"
    subprocess.run(
        ["gcc", "-O2", "-static", "-s", "-o", launcher, HERE / "launcher.c"], check=True, capture_output=True
    )
    return launcher


def start(launcher: Path, mark: str, program: Path) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ.get("PATH", "/bin"), **host.TOKENS}
    return subprocess.Popen(
        [launcher, mark, program.resolve()],
        env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run_to_line(launcher: Path, program: Path) -> Run:
    """Start it and end it when its address is there."""
    with start(launcher, "line", program) as process:
        return _read(process)


def run_to_flags(launcher: Path, program: Path) -> Run:
    """Start it, ask for the create flags, and tell it to end; `line_ms` is when they were answered."""
    began = time.perf_counter()
    with start(launcher, "end", program) as process:
        assert process.stderr is not None
        with host.Host(process.stderr.readline()) as talk:
            talk.ask("GetVersion")
            talk.ask("GetCreateFlags")
            answered = (time.perf_counter() - began) * 1e3
            talk.close_plugin()
        return replace(_read(process), line_ms=answered)


def run_with_get(launcher: Path, program: Path, harvester: host.SmallHarvester) -> Run:
    """Start it, have it ask for the state of a machine over TLS, and tell it to end."""
    with start(launcher, "end", program) as process:
        assert process.stderr is not None
        with host.Host(process.stderr.readline()) as talk:
            talk.ask("SetConfigRaw", harvester.configuration())
            talk.ask("GetState")
            talk.close_plugin()
        return _read(process)


@dataclass(frozen=True, slots=True)
class Together:
    """Seconds from the first start until every process had done it; a host waits 10 s for the address."""

    processes: int
    addresses_s: float
    versions_s: float
    answers_s: float


def run_together(program: Path, count: int) -> Together:
    """Start many at once, and ask each for its version and the state of a machine."""
    with host.a_harvester() as harvester, contextlib.ExitStack() as stack:
        began = time.monotonic()
        processes = [stack.enter_context(_plain(program)) for _ in range(count)]
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            times = list(pool.map(lambda process: _talk(process, harvester, began), processes))
    last = [round(max(moments), 2) for moments in zip(*times, strict=True)]
    return Together(count, *last)


@contextlib.contextmanager
def _plain(program: Path) -> Iterator[subprocess.Popen[str]]:
    words = [str(program.resolve())]
    with subprocess.Popen(
        words, env=dict(host.TOKENS), cwd="/", stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _talk(process: subprocess.Popen[str], harvester: host.SmallHarvester, began: float) -> tuple[float, ...]:
    assert process.stdout is not None
    address = process.stdout.readline()
    moments = [time.monotonic() - began]
    with host.Host(address) as talk:
        talk.ask("GetVersion")
        moments.append(time.monotonic() - began)
        talk.ask("Heartbeat")
        talk.ask("SetConfigRaw", harvester.configuration())
        talk.ask("GetState")
        moments.append(time.monotonic() - began)
    return tuple(moments)


def _read(process: subprocess.Popen[str]) -> Run:
    out, told = process.communicate(timeout=60)
    words = out.split()
    if len(words) != 4 or float(words[0]) < 0:
        raise SystemExit(f"no address line; the program said: {told or 'nothing'}")
    return Run(float(words[0]), float(words[1]), float(words[2]), int(words[3]))


def measure(programs: Sequence[Path], rounds: int) -> list[Figures]:
    lines: dict[Path, list[Run]] = {program: [] for program in programs}
    flags: dict[Path, list[Run]] = {program: [] for program in programs}
    gets: dict[Path, list[Run]] = {program: [] for program in programs}
    with tempfile.TemporaryDirectory() as folder, host.a_harvester() as harvester:
        launcher = make_launcher(Path(folder))
        for _ in range(rounds + 1):
            for program in programs:
                lines[program].append(run_to_line(launcher, program))
                flags[program].append(run_to_flags(launcher, program))
                gets[program].append(run_with_get(launcher, program, harvester))
    return [
        _figures(program, lines[program][1:], flags[program][1:], gets[program][1:]) for program in programs
    ]


def _figures(program: Path, lines: Sequence[Run], flags: Sequence[Run], gets: Sequence[Run]) -> Figures:
    return Figures(
        program=program.name,
        size_mb=round(program.resolve().stat().st_size / 1e6, 1),
        address_ms=round(statistics.median(run.line_ms for run in lines), 1),
        address_worst_ms=round(max(run.line_ms for run in lines), 1),
        cpu_ms=round(statistics.median(run.cpu_ms for run in lines), 1),
        rss_mb=round(statistics.median(run.rss_kib for run in lines) * 1024 / 1e6, 1),
        flags_ms=round(statistics.median(run.line_ms for run in flags), 1),
        flags_cpu_ms=round(statistics.median(run.cpu_ms for run in flags), 1),
        get_ms=round(statistics.median(run.end_ms for run in gets), 1),
        get_cpu_ms=round(statistics.median(run.cpu_ms for run in gets), 1),
        get_rss_mb=round(statistics.median(run.rss_kib for run in gets) * 1024 / 1e6, 1),
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--at-once", type=int, metavar="N")
    wanted = parser.parse_args(arguments)
    if wanted.at_once:
        print(json.dumps(asdict(run_together((wanted.programs or [DEFAULT])[0], wanted.at_once))))
        return 0
    if not shutil.which("gcc"):
        print("not measured: the launcher needs gcc", file=sys.stderr)
        return 0
    found = measure(wanted.programs or [DEFAULT], wanted.rounds)
    if wanted.json:
        print(json.dumps([asdict(figures) for figures in found]))
        return 0
    for each in found:
        print(f"{each.program}: {each.size_mb} MB")
        print(
            f"  address line {each.address_ms} ms (worst {each.address_worst_ms}), CPU {each.cpu_ms} ms, "
            f"RSS {each.rss_mb} MB"
        )
        print(f"  flags answered {each.flags_ms} ms, CPU {each.flags_cpu_ms} ms")
        print(f"  with one TLS answer {each.get_ms} ms, CPU {each.get_cpu_ms} ms, RSS {each.get_rss_mb} MB")
    load = os.getloadavg()[0]
    print(f"medians of {wanted.rounds}; load of the machine {load:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
