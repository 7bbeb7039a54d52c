"""`windrow emulate --cloud-provider FILE`: the guests' cloud provider as processes that connect through its proxy."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.processes import SMALL, SMALL_COUNT, SPEED, Shell
from tests.e2e.test_cloud_provider_process import PROGRAM

from windrow.core.formats.json import loads

MANIFEST = "small.yaml"


def test_the_process_initialises_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / MANIFEST).write_text(SMALL)
    written = ("site/harvester.yaml", "site/credentials.yaml")
    emulate = (
        "emulate",
        "--state-dir",
        "site",
        "--preload",
        MANIFEST,
        "--time-scale",
        SPEED,
        "--cloud-provider",
        PROGRAM,
    )
    with (
        shell.process(*emulate, until=written),
        shell.process("serve", "--state-dir", "manager", until=["manager/manager.yaml"]),
    ):
        manager = ("--kubeconfig", "manager/manager.yaml")
        shell.windrow(
            "apply", *manager, "-f", "site/credentials.yaml", MANIFEST, "--timeout", "120s", within=150
        )
        machines = loads(shell.windrow("machine", "list", *manager, "-o", "json").encode())
        consoles = [
            shell.windrow("emulate", "console", f"default/{one['metadata']['name']}", "--state-dir", "site")
            for one in machines["items"]
        ]

    assert len(consoles) == SMALL_COUNT
    leaders = [
        text
        for text in consoles
        if "harvester-cloud-provider: " in text and "running the controllers" in text
    ]
    assert leaders, consoles
    assert "providerID harvester://" in leaders[0]
