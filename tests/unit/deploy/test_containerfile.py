"""What stands in deploy/Containerfile. Nothing here builds it: that needs a container engine."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from windrow.csi.mounts import filesystems
from windrow.csi.mounts.port import FILESYSTEMS

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "Containerfile"


def instructions() -> list[tuple[str, str]]:
    """(instruction, rest), comments and line breaks taken out."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.M)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions():
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def last_stage() -> list[tuple[str, str]]:
    return stages()[-1]


def stage(name: str) -> list[tuple[str, str]]:
    [found] = [one for one in stages() if one[0][1].endswith(f" AS {name}")]
    return found


def test_it_runs_programs_that_the_package_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    for instructions_of, program in (
        (last_stage(), "harvester-cloud-provider"),
        (stage("harvester-csi-driver"), "harvester-csi-driver"),
    ):
        # The original's chart gives arguments only.
        [entry] = [json.loads(rest) for word, rest in instructions_of if word == "ENTRYPOINT"]
        assert entry == [program]
        assert program in project["scripts"]


PACKAGES = {
    "blkid": "util-linux",
    "fsck": "util-linux",
    "mkfs.ext3": "e2fsprogs",
    "mkfs.ext4": "e2fsprogs",
    "resize2fs": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "xfs_growfs": "xfsprogs",
    "mount": "mount",
    "mount.nfs": "nfs-common",
}


def test_the_csi_driver_s_image_has_the_programs_that_the_driver_starts_and_no_other() -> None:
    commands = [filesystems.probe_command("/dev/sdb")]
    for fs_type in FILESYSTEMS:
        commands.append(filesystems.make_command(fs_type, "/dev/sdb"))
        found = (
            filesystems.check_command(fs_type, "/dev/sdb"),
            filesystems.grow_command(fs_type, "/dev/sdb", "/x"),
        )
        commands += [command for command in found if command]
    [run] = [rest for word, rest in stage("harvester-csi-driver") if word == "RUN"]
    [install] = [part for part in run.split("&&") if " install " in part]

    assert {command[0] for command in commands} == set(PACKAGES) - {"mount", "mount.nfs"}
    assert [word for word in shlex.split(install)[2:] if not word.startswith("-")] == sorted(
        set(PACKAGES.values())
    )
    assert "--no-install-recommends" in install


def test_the_environment_has_what_the_csi_driver_imports() -> None:
    pins = (ROOT / "requirements" / "run.txt").read_text()
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["csi"]

    for package in extra:
        [name] = re.findall(r"^[a-z]+", package)
        assert re.search(rf"^{name}==", pins, re.M), name


def test_its_user_is_a_number_that_is_not_root() -> None:
    [user] = [rest for word, rest in last_stage() if word == "USER"]

    # Kubernetes cannot tell whether a user by name is root.
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_what_it_copies_is_there_and_not_ignored() -> None:
    shown = [line[1:] for line in _ignore_lines() if line.startswith("!")]
    for word, rest in instructions():
        if word != "COPY" or "--from=" in rest:
            continue
        *sources, _ = shlex.split(rest)
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(source == one or source.startswith(f"{one}/") for one in shown), source


def test_nothing_but_what_it_copies_is_sent_to_the_engine() -> None:
    assert _ignore_lines()[0] == "*"
    assert not any(fnmatch(".venv", line[1:]) for line in _ignore_lines() if line.startswith("!"))


def _ignore_lines() -> list[str]:
    lines = (ROOT / "deploy" / "Containerfile.dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_package_is_checked_by_its_hash() -> None:
    commands = [part.strip() for word, rest in instructions() if word == "RUN" for part in rest.split("&&")]
    installs = [command for command in commands if " install " in command and "apt-get" not in command]

    assert len(installs) == 3
    for command in installs:
        # Our own wheel was built one line before.
        assert "--require-hashes" in command or command.endswith("/wheels/*.whl"), command


def test_it_is_byte_compiled_after_all_is_installed() -> None:
    commands = [part.strip() for word, rest in stage("build") if word == "RUN" for part in rest.split("&&")]
    compiled = next(place for place, command in enumerate(commands) if "compileall" in command)

    assert not any(" install " in command for command in commands[compiled:])


def test_its_bases_name_no_registry() -> None:
    bases = [rest for word, rest in instructions() if word == "ARG" and rest.startswith("PYTHON=")]

    assert bases == ["PYTHON=python:3.13-slim"]
    assert all(rest.split()[0] == "${PYTHON}" for word, rest in instructions() if word == "FROM")
