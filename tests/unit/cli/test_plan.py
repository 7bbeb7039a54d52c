"""`windrow plan`: what a manifest, or a cluster as it stands, changes of machines; the screens are in `plans/`.

`WINDROW_RENEW=1 pytest -n0` of this file writes them anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import MANIFEST

from windrow.apiserver.loopback import LoopbackClient
from windrow.app.manifest_checks.changes import assume_state
from windrow.cli import exit_codes
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, HARVESTER_CONFIG, MACHINE
from windrow.clusters.api.machine import render_machine
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.api.operations.snapshot import SPEC_KEY, SnapshotFile, encode_spec, render_snapshot
from windrow.clusters.bootstrap_data import find_config_hashes
from windrow.clusters.change.revisions import list_revisions

Windrow = Callable[..., Any]
Manager = Any

ORCHARD = CLUSTER.ref("orchard", "fleet-default")
SCREENS = Path(__file__).parent / "plans"
VERSION = "v1.34.7+rke2r1"


def check_screen(name: str, text: str) -> None:
    """What of it this release only tells is another thing in each."""
    text = "".join(one for one in text.splitlines(True) if not one.startswith("  not yet: "))
    path = SCREENS / f"{name}.txt"
    if os.environ.get("WINDROW_RENEW"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path.name} is not written yet; renew with WINDROW_RENEW=1"
    assert text == path.read_text()
    assert max(map(len, text.splitlines())) <= 80


async def make_machines(api: LoopbackClient) -> None:
    """The manager's part: five machines as the Cluster asks for them, and what it records."""
    raw = await api.get(ORCHARD)
    raw = {**raw, "status": {"version": VERSION, "initialized": True}}
    config = await api.get(HARVESTER_CONFIG.ref("nc-orchard", "fleet-default"))
    reading = read_cluster(raw, [config])
    state = assume_state(reading.cluster, (), (), None)  # type: ignore[arg-type]  # no clock is asked
    hashes = find_config_hashes(reading.cluster, VERSION)
    status = {**raw["status"], "revisions": list_revisions(state)}
    await api.patch(ORCHARD, {"status": status}, subresource="status")
    for pool in reading.cluster.pools:
        for number in range(pool.quantity):
            machine = render_machine(
                reading.cluster,
                pool,
                f"orchard-{pool.name}-x5x7z-9k2l{number}",
                version=VERSION,
                config_hash=hashes[pool.name],
                join_server="",
                is_init_server=pool.is_etcd and number == 0,
            )
            await api.create(MACHINE, machine)


@pytest.fixture
def orchard(windrow: Windrow, manager: Manager) -> Manager:
    """A cluster of five machines, as its manifest asks for them."""
    assert windrow("apply", "-f", "cluster.yaml").code == exit_codes.OK
    manager.do(make_machines)
    return manager


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., str]:
    """The manifest with other texts, as a file."""

    def edit(*changes: tuple[str, str]) -> str:
        text = MANIFEST
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "edited.yaml").write_text(text)
        return "edited.yaml"

    return edit


Edited = Callable[..., str]
UPGRADED = (VERSION, "v1.35.1+rke2r1")


def test_a_cluster_that_is_as_its_manifest_asks_has_nothing_to_do(windrow: Windrow, orchard: Manager):
    by_file, by_name = windrow("plan", "cluster.yaml"), windrow("plan", "orchard")

    assert (by_file.code, by_name.code) == (exit_codes.OK, exit_codes.OK)
    assert by_file.out == by_name.out
    check_screen("nothing-to-do", by_file.out)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("upgrade", [UPGRADED]),
        (
            "configuration",
            [
                (
                    "{cloud-provider-name: harvester}",
                    "{cloud-provider-name: harvester, kube-apiserver-arg: [v=4]}",
                ),
                (
                    "    machinePools:",
                    "    chartValues: {rke2-canal: {flannel: {iface: enp1s0}}}\n    machinePools:",
                ),
            ],
        ),
        ("machines", [('cpuCount: "4"', 'cpuCount: "8"')]),
        ("image", [("default/leap", "default/trixie")]),
        (
            "pools",
            [
                ("quantity: 2", "quantity: 5\n        drainBeforeDelete: true\n        labels: {tier: web}"),
                ("quantity: 3", "quantity: 1"),
            ],
        ),
        ("roles", [("workerRole: true", "workerRole: true\n        etcdRole: true")]),
        (
            "requests",
            [
                (
                    "    machinePools:",
                    "    rotateCertificates: {generation: 1}\n    rotateEncryptionKeys: {generation: 1}\n"
                    "    machinePools:",
                )
            ],
        ),
        (
            "credential-in-values",
            [("    machinePools:", "    chartValues: {x: {password: hunter2-canary}}\n    machinePools:")],
        ),
    ],
)
def test_what_an_edit_means_is_shown_at_80_columns(
    windrow: Windrow, orchard: Manager, edited: Edited, name: str, changes: list[tuple[str, str]]
):
    before = orchard.do(lambda api: api.get(ORCHARD))

    answer = windrow("plan", edited(*changes))

    assert answer.code == (exit_codes.REFUSED if name == "roles" else exit_codes.DIFFERENCES), answer.err
    assert "canary" not in answer.out
    check_screen(name, answer.out)
    assert orchard.do(lambda api: api.get(ORCHARD)) == before


def test_the_plan_of_a_manifest_is_the_plan_of_the_cluster_once_it_is_applied(
    windrow: Windrow, orchard: Manager, edited: Edited
):
    file = edited(UPGRADED, ('cpuCount: "4"', 'cpuCount: "8"'), ("quantity: 2", "quantity: 4"))

    predicted = windrow("plan", file)
    assert windrow("apply", "-f", file).code == exit_codes.OK
    applied = windrow("plan", "fleet-default/orchard")

    assert predicted.out == applied.out
    assert applied.code == exit_codes.DIFFERENCES


def test_a_cluster_that_does_not_exist_is_told_to_be_made(windrow: Windrow, manager: Manager):
    answer = windrow("plan", "cluster.yaml")

    assert answer.code == exit_codes.DIFFERENCES
    check_screen("new-cluster", answer.out)


def test_the_plan_is_printed_as_an_object_machine_by_machine(
    windrow: Windrow, orchard: Manager, edited: Edited
):
    answer = windrow("plan", edited(UPGRADED), "-o", "json")

    plan = json.loads(answer.out)
    assert answer.code == exit_codes.DIFFERENCES
    assert (plan["kind"], plan["version"], plan["desiredVersion"]) == ("ChangePlan", *UPGRADED)
    assert [(one["order"], one["change"]) for one in plan["machines"]] == [
        (place, "service restart") for place in range(1, 6)
    ]
    (field,) = plan["machines"][0]["fields"]
    assert (field["field"], field["old"], field["new"]) == ("spec.kubernetesVersion", *UPGRADED)


@pytest.mark.parametrize(
    "wanted", ["v1.36.1+rke2r1", "v1.33.1+rke2r1", "latest", "v1.35.1", "v" * 5000, "v1.35.1+k3s1"]
)
def test_a_version_that_the_cluster_may_not_go_to_is_an_error(
    windrow: Windrow, orchard: Manager, edited: Edited, wanted: str
):
    answer = windrow("plan", edited((VERSION, wanted)))

    assert answer.code == exit_codes.REFUSED
    assert "error    spec.kubernetesVersion " in answer.err
    assert answer.out == ""


def test_every_error_of_a_manifest_is_told_at_once(windrow: Windrow, orchard: Manager, edited: Edited):
    answer = windrow("plan", edited((VERSION, "v1.36.1+rke2r1"), ("quantity: 2", "quantitty: 2")))

    assert answer.code == exit_codes.REFUSED
    assert "no minor may be skipped" in answer.err
    assert "quantitty is not a field" in answer.err


def test_a_machine_config_alone_is_planned_for_the_clusters_that_name_it(
    windrow: Windrow, orchard: Manager, tmp_path: Path
):
    config = MANIFEST.split("---")[-1].replace('cpuCount: "4"', 'cpuCount: "8"')
    (tmp_path / "config.yaml").write_text(config)

    answer = windrow("plan", "config.yaml")

    assert answer.code == exit_codes.DIFFERENCES, answer.err
    assert "HarvesterConfig nc-orchard: cpuCount  4 → 8" in answer.out


def test_a_plan_says_that_its_turns_are_paused(windrow: Windrow, orchard: Manager):
    orchard.do(lambda api: api.patch(ORCHARD, {"spec": {"paused": True}}))

    answer = windrow("plan", "orchard")

    assert "held: the Cluster is paused: no machine that exists is changed" in answer.out
    assert "windrow resume fleet-default/orchard" in " ".join(answer.out.split())
    assert "resume" in json.loads(windrow("plan", "orchard", "-o", "json").out)["held"]


@pytest.mark.parametrize(
    ("subject", "code", "told"),
    [
        ("absent.yaml", exit_codes.REFUSED, "absent.yaml"),
        ("absent", exit_codes.NOT_FOUND, "Cluster 'absent' not found"),
        ("orchard/absent", exit_codes.NOT_FOUND, "not found in namespace orchard"),
    ],
)
def test_what_is_neither_file_nor_cluster_is_not_found(
    windrow: Windrow, orchard: Manager, subject: str, code: int, told: str
):
    answer = windrow("plan", subject)

    assert told in answer.err
    assert answer.code == code


def test_a_failure_is_no_plan_with_changes(
    windrow: Windrow, orchard: Manager, monkeypatch: pytest.MonkeyPatch
):
    def fail(*rest: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("windrow.app.plan.read_cluster", fail)

    assert windrow("plan", "orchard").code == exit_codes.UNDECIDED


def test_a_plan_says_what_a_check_of_the_manifest_warns_of(
    windrow: Windrow, orchard: Manager, edited: Edited
):
    answer = windrow("plan", edited((VERSION, "v1.34.99+rke2r1")))

    assert answer.code == exit_codes.DIFFERENCES
    assert "RKE2 v1.34.99+rke2r1 is newer than what the support matrix" in " ".join(answer.err.split())
    assert "service restart" not in answer.err, "the plan says that"
    assert "v1.34.99+rke2r1" in answer.out


FAILED = {
    "type": "RollingOut",
    "status": "False",
    "reason": "UpdateFailed",
    "message": "update of Machine m failed in step Apply: no RKE2 release v1.34.99; set another version; or mend it, then have it "
    "tried again: kubectl -n fleet-default annotate machine orchard-servers-x5x7z-9k2l0 windrow.io/retry-update=",
}


def test_a_plan_tells_of_the_update_that_failed_with_a_command_that_can_be_copied(
    windrow: Windrow, orchard: Manager
):
    orchard.do(lambda api: api.patch(ORCHARD, {"status": {"conditions": [FAILED]}}, subresource="status"))

    answer = windrow("plan", "orchard")
    lines = answer.out.splitlines()

    assert "update of Machine m failed in step Apply: no RKE2 release v1.34.99; set another" in lines
    command = "kubectl -n fleet-default annotate machine orchard-servers-x5x7z-9k2l0 windrow.io/retry-update="
    assert f"  {command}" in lines
    assert json.loads(windrow("plan", "orchard", "-o", "json").out)["failed"] == FAILED["message"]


def test_a_refused_spec_has_one_exit_code_whether_it_is_in_a_file_or_applied(
    windrow: Windrow, orchard: Manager, edited: Edited
):
    file = edited((VERSION, "v1.33.1+rke2r1"))
    orchard.do(lambda api: api.patch(ORCHARD, {"spec": {"kubernetesVersion": "v1.33.1+rke2r1"}}))

    by_name = windrow("plan", "orchard")

    assert (windrow("plan", file).code, by_name.code) == (exit_codes.REFUSED, exit_codes.REFUSED)
    assert " ".join(by_name.out.split()).count("lower than v1.34.7+rke2r1") == 1
    assert "ORDER" not in by_name.out


def test_the_plan_of_a_refused_downgrade_names_the_restore_that_leads_there(
    windrow: Windrow, orchard: Manager
):
    """As `status.pendingChanges` does: the command was in the status alone."""
    carried = {SPEC_KEY: encode_spec({"kubernetesVersion": "v1.33.1+rke2r1"})}

    async def refuse(api: Any) -> None:
        raw = await api.get(ORCHARD)
        file = SnapshotFile("s3-upgrade", "upgrade", "n1", s3={"bucket": "b"}, metadata=carried)
        snapshot = render_snapshot(read_cluster(raw, [], lambda kind: "harvester").cluster, file, "True")
        await api.create(ETCD_SNAPSHOT, snapshot)
        await api.patch(ORCHARD, {"spec": {"kubernetesVersion": "v1.33.2+rke2r1"}})
        made = {"upgradeSnapshot": {"version": VERSION, "name": "upgrade"}}
        await api.patch(ORCHARD, {"status": made}, "status")

    orchard.do(refuse)

    answer = windrow("plan", "orchard")

    assert "windrow restore fleet-default/orchard" in " ".join((answer.out + answer.err).split())
