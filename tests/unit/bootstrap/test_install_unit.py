import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from windrow.bootstrap import k3s, rke2
from windrow.bootstrap.install.kernel_probe import list_probe_files
from windrow.bootstrap.install.unit import RENEW_IDENTITY, UNIT, Installer, list_install_files
from windrow.core.formats import yaml

SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]
INSTALLERS = {"rke2": rke2.INSTALLER, "k3s": k3s.INSTALLER}
SERVICES = {"rke2": "rke2-server.service", "k3s": "k3s.service"}
VERSIONS = {"rke2": "v1.35.1+rke2r1", "k3s": "v1.35.1+k3s1"}


class Machine:
    """A directory that stands for a machine: the script's paths lead into it, commands it calls leave a line."""

    def __init__(self, root: Path, installer: Installer) -> None:
        self.root, self.installer, self.name = root, installer, installer.layout.name
        self.calls = root / "calls"
        (root / "bin").mkdir()
        self.calls.write_text("")
        for name in ("systemctl", "curl"):
            self.command(name, "")
        self.command(
            "curl", 'for last in "$@"; do :; done\necho "echo installer >> $CALLS" > $ROOT/run-installer'
        )
        self.command(self.name, "")

    @property
    def restart(self) -> str:
        return f"systemctl restart --no-block {SERVICES[self.name]}"

    @property
    def start(self) -> str:
        return f"systemctl start --no-block {SERVICES[self.name]}"

    def command(self, name: str, body: str) -> None:
        path = self.root / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> $CALLS\n{body}\n')
        path.chmod(0o755)

    def install(self, **environment: str) -> int:
        by_path = {file.path: file.content for file in list_install_files(self.installer, {})}
        script = by_path[self.installer.script]
        script = script.replace("/var/lib/windrow", f"{self.root}/state")
        script = script.replace(f"/run/windrow-install-{self.name}.sh", f"{self.root}/run-installer")
        path = self.root / "install.sh"
        path.write_text(script)
        known = {
            "PATH": f"{self.root}/bin:{os.defpath}",
            "CALLS": str(self.calls),
            "ROOT": str(self.root),
            f"INSTALL_{self.name.upper()}_VERSION": VERSIONS[self.name],
            self.installer.service: SERVICES[self.name],
        }
        self.calls.write_text("")
        return subprocess.run(
            ["sh", str(path)], env=known | environment, capture_output=True, check=False
        ).returncode

    def probe(self, **environment: str) -> dict[str, Any] | None:
        """What the probe tells the distribution; None for nothing. Its `unshare` may do what `environment` lets it do."""
        (script,) = [
            file.content
            for file in list_probe_files(self.installer.layout, "/x")
            if file.path.endswith(".sh")
        ]
        result = self.root / "probe.yaml"
        path = self.root / "probe.sh"
        path.write_text(script.replace(self.installer.layout.probe_file, str(result)))
        self.command("unshare", 'case "$*" in *macvlan*) exit $CHILD ;; *) exit $PARENT ;; esac')
        known = {
            "PATH": f"{self.root}/bin:{os.defpath}",
            "CALLS": str(self.calls),
            "PARENT": "0",
            "CHILD": "0",
        }
        done = subprocess.run(["sh", str(path)], env=known | environment, capture_output=True, check=False)
        assert done.returncode == 0
        return cast("dict[str, Any]", yaml.load(result.read_text())) if result.exists() else None

    @property
    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()


def test_variables_of_the_cluster_are_read_by_the_unit_before_our_own_and_by_the_service() -> None:
    ours = {"RKE2_SERVICE": "rke2-server.service"}
    plain = {file.path: file for file in list_install_files(rke2.INSTALLER, ours)}
    given = {file.path: file for file in list_install_files(rke2.INSTALLER, ours, {"NO_PROXY": 'a "b" $c'})}

    assert sorted(set(given) - set(plain)) == ["/etc/default/rke2-server", "/etc/windrow/agent.env"]
    for path in set(given) - set(plain):
        assert (given[path].content, given[path].mode) == ('NO_PROXY="a \\"b\\" \\$c"\n', "0600")
    lines = [line for line in given[UNIT].content.splitlines() if line.startswith("EnvironmentFile")]
    assert lines[0] == "EnvironmentFile=/etc/windrow/agent.env"
    assert "agent.env" not in plain[UNIT].content


@pytest.fixture(params=sorted(INSTALLERS))
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    return Machine(tmp_path, INSTALLERS[request.param])


def test_the_named_release_is_installed_and_started(machine: Machine) -> None:
    assert machine.install() == 0

    assert machine.called[0].startswith("curl -fsSL")
    assert machine.called[1:] == [
        "installer",
        "systemctl daemon-reload",
        f"systemctl enable {SERVICES[machine.name]}",
        machine.restart,
    ]


def test_what_is_installed_is_started_and_not_installed_again(machine: Machine) -> None:
    machine.install()

    assert machine.install() == 0
    assert machine.called == [f"systemctl enable {SERVICES[machine.name]}", machine.start]


def test_another_version_is_installed_and_the_service_restarted(machine: Machine) -> None:
    machine.install()

    assert machine.install(**{f"INSTALL_{machine.name.upper()}_VERSION": "v1.35.2+x"}) == 0
    assert machine.restart in machine.called
    assert "installer" in machine.called


def test_a_failed_download_fails_the_unit_and_the_next_try_begins_again(machine: Machine) -> None:
    curl = machine.root / "bin" / "curl"
    works = curl.read_text()
    machine.command("curl", "exit 22")

    assert machine.install() == 22
    assert machine.restart not in machine.called

    curl.write_text(works)
    assert machine.install() == 0
    assert machine.restart in machine.called


def test_without_internet_the_artifacts_beside_the_machine_are_used(machine: Machine) -> None:
    artifacts = machine.root / "artifacts"
    artifacts.mkdir()
    variable = f"INSTALL_{machine.name.upper()}_ARTIFACT_PATH"
    (artifacts / "install.sh").write_text(f"echo local ${variable} >> $CALLS")
    images = {"WINDROW_IMAGES": f"{machine.root}/images"}

    assert machine.install(**images, **{variable: str(artifacts)}) == 0
    assert machine.called[0] == f"local {artifacts}"
    assert not [call for call in machine.called if call.startswith("curl")]


def test_binary_and_images_of_k3s_are_put_in_place_for_a_script_that_is_to_download_nothing(
    tmp_path: Path,
) -> None:
    machine, artifacts = Machine(tmp_path, k3s.INSTALLER), tmp_path / "artifacts"
    artifacts.mkdir()
    (artifacts / "k3s").write_text("the binary")
    (artifacts / "k3s-airgap-images-amd64.tar.zst").write_text("images")
    (artifacts / "install.sh").write_text("echo skip $INSTALL_K3S_SKIP_DOWNLOAD >> $CALLS")
    places = {"WINDROW_IMAGES": f"{tmp_path}/images", "INSTALL_K3S_BIN_DIR": f"{tmp_path}/bin"}

    for _ in range(2):  # the second time, as an upgrade does, beside a service that runs
        assert machine.install(INSTALL_K3S_ARTIFACT_PATH=str(artifacts), **places) == 0
        (tmp_path / "state" / "installed").unlink(missing_ok=True)

    assert "skip true" in machine.called
    assert (tmp_path / "bin" / "k3s").read_text() == "the binary"
    assert (tmp_path / "bin" / "k3s").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "images" / "k3s-airgap-images-amd64.tar.zst").read_text() == "images"


def test_a_binary_with_another_checksum_is_not_started(machine: Machine) -> None:
    assert machine.install(**{f"{machine.name.upper()}_SHA256": "0" * 64}) != 0
    assert machine.restart not in machine.called


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_reads_the_scripts(shell: str, tmp_path: Path) -> None:
    files = [file for installer in INSTALLERS.values() for file in list_install_files(installer, {})]
    scripts = [file.content for file in files if file.path.endswith(".sh")]
    assert len(scripts) == 4
    for script in (*scripts, RENEW_IDENTITY):
        path = tmp_path / "script"
        path.write_text(script)
        assert subprocess.run([shell, "-n", str(path)], check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(INSTALLERS))
def test_the_unit_reads_the_environment_and_tries_again(name: str) -> None:
    by_path = {file.path: file for file in list_install_files(INSTALLERS[name], {"A": "1", "B": "2"})}
    unit = by_path["/etc/systemd/system/windrow-install.service"].content

    assert by_path[f"/etc/windrow/{name}.env"].content == "A=1\nB=2\n"
    assert f"EnvironmentFile=/etc/windrow/{name}.env\n" in unit
    assert f"ExecStart=/bin/sh /etc/windrow/install-{name}.sh\n" in unit
    assert "Restart=on-failure\n" in unit


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ({}, {"node-label+": ["windrow.io/macvlan=available"]}),
        ({"CHILD": "2"}, {"node-label+": ["windrow.io/macvlan=missing"]}),
        ({"PARENT": "127"}, None),  # no program of that name, or no right to a namespace
    ],
)
def test_the_kernel_is_probed_for_macvlan_and_the_result_added_to_the_labels_of_the_node(
    machine: Machine, kernel: dict[str, str], told: dict[str, Any] | None
) -> None:
    assert machine.probe(**kernel) == told


def test_a_later_probe_replaces_the_result_of_an_earlier_boot(machine: Machine) -> None:
    machine.probe(CHILD="2")

    assert machine.probe() == {"node-label+": ["windrow.io/macvlan=available"]}
    assert machine.probe(PARENT="1") is None
    assert [path.name for path in machine.root.glob("probe.yaml*")] == []


@pytest.mark.parametrize("name", sorted(INSTALLERS))
def test_the_service_waits_for_the_probe_which_may_fail_and_is_cut_off(name: str) -> None:
    by_path = {file.path: file for file in list_install_files(INSTALLERS[name], {})}
    lines = by_path[UNIT].content.splitlines()

    assert SERVICES[name] in next(line for line in lines if line.startswith("Before=")).split("=")[1].split()
    (probe,) = [line for line in lines if line.startswith("ExecStartPre=")]
    assert probe == "ExecStartPre=-/usr/bin/timeout 30 /bin/sh /etc/windrow/probe-kernel.sh"
    assert by_path["/etc/windrow/probe-kernel.sh"].mode == "0755"
