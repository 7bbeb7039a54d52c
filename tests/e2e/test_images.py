"""The images that `make image` has built: as archives, and unpacked, with their programs run in them.

No container engine is asked: a program runs in a mount namespace of its own, with the image as its root, read-only, as the image's user.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import ROOT
from tests.e2e.test_service import answers

FOLDER = ROOT / "dist" / "images"
LIST = FOLDER / "images.json"
NAMES = ("windrow", "harvester-cloud-provider", "harvester-csi-driver")
MOST_BYTES = 120_000_000


def are_present() -> bool:
    """Whether there are images, of the dependencies of this source."""
    if not LIST.exists():
        return False
    locked = hashlib.sha256((ROOT / "requirements" / "run.txt").read_bytes()).hexdigest()
    return bool(json.loads(LIST.read_text()).get("requirements") == f"sha256:{locked}")


pytestmark = [
    pytest.mark.skipif(
        not are_present(), reason="no images have been built here of the present lock file: make image"
    ),
    pytest.mark.timeout(240),
]
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a mount namespace needs root and unshare"
)


@dataclass(frozen=True)
class Archive:
    """An image's archive, as a runtime reads it."""

    path: Path
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]


def read_blob(tape: tarfile.TarFile, digest: str) -> bytes:
    file = tape.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert file is not None
    content = file.read()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    return content


def read_archive(name: str) -> Archive:
    listed = json.loads(LIST.read_text())[name]
    path = FOLDER / listed["file"]
    with tarfile.open(path) as tape:
        manifest = json.loads(read_blob(tape, listed["digest"]))
        return Archive(path, manifest, json.loads(read_blob(tape, manifest["config"]["digest"])))


@dataclass(frozen=True)
class Unpacked:
    """An image's files, and how its program is started."""

    root: Path
    config: Mapping[str, Any]

    def command(self, *arguments: str) -> list[str]:
        """The image's program with `arguments`, whose process is that of the command."""
        config = self.config["config"]
        prepare = (
            'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && mount -t proc proc "$0/proc" && '
            'mount -t tmpfs -o uid=65532,gid=65532,mode=0700 tmpfs "$0/var/lib/windrow" && '
            'mount -t tmpfs tmpfs "$0/tmp" && '
            f'exec setpriv --no-new-privs chroot --userspec={config["User"]} "$0" "$@"'
        )
        return ["unshare", "--mount", "sh", "-c", prepare, str(self.root), *config["Entrypoint"], *arguments]

    @property
    def env(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.config["config"]["Env"])

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self.command(*arguments), env=self.env, cwd="/", capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def unpack(name: str, root: Path) -> Unpacked:
    archive = read_archive(name)
    with tarfile.open(archive.path) as tape:
        for layer in archive.manifest["layers"]:
            packed = read_blob(tape, layer["digest"])
            content = gzip.decompress(packed)
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" in archive.config["rootfs"]["diff_ids"]
            extract = [
                "tar",
                "--extract",
                "--numeric-owner",
                "--preserve-permissions",
                "--directory",
                str(root),
            ]
            subprocess.run(extract, input=content, check=True)
    return Unpacked(root, archive.config)


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unpacked]:
    root = tmp_path_factory.mktemp("windrow")
    yield unpack("windrow", root)
    shutil.rmtree(root)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_small_whole_and_says_what_it_is(name: str):
    archive = read_archive(name)

    labels = archive.config["config"]["Labels"]
    assert sum(layer["size"] for layer in archive.manifest["layers"]) < MOST_BYTES
    assert len(archive.manifest["layers"]) == len(archive.config["rootfs"]["diff_ids"])
    assert labels["org.opencontainers.image.title"] == name
    assert labels["org.opencontainers.image.revision"]
    assert archive.config["config"]["User"] == ("0:0" if name == "harvester-csi-driver" else "65532:65532")


@pytest.mark.parametrize("name", NAMES)
def test_its_list_of_contents_has_debian_s_packages_and_every_locked_one(name: str):
    document = json.loads(next(FOLDER.glob(f"{name}-*.spdx.json")).read_text())
    pins = (ROOT / "requirements" / "run.txt").read_text().splitlines()
    locked = {line.split("==")[0] for line in pins if "==" in line and "!= 'PyPy'" not in line}

    purls = {one["externalRefs"][0]["referenceLocator"].partition("@")[0] for one in document["packages"]}
    assert {f"pkg:pypi/{package}" for package in locked} <= purls
    assert {"pkg:deb/debian/libc6", "pkg:deb/debian/python3", "pkg:pypi/windrow", f"pkg:oci/{name}"} <= purls
    assert ("pkg:deb/debian/xfsprogs" in purls) == (name == "harvester-csi-driver")


@needs_root
@pytest.mark.long
def test_the_manager_s_program_says_its_version_and_has_the_documentation(manager: Unpacked):
    said = json.loads(manager.run("version", "-o", "json"))

    labels = manager.config["config"]["Labels"]
    assert said["windrow"] == labels["org.opencontainers.image.version"]
    assert said["commit"] == labels["org.opencontainers.image.revision"]
    assert manager.run("docs", "first-cluster").startswith("# Your first cluster")
    # Its modules are compiled, and taken as they are: nothing is compiled at each start.
    assert list((manager.root / "opt/windrow/lib/windrow/cli/__pycache__").glob("main.*.pyc"))


@needs_root
@pytest.mark.long
def test_the_manager_serves_as_its_user_with_nothing_else_to_write_to(manager: Unpacked, tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--bind", "127.0.0.1", "--port", str(port)]
    serve = [*manager.config["config"]["Cmd"][:3], *arguments]
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(manager.command(*serve), env=manager.env, cwd="/", stdout=out, stderr=out)
    kubeconfig = Path(f"/proc/{process.pid}/root/var/lib/windrow/manager.yaml")
    try:
        deadline = time.monotonic() + 60
        while "Kubeconfig:" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        answered, status = answers(kubeconfig), kubeconfig.stat()
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)

    assert serve[0] == "serve"
    assert answered
    assert (status.st_uid, status.st_mode & 0o777) == (65532, 0o600)
    assert code == 0, log.read_text()


@needs_root
@pytest.mark.long
def test_the_cloud_provider_starts_in_its_image_which_differs_from_the_manager_s_in_its_contents_page_alone(
    manager: Unpacked,
):
    of_manager, of_provider = (read_archive(name) for name in NAMES[:2])

    assert of_provider.manifest["layers"][:2] == of_manager.manifest["layers"][:2]
    assert "--cloud-config" in Unpacked(manager.root, of_provider.config).run("--help")


@needs_root
@pytest.mark.long
def test_the_csi_driver_starts_in_its_image_beside_the_programs_that_it_runs(
    tmp_path: Path, request: pytest.FixtureRequest
):
    request.addfinalizer(partial(shutil.rmtree, tmp_path))
    image = unpack("harvester-csi-driver", tmp_path)

    assert "--endpoint" in image.run("--help")
    for program in (
        "blkid",
        "fsck",
        "mkfs.ext4",
        "mkfs.xfs",
        "mount",
        "mount.nfs",
        "resize2fs",
        "xfs_growfs",
    ):
        places = [image.root / folder / program for folder in ("usr/sbin", "usr/bin", "sbin", "bin")]
        assert any(place.exists() for place in places), program
