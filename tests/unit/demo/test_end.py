"""What the demo suggests in the end."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from windrow.app.clock import SystemClock
from windrow.cli.context import CliContext
from windrow.cli.output.progress import PlainOutput
from windrow.demo.demo import print_summary
from windrow.demo.options import DemoOptions
from windrow.demo.report import Report


def test_each_suggested_command_stands_alone_on_an_indented_line():
    out = io.StringIO()
    context = CliContext(
        {}, Path(), io.StringIO(), out, io.StringIO(), lambda: datetime(2026, 1, 1, tzinfo=UTC)
    )
    output = PlainOutput(replace(context, program="/home/ann/src/windrow/.venv/bin/windrow"))

    print_summary(DemoOptions(), Report(SystemClock(), lambda one: None), output)

    lines = out.getvalue().splitlines()
    assert lines[-5:] == [
        "Next, keep a cluster running and use it with kubectl:",
        "  /home/ann/src/windrow/.venv/bin/windrow demo --keep",
        "Or with K3s, or a manifest of yours:",
        "  /home/ann/src/windrow/.venv/bin/windrow demo --distro k3s",
        "  /home/ann/src/windrow/.venv/bin/windrow demo -f FILE",
    ]
    assert max(map(len, lines)) <= 80
