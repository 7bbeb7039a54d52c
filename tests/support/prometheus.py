"""What Prometheus would have scraped on a driven clock, and what its rules say of that, asked of Debian's promtool.

promtool counts time from 0. So timestamps in the samples are counted from the first scrape, too.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

INTERVAL = timedelta(minutes=1)
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="there is no promtool here (Debian: prometheus)"
)


@dataclass
class Scrapes:
    """Pages that were scraped one INTERVAL apart, the first one at `origin`; None for a scrape without an answer."""

    origin: datetime
    count: int = 0
    series: dict[str, list[str]] = field(default_factory=dict)

    def add(self, page: str | None) -> None:
        self._add("up", '{job="windrow"}', "0" if page is None else "1")
        for name, labels, value in map(_parse, (page or "").splitlines()):
            if name:
                self._add(
                    name, labels, self._relative(value) if name.endswith("_timestamp_seconds") else value
                )
        self.count += 1

    def _relative(self, value: str) -> str:
        return repr(float(value) - self.origin.timestamp())

    def _add(self, name: str, labels: str, value: str) -> None:
        values = self.series.setdefault(f"{name}{labels}", [])
        values += ["_"] * (self.count - len(values))
        values.append(value)

    def select(self, text: str) -> list[dict[str, str]]:
        """The series of metrics that `text` names, as promtool takes them."""
        words = set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", text))
        return [
            {"series": name, "values": " ".join(values)}
            for name, values in self.series.items()
            if name.partition("{")[0] in words
        ]


def _parse(line: str) -> tuple[str, str, str]:
    found = _SAMPLE.fullmatch(line)
    return (found[1], found[2] or "", found[3]) if found else ("", "", "")


def check_expressions(
    scrapes: Scrapes, wanted: Mapping[str, int], rules: Path, folder: Path, at: int | None = None
) -> None:
    """Fail unless each expression, at this scrape or the last, is one sample without labels and of this value."""
    minute = scrapes.count - 1 if at is None else at
    interval = f"{INTERVAL.total_seconds():.0f}s"
    tests = [
        {"expr": expr, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": value}]}
        for expr, value in wanted.items()
    ]
    used = rules.read_text() + " ".join(wanted)
    document = {
        "rule_files": [str(rules)],
        "evaluation_interval": interval,
        "tests": [{"interval": interval, "input_series": scrapes.select(used), "promql_expr_test": tests}],
    }
    path = folder / "test.yaml"  # JSON is YAML
    path.write_text(json.dumps(document))
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def check_alerts(scrapes: Scrapes, fired: Iterable[str], rules: Path, folder: Path) -> None:
    """Fail unless these alerts have fired and do not any more, and no other one has."""
    names = sorted(fired)
    wanted = {
        f'count(count_over_time(ALERTS{{alertstate="firing",alertname!~"{"|".join(names)}"}}[1w])) or vector(0)': 0
    }
    for name in names:
        firing = f'ALERTS{{alertstate="firing",alertname="{name}"}}'
        wanted[f"sum(count_over_time({firing}[1w])) > bool 0"] = 1
        wanted[f"count({firing}) or vector(0)"] = 0
    check_expressions(scrapes, wanted, rules, folder)
