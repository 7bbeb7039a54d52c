"""A manager with 100 guest clusters, as processes: its memory, its CPU and its connections, at rest and while all are upgraded.

Each cluster has one machine. `windrow serve` is measured alone, from /proc: the emulated Harvester and its guests run in another
process, with delays a sixtieth. On a computer whose cores both share, an upgrade takes as long as the emulator needs for its part.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.processes import MANIFEST, Shell

from benchmarks import Figure
from windrow.core.formats.yaml import dump_all, load_all
from windrow.kubernetes.objects import Raw, nested

GUESTS, SPEED, REST_S, LIMIT_S = 100, "60", 30.0, 1500.0
BEFORE, AFTER = "v1.34.7+rke2r1", "v1.35.4+rke2r1"
HARVESTER, MANAGER = "site/harvester.yaml", "manager/manager.yaml"
INVENTORY = (
    "hosts: [" + ", ".join(f"{{name: host-{n}, cpu: 128, memory: 1024Gi}}" for n in range(1, 9)) + "]\n"
)


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(Path(folder))
        documents = _render_clusters(GUESTS)
        (shell.folder / "all.yaml").write_text(dump_all(documents))
        (shell.folder / "site.yaml").write_text(INVENTORY)
        site = (
            "emulate",
            "--state-dir",
            "site",
            "--preload",
            "all.yaml",
            "--inventory",
            "site.yaml",
            "--time-scale",
            SPEED,
        )
        with (
            shell.process(*site, until=[HARVESTER, "site/credentials.yaml"]),
            shell.process("serve", "--state-dir", "manager", until=[MANAGER]) as manager,
        ):
            yield from _measure(shell, manager.pid)


def _render_clusters(guests: int) -> list[Raw]:
    """Clusters of one machine with all roles, of one HarvesterConfig."""
    cluster, config, *_ = load_all(MANIFEST.read_text())
    made: list[Raw] = [config]
    for number in range(guests):
        pools = [{
            "name": "all",
            "quantity": 1,
            "etcdRole": True,
            "controlPlaneRole": True,
            "workerRole": True,
            "machineConfigRef": {"kind": "HarvesterConfig", "name": config["metadata"]["name"]},
        }]  # fmt: skip
        rke = {"machineGlobalConfig": {"cni": "calico"}, "machinePools": pools}
        metadata = {**cluster["metadata"], "name": f"guest-{number:03}"}
        made.append({**cluster, "metadata": metadata, "spec": {**cluster["spec"], "rkeConfig": rke}})
    return made


@dataclass(frozen=True)
class Sample:
    """Of a process: resident memory, seconds of CPU, and open sockets."""

    rss_mb: float
    cpu_s: float
    sockets: int


def read_sample(pid: int) -> Sample:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    links = (os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink())
    ticks = int(stat[11]) + int(stat[12])
    return Sample(
        pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        ticks / os.sysconf("SC_CLK_TCK"),
        sum(link.startswith("socket:") for link in links),
    )


def _measure(shell: Shell, pid: int) -> Iterator[Figure]:
    empty = read_sample(pid)
    shell.kubectl(MANAGER, "apply", "-f", "site/credentials.yaml", "-f", "all.yaml")
    took, _ = _wait(shell, pid, BEFORE)
    yield Figure(
        f"{GUESTS} guests: from their objects until all are Ready", took, "s", LIMIT_S, "this benchmark"
    )
    before = read_sample(pid)
    time.sleep(REST_S)
    rest = read_sample(pid)
    yield Figure(f"{GUESTS} guests at rest: RSS", rest.rss_mb, "MB", empty.rss_mb, "no guest, this run")
    yield Figure(
        f"{GUESTS} guests at rest: CPU", (rest.cpu_s - before.cpu_s) / REST_S, "cores", 0.5, "half a core"
    )
    yield Figure(f"{GUESTS} guests at rest: open sockets", rest.sockets, "", 20 * GUESTS, "20 a guest")
    names = [f"clusters.provisioning.cattle.io/guest-{number:03}" for number in range(GUESTS)]
    change = f'{{"spec": {{"kubernetesVersion": "{AFTER}"}}}}'
    shell.kubectl(MANAGER, "-n", "fleet-default", "patch", *names, "--type=merge", "-p", change)
    begun = read_sample(pid)
    took, peak = _wait(shell, pid, AFTER)
    done = read_sample(pid)
    yield Figure(f"{GUESTS} guests upgraded at once: all of them", took, "s", LIMIT_S, "this benchmark")
    yield Figure(
        f"{GUESTS} guests upgraded at once: RSS at most", peak.rss_mb, "MB", rest.rss_mb, "at rest, this run"
    )
    yield Figure(
        f"{GUESTS} guests upgraded at once: CPU a guest",
        (done.cpu_s - begun.cpu_s) / GUESTS,
        "s",
        2,
        "this benchmark",
    )
    yield Figure(
        f"{GUESTS} guests upgraded at once: sockets at most", peak.sockets, "", 20 * GUESTS, "20 a guest"
    )


def _wait(shell: Shell, pid: int, version: str) -> tuple[float, Sample]:
    """Seconds until all run the version and are Ready; and the most of each that the process had meanwhile."""
    begun, samples = time.monotonic(), [read_sample(pid)]
    while True:
        clusters = shell.objects(MANAGER, "clusters.provisioning.cattle.io", "-A")
        samples.append(read_sample(pid))
        done = sum(
            nested(one, "status", "version") == version and nested(one, "status", "ready") is True
            for one in clusters
        )
        if done == GUESTS:
            break
        assert time.monotonic() < begun + LIMIT_S, f"{done} of {GUESTS} run {version}"
        time.sleep(2)
    most = Sample(max(one.rss_mb for one in samples), samples[-1].cpu_s, max(one.sockets for one in samples))
    return time.monotonic() - begun, most
