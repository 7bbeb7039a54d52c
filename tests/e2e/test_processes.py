"""Emulator and manager as separate processes, with kubectl as the client."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.processes import RANCHER_DUMP, SPEED, Shell, needs_dump, needs_kubectl

from windrow.core.formats.yaml import load_all

pytestmark = [needs_kubectl, needs_dump]

CLUSTERS = "clusters.provisioning.cattle.io"
HARVESTER, MANAGER = "site/harvester.yaml", "manager/manager.yaml"
USERS_KINDS = "vms,vmis,pvc,secrets,serviceaccounts,rolebindings"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell beside a running emulator that is written for Rancher's dump."""
    shell = Shell(tmp_path)
    written = (HARVESTER, "site/credentials.yaml")
    with shell.process(
        "emulate", "--state-dir", "site", "--preload", str(RANCHER_DUMP), "--time-scale", SPEED, until=written
    ):
        yield shell


def apply_dump(shell: Shell) -> list[str]:
    shell.kubectl(MANAGER, "apply", "-f", "site/credentials.yaml")
    clean = shell.windrow("import", "-f", str(RANCHER_DUMP))
    return shell.kubectl(MANAGER, "apply", "-f", "-", given=clean).splitlines()


def wait_until_ready(shell: Shell) -> None:
    shell.kubectl(
        MANAGER, "wait", f"{CLUSTERS}/51", "-n", "fleet-default", "--for=condition=Ready", "--timeout=90s"
    )


def inventory(shell: Shell) -> list[str]:
    found = shell.kubectl(HARVESTER, "get", USERS_KINDS, "-n", "default", "-o", "name")
    return sorted(found.splitlines())


def test_a_cluster_lives_from_import_to_deletion_with_kubectl_while_its_manager_is_killed(
    shell: Shell,
) -> None:
    before = inventory(shell)
    with shell.process("serve", "--state-dir", "manager", until=[MANAGER]) as manager:
        assert all(line.endswith(" created") for line in apply_dump(shell))
        assert all(line.endswith(" unchanged") for line in apply_dump(shell))

        told = shell.kubectl(MANAGER, "describe", f"{CLUSTERS}/51", "-n", "fleet-default")
        assert "Waiting" in told
        shell.wait_for_any(MANAGER, "machines")
        manager.send_signal(signal.SIGKILL)
        manager.wait()

    with shell.process("serve", "--state-dir", "manager", until=[MANAGER]):
        wait_until_ready(shell)
        assert len(shell.objects(MANAGER, "machines", "-A")) == 1
        assert len(shell.objects(HARVESTER, "vms", "-A")) == 1

        head, row, *_ = shell.kubectl(MANAGER, "get", f"{CLUSTERS},machines", "-A").splitlines()
        assert head.split()[:6] == ["NAMESPACE", "NAME", "READY", "PHASE", "ACCEPTED", "VERSION"]
        assert row.split()[2:6] == ["True", "Ready", "True", "v1.35.1+rke2r1"]

        (shell.folder / "guest.yaml").write_text(shell.windrow("kubeconfig", "51", "--kubeconfig", MANAGER))
        node = shell.kubectl("guest.yaml", "get", "nodes", "-o", "wide", "--no-headers").split()
        assert node[1] == "Ready"
        assert node[5].startswith("192.168.")

        shell.kubectl(MANAGER, "delete", f"{CLUSTERS}/51", "-n", "fleet-default", "--timeout=60s")
        assert shell.objects(MANAGER, f"{CLUSTERS},machines", "-A") == []
        assert inventory(shell) == before


def test_an_emulator_writes_the_keys_of_a_bucket_for_its_owner_alone(tmp_path: Path) -> None:
    shell, path = Shell(tmp_path), tmp_path / "site" / "credentials.yaml"

    with shell.process(
        "emulate", "--bucket", "backups", "--state-dir", "site", until=["site/credentials.yaml"]
    ):
        (secret,) = load_all(path.read_text())
        mode = path.stat().st_mode & 0o777
    said = shell.complaint("emulate", "--bucket", "Backups", "--state-dir", "site")

    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == ("fleet-default", "cc-s3")
    assert mode == 0o600
    assert secret["stringData"]["s3credentialConfig-secretKey"] not in (tmp_path / "emulate.log").read_text()
    assert "--bucket 'Backups': wanted 3 to 63 lower-case letters" in said
