"""`windrow demo`, as a user runs it: whole, on sockets, ending with an exit code and a report."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.contract.plugin_rig import GO_DRIVER
from tests.e2e.processes import (
    DRIVER,
    RANCHER_DUMP,
    ROOT,
    SMALL,
    SPEED,
    WINDROW,
    Shell,
    needs_dump,
    needs_kubectl,
)

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
    "upgraded",
    "volume-bound",
    "volume-written",
    "volume-gone",
    "service-gone",
    "cluster-deleted",
    "nothing-left",
}

# With workers, and with servers that can be spared.
WITH_LOSSES = ALWAYS | {
    "lost-worker-replaced",
    "volume-survives",
    "service-survives-worker",
    "lost-etcd-member-replaced",
    "service-survives-server",
    "etcd-members",
    "pool-scaled-down",
}

# With the shipped manifest, which has two workers, so that pods are on two nodes, and names a bucket for snapshots.
WITH_RESTORE = WITH_LOSSES | {"service-during-upgrade", "snapshot-in-bucket", "restored"}


def report_of(folder: Path, *arguments: str) -> dict[str, object]:
    out = Shell(folder).windrow(
        "demo", "--plain", "--time-scale", SPEED, "--report", "r.json", *arguments, within=170
    )
    assert max(len(line) for line in out.splitlines()) <= 80
    return dict(json.loads((folder / "r.json").read_text()))


def names(report: dict[str, object]) -> set[str]:
    checks = report["checks"]
    assert isinstance(checks, list)
    assert [check for check in checks if not check["ok"]] == []
    return {check["name"] for check in checks}


@pytest.mark.timeout(240)
def test_three_servers_and_two_workers_lose_machines_heal_are_upgraded_and_restored_and_leave_nothing(
    tmp_path: Path,
) -> None:
    report = report_of(tmp_path)

    assert names(report) == WITH_RESTORE
    assert report["timeline"]
    assert report["calls"]


@needs_dump
@pytest.mark.long
def test_a_real_rancher_dump_comes_up_as_it_is_and_its_last_member_is_never_replaced(tmp_path: Path) -> None:
    report = report_of(tmp_path, "-f", str(RANCHER_DUMP))

    assert names(report) == ALWAYS | {"last-etcd-member-kept", "service-during-upgrade"}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_whole_demo_goes_through_a_docker_machine_plugin(tmp_path: Path) -> None:
    """The one-file driver where it has been built, else the same program as pip installs it."""
    built = Path(os.environ.get("WINDROW_DRIVER_ELF") or ROOT / "dist" / DRIVER)
    driver = str(built) if built.is_file() else str(Path(WINDROW).with_name(DRIVER))
    report = report_of(tmp_path, "--machine-backend", "plugin", "--driver", driver)

    assert names(report) == WITH_RESTORE
    timeline = report["timeline"]
    assert isinstance(timeline, list)
    assert any(
        "created by the docker-machine plugin" in entry["what"] and driver in entry["what"]
        for entry in timeline
    )
    calls = report["calls"]
    assert isinstance(calls, dict)
    ordered = [call for call in calls if call.startswith("harvester POST") and "virtualmachines" in call]
    assert ordered == [], "the manager itself made a VM"


@pytest.mark.long
@pytest.mark.skipif(GO_DRIVER not in os.environ, reason=f"{GO_DRIVER} names no Go driver")
@pytest.mark.timeout(400)
def test_the_go_driver_s_known_flaw_is_reported_as_its_own(tmp_path: Path) -> None:
    arguments = ("--machine-backend", "plugin", "--driver", os.environ[GO_DRIVER])
    out = Shell(tmp_path).windrow("demo", "--plain", "--report", "r.json", *arguments, within=300)

    checks = json.loads((tmp_path / "r.json").read_text())["checks"]
    assert [check["name"] for check in checks if not check["ok"]] == ["nothing-left"]
    assert "leaves its disks on Harvester" in checks[-1]["knownFlaw"]
    assert "0 failed" in out


def test_a_refused_cluster_ends_the_demo_with_its_problems(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(SMALL.replace("name: nc-orchard-workers", "name: absent", 1))

    said = Shell(tmp_path).complaint(
        "demo", "--plain", "-f", "bad.yaml", "--report", "r.json", "--time-scale", SPEED, code=3, within=150
    )

    assert said.endswith("→ create it, or correct the name\nNothing was started.\n")
    (check,) = json.loads((tmp_path / "r.json").read_text())["checks"]
    assert (check["name"], check["ok"]) == ("cluster-ready", False)
    assert "names HarvesterConfig 'absent'" in check["detail"]


@needs_kubectl
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_kept_demo_can_be_used_with_kubectl_and_curl(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    kept = ("demo", "-f", "small.yaml", "--plain", "--keep", "--time-scale", "60", "--state-dir", ".")
    with shell.process(*kept, until=["orchard.yaml"]) as demo:
        command = last_curl(tmp_path / "demo.log")
        told = (tmp_path / "demo.log").read_text()
        assert re.search(r"^  \S.* status -A$", told, re.M)
        assert re.search(r"^  export WINDROW_KUBECONFIG=(\S+) KUBECONFIG=\1$", told, re.M)
        assert re.search(r"annotate node host-2 harvesterhci.io/drain-requested=true$", told, re.M)
        first = json.loads(shell.run(*command))
        shell.kubectl("orchard.yaml", "rollout", "restart", "deployment", "web")
        shell.kubectl("orchard.yaml", "rollout", "status", "deployment", "web", "--timeout=90s")
        pods = {raw["metadata"]["name"] for raw in shell.objects("orchard.yaml", "pods")}
        second = json.loads(shell.run(*command))
        demo.send_signal(signal.SIGINT)
        code = demo.wait(60)

    assert first["pod"] not in pods
    assert second["pod"] in pods
    assert code == 0


def last_curl(log: Path) -> list[str]:
    """The command that the demo offers in the end."""
    deadline = time.monotonic() + 60
    while "curl " not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    line = next(line for line in log.read_text().splitlines() if "curl " in line)
    return [line.split()[0], "--silent", "--show-error", *line.split()[1:]]
