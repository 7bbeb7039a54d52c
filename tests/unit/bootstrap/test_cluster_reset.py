"""The reset of etcd on a server that exists: its script run by a shell, with a distribution that records and fails as it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap.install.cluster_reset import BEGUN, BESIDE, MOVED, ClusterReset, add_reset
from windrow.bootstrap.restore import SCRIPT, STATE
from windrow.core.formats.yaml import load

RKE2 = DISTRIBUTIONS["rke2"].LAYOUT
PATH = "/snapshots/on demand-1"
# How many commands a restore runs.
LAST = 26
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
        for path in (SCRIPT, STATE, "/var/lib/windrow", "/etc/systemd"):
            text = text.replace(path, f"{self.folder}/{path.strip('/').replace('/', '-')}")
        return text

    def list_left(self) -> list[str]:
        """What a reset left beside the data."""
        server = self.data / "server"
        return sorted(
            str(path.relative_to(server)) for path in server.rglob("*windrow*") if path.name != "file"
        )

    def put_aside(self, id: str) -> None:
        """As a restore that ended with the power while the distribution wrote."""
        server = self.data / "server"
        (server / BEGUN).write_text(f"{id}\n")
        for one in MOVED:
            (server / one).rename(server / f"{one}.{BESIDE}-{id}")
            self.write(one, "half")

    def die_at(self, number: int) -> Path:
        """Commands of which the one of this number dies half done, and the script with it: what goes before PATH.

        A removal has removed a part, a reset has written a part, a rename is not done.
        """
        folder, count = self.folder / "deadly", self.folder / "count"
        folder.mkdir(exist_ok=True)
        count.write_text("")
        for name in ("rm", "mv", "sync", "cat", "mkdir", "chmod", "rke2"):
            real = self.folder / "bin/rke2" if name == "rke2" else shutil.which(name)
            half = {"rm": 'rm -rf "$2/file" "$2/member"', "rke2": real}.get(name, ":")
            code = (
                f"#!/bin/sh\necho >> {count}\ncalled=$(/usr/bin/env wc -l < {count})\n"
                f'[ "$called" -eq {number} ] || exec {real} "$@"\n'
                f"PATH={os.environ['PATH']}\n{half}\nkill -9 $PPID\n"
            )
            (folder / name).write_text(code)
            (folder / name).chmod(0o755)
        return folder

    def boot(
        self, reset: ClusterReset, fails: bool = False, *, dies_at: int = 0, is_full: bool = False
    ) -> tuple[int, list[str]]:
        """The boot command, then the script as the service runs it: its exit code, and how the distribution was called."""
        binaries = self.folder / "bin"
        binaries.mkdir(exist_ok=True)
        etcd = self.data / "server/db/etcd"
        rke2 = f"""#!/bin/sh
set -e
PATH={os.environ["PATH"]}
[ {int(is_full)} = 1 ] || printf '%s\\n' "$@" >> {self.record}
[ ! -e {self.data}/server/db/reset-flag ] || echo flag >> {self.record}
[ {int(is_full)} = 1 ] || [ ! -e {etcd}/file ] || echo read $(cat {etcd}/file) >> {self.record}
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
        if dies_at:
            environment["PATH"] = f"{self.die_at(dies_at)}:{environment['PATH']}"
        # Writes fail, as on a full disk: the signal is ignored.
        limit = "trap '' XFSZ; ulimit -f 0; " if is_full else ""
        run = ["sh", "-c", f'{limit}exec sh "$0"', str(script)]
        done = subprocess.run(run, env=environment, check=False, capture_output=True)
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
    assert disk.list_left() == []
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


def test_without_a_snapshot_the_member_goes_on_with_its_own_data(disk: Disk) -> None:
    flags = ["server", "--cluster-reset", "--server=", "read before"]
    assert disk.boot(disk.reset(path="")) == (0, flags)
    assert disk.boot(disk.reset(path="")) == (0, [])


@pytest.mark.parametrize("next_one", ["same, fails", "own data", "other snapshot, fails"])
@pytest.mark.parametrize("at", range(1, LAST + 2))
def test_a_machine_that_dies_at_any_command_has_the_data_of_before_or_those_restored(
    disk: Disk, at: int, next_one: str
) -> None:
    died, _ = disk.boot(disk.reset(), dies_at=at)
    has_ended = Path(disk.at(STATE)).exists()
    others = {"own data": disk.reset("2-8", ""), "other snapshot, fails": disk.reset("2-8")}
    reset = others.get(next_one, disk.reset())

    code, lines = disk.boot(reset, fails=True)

    assert died == (-9 if at <= LAST else 0)
    if has_ended and reset.id == "1-7":
        assert (code, lines, disk.contents()[0]) == (0, [], "after")
    elif next_one == "own data":
        assert lines[-1] == ("read after" if has_ended else "read before")
    else:
        assert (code, disk.contents()[0]) == (1, "after" if has_ended else "before")
        assert has_ended or disk.contents() == ["before", "before", "before"]
    assert disk.list_left() == []


@pytest.mark.parametrize("at", range(1, 20))
def test_a_machine_that_dies_again_while_it_puts_back_has_the_data_of_before(disk: Disk, at: int) -> None:
    disk.put_aside("1-7")

    disk.boot(disk.reset("2-8"), fails=True, dies_at=at)
    assert disk.boot(disk.reset("3-9"), fails=True)[0] == 1

    assert disk.contents() == ["before", "before", "before"]
    assert disk.list_left() == []


def test_what_a_restore_that_had_ended_left_is_never_the_data_of_a_later_one(disk: Disk) -> None:
    disk.put_aside("1-7")
    Path(disk.at(STATE)).parent.mkdir(parents=True, exist_ok=True)
    Path(disk.at(STATE)).write_text("1-7\n")
    disk.write("db/etcd", "months later")

    assert disk.boot(disk.reset("2-8", ""), fails=True)[1][-1] == "read months later"
    assert disk.list_left() == []


def test_what_an_ended_restore_left_goes_at_the_next_start(disk: Disk) -> None:
    disk.put_aside("1-7")
    Path(disk.at(STATE)).write_text("1-7\n")
    disk.write("tls.windrow-removed", "part")

    assert disk.boot(disk.reset()) == (0, [])
    assert disk.contents()[0] == "half"
    assert disk.list_left() == []


def test_a_full_disk_leaves_the_data_of_before(disk: Disk) -> None:
    code, _ = disk.boot(disk.reset(), is_full=True)

    assert code not in (0, -9)
    assert disk.contents() == ["before", "before", "before"]
    assert disk.boot(disk.reset())[0] == 0
    assert disk.contents()[0] == "after"
    assert disk.list_left() == []


def test_an_end_that_cannot_be_recorded_is_none_and_the_data_of_before_stay_aside(disk: Disk) -> None:
    in_the_way = Path(f"{disk.at(STATE)}.new")
    in_the_way.mkdir(parents=True)

    assert disk.boot(disk.reset())[0] not in (0, -9)
    in_the_way.rmdir()
    assert disk.boot(disk.reset(), fails=True)[0] == 1

    assert disk.contents() == ["before", "before", "before"]


def test_what_was_renamed_is_on_the_disk_before_its_record_goes(disk: Disk) -> None:
    disk.boot(disk.reset(), fails=True)

    lines = [line.strip() for line in Path(disk.at(SCRIPT)).read_text().splitlines()]
    back = [
        at for at, line in enumerate(lines) if line.startswith("mv") and line.split()[1].endswith('"$begun"')
    ]
    for at in back:
        if not lines[at].endswith("-removed"):
            record = next(later for later in range(at, len(lines)) if BEGUN in lines[later])
            assert "sync" in lines[at:record]


def test_what_is_put_aside_stays_beside_where_it_was_and_is_never_copied(disk: Disk) -> None:
    before = (disk.data / "server/db/etcd/file").stat()

    assert disk.boot(disk.reset(), fails=True)[0] == 1

    after = (disk.data / "server/db/etcd/file").stat()
    assert (after.st_ino, after.st_dev) == (before.st_ino, before.st_dev)
    script = Path(disk.at(SCRIPT)).read_text()
    moves = [line.split()[-2:] for line in script.splitlines() if line.strip().startswith("mv ")]
    assert all(source.rpartition("/")[0] == target.rpartition("/")[0] for source, target in moves)


def test_the_boot_command_comes_after_those_that_are_there_and_the_script_is_roots_alone(disk: Disk) -> None:
    config = load(add_reset(DOCUMENT, disk.reset(), RKE2, "rke2-server.service"))

    assert config["hostname"] == "one"
    assert config["bootcmd"][0] == ["echo", "first"]
    assert f"chmod 0700 {SCRIPT}.windrow" in config["bootcmd"][1][2]
    assert load(add_reset("#cloud-config\n{}\n", disk.reset(), RKE2, "k3s.service"))["bootcmd"]
