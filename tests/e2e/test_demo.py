"""`windrow demo`, as a user runs it: whole, on sockets, ending with an exit code and a report."""

import json
import os
from pathlib import Path

from tests.e2e.processes import DRIVER, RANCHER_DUMP, ROOT, SPEED, WINDROW, Shell, needs_dump

ALWAYS = {
    "cluster-ready",
    "nodes-ready",
    "provider-ids",
    "node-addresses",
    "zones",
    "service-address",
    "service-answers",
    "stopped-machine-started",
    "service-after-stop",
    "pool-scaled-up",
    "service-gone",
    "cluster-deleted",
    "nothing-left",
}

# With workers, and with servers that can be spared.
WITH_LOSSES = ALWAYS | {
    "lost-worker-replaced",
    "service-survives-worker",
    "lost-etcd-member-replaced",
    "service-survives-server",
    "etcd-members",
    "pool-scaled-down",
}


def report_of(folder: Path, *arguments: str) -> dict[str, object]:
    out = Shell(folder).windrow(
        "demo", "--plain", "--speed", SPEED, "--report", "r.json", *arguments, within=170
    )
    assert max(len(line) for line in out.splitlines()) <= 80
    return dict(json.loads((folder / "r.json").read_text()))


def names(report: dict[str, object]) -> set[str]:
    checks = report["checks"]
    assert isinstance(checks, list)
    assert [check for check in checks if not check["ok"]] == []
    return {check["name"] for check in checks}


def test_three_servers_and_two_workers_lose_machines_under_a_service_heal_and_leave_nothing(
    tmp_path: Path,
) -> None:
    report = report_of(tmp_path)

    assert names(report) == WITH_LOSSES
    assert report["timeline"]
    assert report["calls"]


@needs_dump
def test_a_real_rancher_dump_comes_up_as_it_is_and_its_last_member_is_never_replaced(tmp_path: Path) -> None:
    report = report_of(tmp_path, "--manifest", str(RANCHER_DUMP))

    assert names(report) == ALWAYS | {"last-etcd-member-kept"}


def test_the_whole_demo_goes_through_a_docker_machine_plugin(tmp_path: Path) -> None:
    """The one-file driver where it has been built, else the same program as pip installs it."""
    built = Path(os.environ.get("WINDROW_DRIVER_ELF") or ROOT / "dist" / DRIVER)
    driver = str(built) if built.is_file() else str(Path(WINDROW).with_name(DRIVER))
    report = report_of(tmp_path, "--machines", "plugin", "--driver", driver)

    assert names(report) == WITH_LOSSES
    timeline = report["timeline"]
    assert isinstance(timeline, list)
    assert any(
        "made by the docker-machine plugin" in moment["what"] and driver in moment["what"]
        for moment in timeline
    )
    calls = report["calls"]
    assert isinstance(calls, dict)
    ordered = [call for call in calls if call.startswith("harvester POST") and "virtualmachines" in call]
    assert ordered == [], "the manager itself made a VM"
