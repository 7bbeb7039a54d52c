"""The user data that we render, read by Debian's cloud-init: its schema, and a first boot that leaves what we meant.

A first boot runs in a root directory and in namespaces of its own: the machine that runs the tests has nothing of it.
"""

from __future__ import annotations

import pwd
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conformance.cloud_init.examples import KEY, Example, list_examples, sample
from tests.conformance.cloud_init.rig import Booted, boot, reason_to_skip, schema_faults
from tests.unit.bootstrap.conftest import NOON

from windrow.bootstrap.cloud_config import scrub
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.bootstrap.spec import ClusterSecrets
from windrow.core.formats import yaml
from windrow.emulator.guest_os.cloudinit.modules import list_user_accounts, list_write_files

needs_cloud_init = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "it is here")
needs_a_boot = pytest.mark.skipif(bool(reason_to_skip(True)), reason=reason_to_skip(True) or "it is here")


@pytest.fixture(scope="module")
def secrets() -> ClusterSecrets:
    return new_cluster_secrets(NOON)


def faults_of(examples: list[Example], folder: Path) -> list[str]:
    paths = []
    for place, example in enumerate(examples):
        path = folder / f"{place}-{example.name.replace('/', '-')}"
        path.write_text(example.user_data)
        paths.append(path)
    return schema_faults(paths)


@needs_cloud_init
def test_what_we_render_is_valid_for_the_schema_of_cloud_init(
    secrets: ClusterSecrets, tmp_path: Path
) -> None:
    examples = [sample(secrets, "rke2", "first server"), sample(secrets, "k3s", "agent")]
    scrubbed = replace(examples[0], name="scrubbed", user_data=scrub(examples[0].user_data))

    assert faults_of([*examples, scrubbed], tmp_path) == []


@pytest.mark.long
@pytest.mark.timeout(600)
@needs_cloud_init
def test_every_example_is_valid_for_the_schema_of_cloud_init(secrets: ClusterSecrets, tmp_path: Path) -> None:
    examples = list_examples(secrets)
    scrubbed = [
        replace(example, name=f"scrubbed {example.name}", user_data=scrub(example.user_data))
        for example in examples
        if "the user's own" in example.name
    ]

    assert faults_of([*examples, *scrubbed], tmp_path) == []


@pytest.mark.long
def test_the_examples_are_of_each_distribution_and_role_with_a_users_own(secrets: ClusterSecrets) -> None:
    names = [example.name for example in list_examples(secrets)]

    for distribution in ("as rke2", "as k3s"):
        of_one = [name for name in names if distribution in name]
        for words in (
            "the user's own",
            "without internet",
            "three-and-two",
            "give-machines-files",
        ):
            assert {name.rsplit(" ", 1)[-1] for name in of_one if words in name} == {"server", "agent"}, words
            assert any(name.endswith("first server") for name in of_one if words in name), words


@needs_cloud_init
def test_the_schema_finds_a_wrong_document(tmp_path: Path) -> None:
    wrong = Example("wrong", "n", "#cloud-config\nwrite_files: [{path: /etc/x, permissions: 420}]\n")

    assert "permissions" in "".join(faults_of([wrong], tmp_path))


def check(booted: Booted, example: Example) -> None:
    """cloud-init has done what the document says, without a word against it, as the emulator's guests read it."""
    config = yaml.load(example.user_data)
    assert [text for code, text in booted.outputs if code] == []
    assert booted.warnings == []
    assert booted.read("/etc/hostname").strip() == example.hostname
    files, warnings = list_write_files(config)
    assert warnings == []
    appended = {one.path for one in files if one.append}
    for one in files:
        path = booted.path(one.path)
        if one.path in appended:
            assert one.content in path.read_bytes()
            continue
        assert (path.read_bytes(), oct(path.stat().st_mode & 0o777)) == (one.content, oct(one.mode)), one.path
        assert path.stat().st_uid == booted.uid(one.owner.split(":")[0]), one.path
    for account in list_user_accounts(config):
        name = "debian" if account.name == "default" else account.name
        keys = booted.path(f"{booted.home(name)}/.ssh/authorized_keys")
        assert all(key in keys.read_text() for key in account.keys), name
    assert "systemctl start --no-block windrow-install.service" in booted.calls


@needs_a_boot
@pytest.mark.parametrize(
    ("distribution", "role"),
    [
        ("rke2", "first server"),
        *(
            pytest.param(*rest, marks=pytest.mark.long)
            for rest in [("rke2", "agent"), ("k3s", "first server"), ("k3s", "servers server")]
        ),
    ],
)
def test_a_users_own_and_ours_are_done_by_a_first_boot(
    secrets: ClusterSecrets, tmp_path: Path, distribution: str, role: str
) -> None:
    example = sample(secrets, distribution, role)
    before = (Path("/etc/passwd").read_bytes(), Path("/etc/shadow").read_bytes(), socket.gethostname())

    booted = boot(tmp_path / "root", example.user_data)

    check(booted, example)
    assert booted.read("/etc/motd") == "grüezi\nagain\n"
    assert booted.read("/etc/mine/said") == f"it's {example.hostname}\n"
    assert [call for call in booted.calls if "try-restart" not in call] == [
        "systemctl enable --now qemu-guest-agent.service",
        "systemctl daemon-reload",
        "systemctl enable windrow-install.service",
        "systemctl start --no-block windrow-install.service",
    ]
    assert "\nopensuse:$" in booted.read("/etc/shadow")  # sshUser has a password
    assert KEY in booted.read("/home/me/.ssh/authorized_keys")
    # Nothing of it is outside of the root directory.
    assert before == (
        Path("/etc/passwd").read_bytes(),
        Path("/etc/shadow").read_bytes(),
        socket.gethostname(),
    )
    assert not any(one.pw_name == "me" for one in pwd.getpwall())
    assert not Path("/etc/mine").exists()


@pytest.mark.long
@pytest.mark.timeout(600)
@needs_a_boot
@pytest.mark.parametrize("distribution", ["rke2", "k3s"])
def test_every_example_is_done_by_a_first_boot(
    secrets: ClusterSecrets, tmp_path: Path, distribution: str
) -> None:
    """The first server of each, which has all that the others have; of the demo and a user's own all roles."""
    examples = [
        example
        for example in list_examples(secrets)
        if f"as {distribution}" in example.name
        and (example.name.endswith("first server") or "three-and-two.yaml" in example.name)
    ]

    for place, example in enumerate(examples):
        check(boot(tmp_path / str(place), example.user_data), example)
