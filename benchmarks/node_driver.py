"""The node driver as a docker-machine plugin: start, memory, calls to Harvester. `WINDROW_GO_NODE_DRIVER` adds the Go one.

The program is the one-file driver (`WINDROW_DRIVER_ELF`, else where `make driver` puts it); without it the command that
pip installs is measured, which is another thing and says so. Start and memory come from scripts/driver/measure.py,
programs in turn; calls are counted at an embedded Harvester behind sockets, GetState left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import Figure
from benchmarks._harvester import a_harvester, a_spec
from windrow.app.clock import SystemClock
from windrow.emulator.faults import Fault, Slow
from windrow.emulator.proxy import serve
from windrow.kubernetes.requests import Request
from windrow.machines.plugin.process.client import Timeouts, open_plugin

ROOT = Path(__file__).parents[1]
NAME = "docker-machine-driver-harvester"
AT_ONCE = 50
SPEED = 100.0


def measure() -> Iterator[Figure]:
    ours = find_ours()
    go = os.environ.get("WINDROW_GO_NODE_DRIVER", "")
    yield from _starts(ours, Path(go) if go else None)
    yield Figure(
        f"{AT_ONCE} plugins at once, the last answers",
        asyncio.run(_rss_of_many(ours)),
        "s",
        10,
        "Rancher's patience",
    )
    with tempfile.TemporaryDirectory() as store:
        made, removed, peak_mb = asyncio.run(_calls(ours, store))
    yield Figure("calls from PreCreateCheck to Create's end", made, "calls", 6, "issue 4; Go: 14 and polls")
    yield Figure("memory at its peak, after a Create", peak_mb, "MB", 20, "issue 4")
    yield Figure("calls to remove", removed, "calls", 3, "issue 4; Go: 4 and polls")


def find_ours() -> Path:
    built = Path(os.environ.get("WINDROW_DRIVER_ELF") or ROOT / "dist" / NAME)
    if built.is_file():
        return built.resolve()
    print("  (no one-file driver here; `make driver` builds it. Measured is the command that pip installs.)")
    return Path(sys.executable).with_name(NAME)


def _starts(ours: Path, go: Path | None) -> Iterator[Figure]:
    if shutil.which("gcc") is None:
        print("  (start and memory need gcc for their launcher; they are left out)")
        return
    script = ROOT / "scripts" / "driver" / "measure.py"
    programs = [str(ours), *([str(go)] if go else [])]
    done = subprocess.run(
        [sys.executable, script, "--json", *programs], check=True, capture_output=True, text=True
    )
    figures: list[dict[str, Any]] = json.loads(done.stdout)
    mine = figures[0]
    baseline, source = (60.0, "1.5 times Go's 40 ms, reference 01")
    if len(figures) > 1:
        baseline, source = 1.5 * figures[1]["address_ms"], "1.5 times the Go driver beside it"
    yield Figure("start to the address line", mine["address_ms"], "ms", baseline, source)
    if len(figures) > 1:
        yield Figure(
            "start to answered flags",
            mine["flags_ms"],
            "ms",
            figures[1]["flags_ms"],
            "the Go driver beside it",
        )
        yield Figure(
            "CPU for it, to the end", mine["flags_cpu_ms"], "ms", figures[1]["flags_cpu_ms"], "beside it"
        )
    yield Figure("memory after an answer over TLS", mine["get_rss_mb"], "MB", 20, "issue 4")
    if len(figures) > 1:
        yield Figure(
            "the same, against the Go driver", mine["get_rss_mb"], "MB", figures[1]["get_rss_mb"], "beside it"
        )


async def _rss_of_many(program: Path) -> float:
    """Seconds until the last of many plugins, started in one go, has told its flags."""
    begun = time.perf_counter()

    async def one() -> None:
        patience = Timeouts(address=60.0, dial=60.0)
        async with open_plugin(program, "harvester", env={}, timeouts=patience) as plugin:
            await plugin.get_flags()
            answered.append(time.perf_counter() - begun)

    answered: list[float] = []
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one())
    return max(answered)


async def _calls(program: Path, store: str) -> tuple[int, int, float]:
    """Calls of a check with its Create, and of a Remove; and the peak of the creating process in MB."""
    calls: list[str] = []

    def note(request: Request) -> bool:
        calls.append(f"{request.method} {request.path}")
        return False

    async with a_harvester(SystemClock(), SPEED) as harvester, serve(harvester) as served:
        harvester.faults.add(Fault(Slow(0), where=note))
        config = json.dumps({"MachineName": "m-1", "StorePath": store}).encode()
        async with open_plugin(program, "harvester", env={}, config=config) as plugin:
            await plugin.set_flags(_options(served.kubeconfig))
            calls.clear()
            await plugin.call("PreCreateCheck")
            await plugin.call("Create")
            made = len(calls)
            peak_mb = _peak_mb(plugin.pid)
            kept = await plugin.get_config()
        async with open_plugin(program, "harvester", env={}, config=kept) as plugin:
            calls.clear()
            await plugin.call("Remove")
            removed = len(calls)
    return made, removed, peak_mb


def _peak_mb(pid: int) -> float:
    """What the system calls the high-water mark of resident memory; 10^6 bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def _options(kubeconfig: str) -> dict[str, Any]:
    options = a_spec("m-1").options
    return {
        "harvester-kubeconfig-content": kubeconfig,
        "harvester-vm-namespace": options["vmNamespace"],
        "harvester-cpu-count": 2,
        "harvester-memory-size": 4,
        "harvester-reserved-memory-size": -1,
        "harvester-disk-info": options["diskInfo"],
        "harvester-network-info": options["networkInfo"],
        "harvester-ssh-user": "rancher",
        "harvester-ssh-port": 22,
    }
