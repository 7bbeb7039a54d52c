"""scripts/image: archives of images and their lists of contents, as values."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from scripts.image import build
from scripts.image.layout import Entry, Settings, compress, write_archive, write_tape
from scripts.image.sbom import Package, parse_dpkg_status, parse_metadata, render_sbom

from windrow.cli.commands.servers import serve
from windrow.cli.context import process_context
from windrow.cli.main import COMMANDS, _parser_for
from windrow.csi.mounts import filesystems
from windrow.csi.mounts.port import FILESYSTEMS

ROOT = Path(__file__).resolve().parents[3]

EPOCH = 1_700_000_000
SETTINGS = Settings(
    "windrow/x",
    "1.2",
    ("/opt/x",),
    ("serve",),
    "65532:65532",
    {"PATH": "/bin"},
    "/",
    {"a": "b"},
    "amd64",
    EPOCH,
)


def archive(folder: Path, name: str = "x.tar") -> tuple[str, Path]:
    write_tape([Entry("/opt/x", b"#!", 0o755), Entry("/var/x", None, 0o700, 65532)], EPOCH, folder / "tape")
    layer = compress(folder / "tape", folder / "tape.gz")
    return write_archive(SETTINGS, [layer], folder / name), folder / name


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tape:
        return {one.name: tape.extractfile(one).read() for one in tape if one.isfile()}  # type: ignore[union-attr]


def test_every_blob_is_named_by_its_hash_and_the_manifest_leads_to_all(tmp_path: Path):
    digest, path = archive(tmp_path)

    files = members(path)
    blobs = {name: content for name, content in files.items() if name.startswith("blobs/")}
    assert {f"blobs/sha256/{hashlib.sha256(content).hexdigest()}" for content in blobs.values()} == set(blobs)
    [named] = json.loads(files["index.json"])["manifests"]
    assert named["digest"] == digest
    manifest = json.loads(files[f"blobs/{digest.replace(':', '/')}"])
    found = [digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
    assert sorted(f"blobs/{one.replace(':', '/')}" for one in found) == sorted(blobs)
    for part in (manifest["config"], *manifest["layers"], named):
        assert len(blobs[f"blobs/{part['digest'].replace(':', '/')}"]) == part["size"]


def test_the_configuration_says_who_runs_what_and_what_the_layers_hold(tmp_path: Path):
    digest, path = archive(tmp_path)

    files = members(path)
    manifest = json.loads(files[f"blobs/{digest.replace(':', '/')}"])
    config = json.loads(files[f"blobs/{manifest['config']['digest'].replace(':', '/')}"])
    layer = files[f"blobs/{manifest['layers'][0]['digest'].replace(':', '/')}"]
    assert config["config"]["User"] == "65532:65532"
    assert (config["config"]["Entrypoint"], config["config"]["Cmd"]) == (["/opt/x"], ["serve"])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(gzip.decompress(layer)).hexdigest()}"]
    assert json.loads(files["manifest.json"])[0]["RepoTags"] == ["windrow/x:1.2"]


def test_the_same_image_is_the_same_bytes(tmp_path: Path):
    (tmp_path / "other").mkdir()

    one, two = archive(tmp_path), archive(tmp_path / "other", "y.tar")

    assert one[0] == two[0]
    assert one[1].read_bytes() == two[1].read_bytes()


def test_a_tape_has_the_directories_that_lead_to_its_files_and_one_date(tmp_path: Path):
    write_tape(
        [Entry("/var/lib/x", None, 0o700, 65532), Entry("/opt/b", b"b"), Entry("/opt/a", b"a")],
        EPOCH,
        tmp_path / "t",
    )

    with tarfile.open(tmp_path / "t") as tape:
        found = [(one.name, oct(one.mode), one.uid, one.mtime, one.isdir()) for one in tape]
    assert found == [
        ("opt", "0o755", 0, EPOCH, True),
        ("opt/a", "0o644", 0, EPOCH, False),
        ("opt/b", "0o644", 0, EPOCH, False),
        ("var", "0o755", 0, EPOCH, True),
        ("var/lib", "0o755", 0, EPOCH, True),
        ("var/lib/x", "0o700", 65532, EPOCH, True),
    ]


STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc
Version: 2.36-9+deb12u14
Description: GNU C Library
 several lines: of it

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1:1

Package: adduser
Status: install ok installed
Architecture: all
Version: 1:3.134
"""


def test_debian_s_packages_are_those_that_are_installed():
    assert list(parse_dpkg_status(STATUS, "bookworm")) == [
        Package(
            "libc6",
            "2.36-9+deb12u14",
            "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64&distro=bookworm",
            source="glibc",
        ),
        Package(
            "adduser",
            "1:3.134",
            "pkg:deb/debian/adduser@1%3A3.134?arch=all&distro=bookworm",
            source="adduser",
        ),
    ]


@pytest.mark.parametrize(
    ("license", "said"),
    [
        ("License-Expression: MIT\n", "MIT"),
        ("License: BSD\n", "BSD"),
        ("", ""),
        (f"License: {'x' * 200}\n", ""),
    ],
)
def test_python_s_packages_say_their_license(license: str, said: str):
    text = f"Metadata-Version: 2.4\nName: Prometheus_Client\nVersion: 0.26.0\n{license}\nName: not this\n"

    assert parse_metadata(text) == Package(
        "Prometheus_Client", "0.26.0", "pkg:pypi/prometheus-client@0.26.0", said
    )


def test_a_list_of_contents_describes_the_image_which_contains_the_rest():
    packages = [
        Package("b", "2", "pkg:x/b@2", "MIT OR Apache-2.0"),
        Package("a", "1", "pkg:x/a@1", "see the file"),
    ]

    document: dict[str, Any] = render_sbom("x", "1.2", packages, EPOCH)

    assert document == render_sbom("x", "1.2", reversed(packages), EPOCH)
    assert document["documentNamespace"] != render_sbom("x", "1.2", packages[:1], EPOCH)["documentNamespace"]
    assert document["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    assert [(one["name"], one["licenseDeclared"]) for one in document["packages"]] == [
        ("x", "Apache-2.0"),
        ("a", "NOASSERTION"),
        ("b", "MIT OR Apache-2.0"),
    ]
    assert document["packages"][1]["licenseComments"] == "see the file"
    ids = {one["SPDXID"] for one in document["packages"]} | {"SPDXRef-DOCUMENT"}
    assert all({one["spdxElementId"], one["relatedSpdxElement"]} <= ids for one in document["relationships"])
    assert sum(one["relationshipType"] == "CONTAINS" for one in document["relationships"]) == 2


def test_a_development_release_has_a_tag_that_registries_take():
    assert build.tag_of("1.2.4.dev17+g0123.dirty") == "1.2.4.dev17-g0123.dirty"


@pytest.mark.parametrize("architecture", build.PLATFORMS)
def test_the_images_of_another_kind_of_computer_are_listed_apart(
    monkeypatch: pytest.MonkeyPatch, architecture: str
):
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")

    wanted = {"amd64": "images.json", "arm64": "images-arm64.json"}
    assert build.list_name(architecture) == wanted[architecture]
    assert f"--architectures={architecture}" in build.base_command(build.RUNTIME, architecture, "bookworm")


@pytest.mark.parametrize(
    ("system", "machine", "python", "path", "said"),
    [
        ("Darwin", "x86_64", (3, 11), None, "built on Linux"),
        ("Linux", "riscv64", (3, 11), None, "for amd64 or arm64"),
        ("Linux", "x86_64", (3, 12), None, "built by Python 3.11 or 3.13"),
        ("Linux", "x86_64", (3, 11), "/nowhere", "mmdebstrap is not installed"),
    ],
)
def test_a_computer_that_cannot_build_images_is_told_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    system: str,
    machine: str,
    python: tuple[int, int],
    path: str | None,
    said: str,
):
    monkeypatch.setattr(build.platform, "system", lambda: system)
    monkeypatch.setattr(build.platform, "machine", lambda: machine)
    monkeypatch.setattr(build.sys, "version_info", (*python, 1))
    if path:
        monkeypatch.setenv("PATH", path)

    assert build.main([]) == 3

    assert said in capsys.readouterr().err


def test_without_debian_s_packages_no_image_is_built_and_no_half_base_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "mmdebstrap"
    program.write_text("#!/bin/sh\nfor out; do :; done\necho half > $out\necho no such mirror >&2\nexit 25\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    cache = tmp_path / "cache"
    cache.mkdir()

    with pytest.raises(build.CannotBuild, match=r"(?s)Debian's packages are not to be had.*no such mirror"):
        build.make_base(("python3",), "amd64", "bookworm", cache, refresh=False)

    assert list(cache.iterdir()) == []


def test_a_base_is_made_once_and_anew_when_debian_s_news_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`mmdebstrap` gives another version each time that it is started."""
    status = tmp_path / "var" / "lib" / "dpkg" / "status"
    status.parent.mkdir(parents=True)
    program = tmp_path / "mmdebstrap"
    program.write_text(
        f"#!/bin/sh\nfor out; do :; done\ncd {tmp_path}\n"
        "echo x >> count\nn=$(wc -l < count)\n"
        "printf 'Package: a\\nStatus: install ok installed\\nArchitecture: all\\nVersion: %s\\n' $n > var/lib/dpkg/status\n"
        'tar --create --file "$out" ./var\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    cache = tmp_path / "cache"
    cache.mkdir()

    made = [
        build.make_base(("python3",), "amd64", "bookworm", cache, refresh) for refresh in (False, False, True)
    ]

    assert [base.packages[0].version for base in made] == ["1", "1", "2"]
    assert made[0].layer == made[1].layer
    assert made[2].layer.digest != made[0].layer.digest
    assert f"sha256:{hashlib.sha256(made[2].layer.path.read_bytes()).hexdigest()}" == made[2].layer.digest


# The images


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
    [image] = [image for image in build.IMAGES if image.name == "harvester-csi-driver"]

    assert {command[0] for command in commands} == set(PACKAGES) - {"mount", "mount.nfs"}
    assert set(image.packages) - set(build.RUNTIME) == set(PACKAGES.values())


def test_images_run_programs_that_the_wheel_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert {image.program for image in build.IMAGES} <= set(project["scripts"])


def test_images_have_what_every_extra_needs() -> None:
    pins = (ROOT / "requirements" / "run.txt").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    for package in (*extras["csi"], *extras["fast"]):
        [name] = re.findall(r"^[a-z]+", package)
        assert re.search(rf"^{name}==", pins, re.M), name


def test_only_the_program_that_mounts_is_root() -> None:
    users = {image.name: image.user for image in build.IMAGES}

    # Kubernetes cannot tell whether a user by name is root.
    assert users.pop("harvester-csi-driver") == "0:0"
    assert set(users.values()) == {"65532:65532"}


def test_the_manager_s_image_serves_where_its_user_may_write() -> None:
    [image] = [image for image in build.IMAGES if image.name == "windrow"]
    parser = _parser_for(COMMANDS["serve"], serve, process_context())

    command, *arguments = image.arguments
    given = parser.parse_args(arguments)
    assert (command, str(given.state_dir), given.port) == ("serve", build.STATE, 6443)


def test_no_address_is_named_in_the_recipe() -> None:
    for path in (ROOT / "scripts" / "image").glob("*.py"):
        assert "://" not in path.read_text(), path
