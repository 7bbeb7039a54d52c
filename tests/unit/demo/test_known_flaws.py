"""What is left on Harvester by the Go node driver's own flaw, and what is not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.unit.cli.test_progress import an_edge

from windrow.app.clock import SystemClock
from windrow.cli.output.progress import PlainOutput
from windrow.demo.demo import print_summary
from windrow.demo.known_flaws import KNOWN_FLAWS, Leftovers, find_known_flaw, read_go_driver_version
from windrow.demo.options import DemoOptions
from windrow.demo.report import CheckRecord, Report

DISK = ("PersistentVolumeClaim", "default", "orchard-workers-m4tr9-disk-0-x2v8q")
LEFT = Leftovers({DISK}, {"orchard-workers-m4tr9"})
BUILD_INFO = b"\x7fELF...\npath\tgithub.com/harvester/docker-machine-driver-harvester\nmod\tgithub.com/harvester/docker-machine-driver-harvester\t%s\t\ndep\tx\tv1\n..."


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (BUILD_INFO % b"v1.0.6", "v1.0.6"),
        (BUILD_INFO % b"(devel)", "(devel)"),
        (BUILD_INFO.replace(b"docker-machine-driver-harvester", b"other"), None),
        (b"#!/usr/bin/python3\nfrom windrow.plugin.__main__ import main\n", None),
        (b"", None),
        ((BUILD_INFO % b"v1")[:80] + b"\nmod\tgithub.com/harvester/docker-machine-driver-harvester\t", ""),
        (BUILD_INFO % (b"v" * 5000), "v" * 100),
    ],
)
def test_the_go_driver_is_known_by_its_build_info(
    tmp_path: Path, content: bytes, version: str | None
) -> None:
    program = tmp_path / "docker-machine-driver-harvester"
    program.write_bytes(content)

    assert read_go_driver_version(program) == version


def test_disks_of_vms_that_were_deleted_without_the_driver_are_its_known_flaw() -> None:
    flaw = find_known_flaw("v1.0.6", "nothing-left", LEFT)

    assert flaw in KNOWN_FLAWS
    assert flaw is not None
    assert "leaves its disks" in flaw.flaw


@pytest.mark.parametrize(
    ("version", "left"),
    [
        (None, LEFT),  # our driver, and any other
        ("v1.0.6", Leftovers({DISK}, set())),
        ("v1.0.6", Leftovers({DISK}, {"orchard-workers-m4t"})),
        ("v1.0.6", Leftovers({DISK, ("VirtualMachine", "default", "other")}, LEFT.deleted_vms)),
        ("v1.0.6", Leftovers({("Address", "pool", "10.0.0.1")}, LEFT.deleted_vms)),
        ("v1.0.6", Leftovers(set(), LEFT.deleted_vms)),
    ],
)
def test_nothing_else_is(version: str | None, left: Leftovers) -> None:
    assert find_known_flaw(version, "nothing-left", left) is None


def report_of(*checks: CheckRecord) -> Report:
    report = Report(SystemClock(), lambda one: None)
    report.checks.extend(checks)
    return report


GOOD = CheckRecord("nodes-ready", True, "5 of 5")
KNOWN = CheckRecord("nothing-left", False, "left on Harvester: x", "it leaves disks")
FAILED = CheckRecord("nothing-left", False, "left on Harvester: x")


@pytest.mark.parametrize(
    ("checks", "passed"), [((GOOD,), True), ((GOOD, KNOWN), True), ((KNOWN, FAILED), False), ((), False)]
)
def test_a_known_flaw_fails_no_demo_and_a_failed_check_does(
    checks: tuple[CheckRecord, ...], passed: bool
) -> None:
    assert report_of(*checks).passed is passed


def test_the_known_flaw_stands_beside_its_check_in_the_summary_and_in_the_report() -> None:
    out, report = io.StringIO(), report_of(GOOD, KNOWN)
    output = PlainOutput(an_edge(out))

    output.check_record(KNOWN)
    print_summary(DemoOptions(keep=True), report, output)

    text = " ".join(out.getvalue().split())
    assert "KNOWN nothing-left: left on Harvester: x. Known flaw of this driver: it leaves disks" in text
    assert "2 checks, 0 failed. Known flaws of the node driver, not counted as failed: nothing-left" in text
    assert report.as_json()["checks"][1]["knownFlaw"] == "it leaves disks"
    assert "knownFlaw" not in report.as_json()["checks"][0]
