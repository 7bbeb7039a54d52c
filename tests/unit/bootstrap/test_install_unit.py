import os
import shutil
import subprocess
from pathlib import Path

import pytest

from windrow.bootstrap import rke2
from windrow.bootstrap.install_unit import RENEW_IDENTITY, list_install_files

SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]
VERSION = "v1.35.1+rke2r1"


class Machine:
    """A directory that stands for a machine: the script's paths lead into it, commands it calls leave a line."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls = root / "calls"
        (root / "bin").mkdir()
        self.calls.write_text("")
        for name in ("systemctl", "curl"):
            self.command(name, "")
        self.command(
            "curl", 'for last in "$@"; do :; done\necho "echo installer >> $CALLS" > $ROOT/run-installer'
        )
        self.command("rke2", "")

    def command(self, name: str, body: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> $CALLS\n{body}\n')
        path.chmod(0o755)

    def install(self, **environment: str) -> int:
        (script,) = [f.content for f in list_install_files(rke2.INSTALLER, {}) if f.path.endswith(".sh")]
        script = script.replace("/var/lib/windrow", f"{self.root}/state")
        script = script.replace("/run/windrow-install-rke2.sh", f"{self.root}/run-installer")
        path = self.root / "install.sh"
        path.write_text(script)
        known = {
            "PATH": f"{self.root}/bin:{os.defpath}",
            "CALLS": str(self.calls),
            "ROOT": str(self.root),
            "INSTALL_RKE2_VERSION": VERSION,
            "RKE2_SERVICE": "rke2-server.service",
        }
        self.calls.write_text("")
        return subprocess.run(
            ["sh", str(path)], env=known | environment, capture_output=True, check=False
        ).returncode

    @property
    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


RESTART = "systemctl restart --no-block rke2-server.service"
START = "systemctl start --no-block rke2-server.service"


def test_the_named_release_is_installed_and_started(machine: Machine) -> None:
    assert machine.install() == 0

    assert machine.called[0].startswith("curl -fsSL")
    assert machine.called[1:] == [
        "installer",
        "systemctl daemon-reload",
        "systemctl enable rke2-server.service",
        RESTART,
    ]


def test_what_is_installed_is_started_and_not_installed_again(machine: Machine) -> None:
    machine.install()

    assert machine.install() == 0
    assert machine.called == ["systemctl enable rke2-server.service", START]


def test_another_version_is_installed_and_the_service_restarted(machine: Machine) -> None:
    machine.install()

    assert machine.install(INSTALL_RKE2_VERSION="v1.35.2+rke2r1") == 0
    assert RESTART in machine.called
    assert "installer" in machine.called


def test_a_failed_download_fails_the_unit_and_the_next_try_begins_again(machine: Machine) -> None:
    curl = machine.root / "bin" / "curl"
    works = curl.read_text()
    machine.command("curl", "exit 22")

    assert machine.install() == 22
    assert RESTART not in machine.called

    curl.write_text(works)
    assert machine.install() == 0
    assert RESTART in machine.called


def test_without_internet_the_artifacts_beside_the_machine_are_used(machine: Machine) -> None:
    artifacts = machine.root / "artifacts"
    artifacts.mkdir()
    (artifacts / "install.sh").write_text("echo local $INSTALL_RKE2_ARTIFACT_PATH >> $CALLS")

    assert machine.install(INSTALL_RKE2_ARTIFACT_PATH=str(artifacts)) == 0
    assert machine.called[0] == f"local {artifacts}"
    assert not [call for call in machine.called if call.startswith("curl")]


def test_a_binary_with_another_checksum_is_not_started(machine: Machine) -> None:
    assert machine.install(RKE2_SHA256="0" * 64) != 0
    assert RESTART not in machine.called


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_reads_the_scripts(shell: str, tmp_path: Path) -> None:
    scripts = [f.content for f in list_install_files(rke2.INSTALLER, {}) if f.path.endswith(".sh")]
    for script in (*scripts, RENEW_IDENTITY):
        path = tmp_path / "script"
        path.write_text(script)
        assert subprocess.run([shell, "-n", str(path)], check=False).returncode == 0


def test_the_unit_reads_the_environment_and_tries_again() -> None:
    by_path = {file.path: file for file in list_install_files(rke2.INSTALLER, {"A": "1", "B": "2"})}
    unit = by_path["/etc/systemd/system/windrow-install.service"].content

    assert by_path["/etc/windrow/rke2.env"].content == "A=1\nB=2\n"
    assert "EnvironmentFile=/etc/windrow/rke2.env\n" in unit
    assert "ExecStart=/bin/sh /etc/windrow/install-rke2.sh\n" in unit
    assert "Restart=on-failure\n" in unit
