"""The reset of etcd on a server that exists: its script run by a shell, with a distribution that records and fails as it is told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap.install.cluster_reset import ASIDE, ClusterReset, add_reset
from windrow.bootstrap.restore import SCRIPT, STATE
from windrow.core.formats.yaml import load

RKE2 = DISTRIBUTIONS["rke2"].LAYOUT
PATH = "/snapshots/on demand-1"
DOCUMENT = "#cloud-config\nhostname: one\nbootcmd:\n- [echo, first]\n"


class Disk:
    """The disk of a server with data of before, and its distribution, which makes others of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.record = folder / "record"
        for name in ("db/etcd", "tls", "cred"):
            self.write(name, "before")
        (self.data / "server/db/reset-flag").write_text("")

    def write(self, name: str, text: str) -> None:
        path = self.data / "server" / name
        path.mkdir(parents=True, exist_ok=True)
        (path / "file").write_text(text)

    def contents(self) -> list[str]:
        paths = (self.data / "server" / name / "file" for name in ("db/etcd", "tls", "cred"))
        return [path.read_text() if path.exists() else "" for path in paths]

    def at(self, text: str) -> str:
        for path in (SCRIPT, STATE, ASIDE, "/var/lib/windrow", "/etc/systemd"):
            text = text.replace(path, f"{self.folder}/{path.strip('/').replace('/', '-')}")
        return text

    def boot(self, reset: ClusterReset, fails: bool = False) -> tuple[int, list[str]]:
        """The boot command, then the script as the service runs it: its exit code, and how the distribution was called."""
        binaries = self.folder / "bin"
        binaries.mkdir(exist_ok=True)
        etcd = self.data / "server/db/etcd"
        rke2 = f"""#!/bin/sh
printf '%s\\n' "$@" >> {self.record}
[ -e {self.data}/server/db/reset-flag ] && echo flag >> {self.record}
mkdir -p {etcd} {self.data}/server/tls
echo half > {etcd}/file; echo half > {self.data}/server/tls/file
{"exit 1" if fails else f"printf after > {etcd}/file"}
"""
        for name, text in (("rke2", rke2), ("systemctl", "#!/bin/sh\n")):
            (binaries / name).write_text(text)
            (binaries / name).chmod(0o755)
        environment = {"PATH": f"{binaries}:{os.environ['PATH']}"}
        *_, command = load(add_reset(DOCUMENT, reset, RKE2, "rke2-server.service"))["bootcmd"]
        code = self.at(command[2])
        subprocess.run(["sh", "-c", code], env=environment, check=True, capture_output=True)
        script = Path(self.at(SCRIPT))
        script.write_text(self.at(script.read_text()))
        done = subprocess.run(["sh", str(script)], env=environment, check=False, capture_output=True)
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        self.record.unlink(missing_ok=True)
        return done.returncode, lines

    def reset(self, id: str = "1-7", path: str = PATH) -> ClusterReset:
        return ClusterReset(id, path, str(self.data))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_snapshot_is_restored_once_and_what_was_there_goes(disk: Disk) -> None:
    flags = [
        "server",
        "--cluster-reset",
        "--server=",
        f"--cluster-reset-restore-path={PATH}",
        "--etcd-s3=false",
    ]

    assert disk.boot(disk.reset()) == (0, flags)
    assert disk.contents()[0] == "after"
    assert not Path(disk.at(ASIDE)).exists()
    disk.write("db/etcd", "since")
    assert disk.boot(disk.reset()) == (0, [])
    assert disk.contents()[0] == "since"
    assert disk.boot(disk.reset("2-9"))[1] == flags


def test_one_that_fails_leaves_the_data_of_before_and_the_service_does_not_start(disk: Disk) -> None:
    for _ in range(2):
        code, lines = disk.boot(disk.reset(), fails=True)
        assert (code, lines[0]) == (1, "server")
        assert disk.contents() == ["before", "before", "before"]
    assert disk.boot(disk.reset())[0] == 0
    assert disk.contents()[0] == "after"


def test_a_restore_that_was_cut_off_begins_again_with_what_was_moved_aside(disk: Disk) -> None:
    disk.boot(disk.reset(), fails=True)
    aside = Path(disk.at(ASIDE))
    (aside / "db").mkdir(parents=True, exist_ok=True)
    (disk.data / "server/db/etcd").rename(aside / "db/etcd")
    disk.write("db/etcd", "half")  # as of a power cut in the middle

    assert disk.boot(disk.reset(), fails=True)[0] == 1
    assert disk.contents() == ["before", "before", "before"]


def test_without_a_snapshot_the_member_goes_on_with_its_own_data(disk: Disk) -> None:
    assert disk.boot(disk.reset(path="")) == (0, ["server", "--cluster-reset", "--server="])
    assert disk.boot(disk.reset(path="")) == (0, [])


def test_a_reset_after_a_restore_that_was_cut_off_has_the_data_of_before(disk: Disk) -> None:
    aside = Path(disk.at(ASIDE))
    (aside / "db").mkdir(parents=True)
    (disk.data / "server/db/etcd").rename(aside / "db/etcd")
    disk.write("db/etcd", "half")

    assert disk.boot(disk.reset("2-8", ""), fails=True)[0] == 1
    (disk.data / "server/db/etcd/file").write_text("before")
    assert disk.boot(disk.reset("2-8", ""))[0] == 0
    assert not aside.exists()


def test_the_boot_command_comes_after_those_that_are_there_and_the_script_is_roots_alone(disk: Disk) -> None:
    config = load(add_reset(DOCUMENT, disk.reset(), RKE2, "rke2-server.service"))

    assert config["hostname"] == "one"
    assert config["bootcmd"][0] == ["echo", "first"]
    assert f"chmod 0700 {SCRIPT}.windrow" in config["bootcmd"][1][2]
    assert load(add_reset("#cloud-config\n{}\n", disk.reset(), RKE2, "k3s.service"))["bootcmd"]
