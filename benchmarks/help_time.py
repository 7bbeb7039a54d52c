"""How long `windrow --help` takes, from the shell's point of view: the median of twenty runs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Figure

RUNS = 20


def _median(*words: str) -> float:
    windrow = Path(sys.executable).with_name("windrow")
    spans = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        subprocess.run([windrow, *words], check=True, capture_output=True)
        spans.append(time.perf_counter() - begun)
    return statistics.median(spans)


def measure() -> Iterator[Figure]:
    yield Figure("windrow --help", _median("--help"), "s", 0.2, "issue 3, item 10")
    yield Figure("windrow status --help", _median("status", "--help"), "s", 0.2, "the same, for a verb")
