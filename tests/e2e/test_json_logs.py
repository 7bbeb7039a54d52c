"""The log of a program, from its start to its end, is read by another program: each line is an object."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", ["serve", "emulate"])
def test_standard_error_is_json_from_the_start_to_the_end(command: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "windrow", command, "--state-dir", "s", "--log-format", "json"]
    with subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("Try:") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert process.returncode == 0
    lines = [json.loads(line) for line in err.splitlines()]
    assert all({"time", "level", "logger", "msg"} <= line.keys() for line in lines)
    if command == "serve":
        assert any(line["logger"] == "windrow.client.events" for line in lines)
