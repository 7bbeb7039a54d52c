"""The program that mounts a shared volume, and what is recognised of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windrow.app.clock import SystemClock
from windrow.csi.mounts.linux.mounts import LinuxMounts
from windrow.csi.mounts.mountinfo import Mount
from windrow.csi.mounts.port import FilesystemMount, NetworkShare, ToolFailed
from windrow.csi.mounts.shares import check_share, is_same_export, mount_command, source_of

SHARE = NetworkShare("pvc-1", "10.53.200.10", "/pvc-9f0e", "vers=4.1,noresvport")
PLAIN = FilesystemMount("ext4")


@pytest.mark.parametrize(
    ("server", "source"),
    [
        ("10.53.200.10", "10.53.200.10:/pvc-9f0e"),
        ("fd00::7", "[fd00::7]:/pvc-9f0e"),
        ("share.storage.svc", "share.storage.svc:/pvc-9f0e"),
    ],
)
def test_the_source_is_written_as_the_kernel_shows_it(server: str, source: str):
    share = replace(SHARE, server=server)
    check_share(share)

    assert source_of(share) == source


def test_what_the_request_asks_for_comes_after_what_harvester_recommends():
    flags = ("hard,timeo=600", "noatime", "vers=4.1")
    command = mount_command(SHARE, "/a b", FilesystemMount("ext4", flags, True), "nfs")

    assert command == (
        *("mount", "-t", "nfs", "-o", "vers=4.1,noresvport,hard,timeo=600,noatime,ro"),
        *("--", "10.53.200.10:/pvc-9f0e", "/a b"),
    )


@pytest.mark.parametrize(
    ("source", "same"),
    [
        ("10.0.0.1:/pvc-9f0e", True),
        ("[fd00::1]:/pvc-9f0e", True),
        ("10.0.0.1:/pvc-9f0e2", False),
        ("sda", False),
    ],
)
def test_an_export_is_the_same_at_another_address(source: str, same: bool):
    mounted = Mount((0, 50), "/", "/x", frozenset(), "nfs4", source, frozenset())

    assert is_same_export(mounted, SHARE) is same


@pytest.fixture
def staging(tmp_path: Path) -> str:
    return str(tmp_path.resolve() / "staging")


async def test_a_share_that_cannot_be_mounted_is_told_with_the_words_of_the_program(
    tmp_path: Path, staging: str
):
    mounts = LinuxMounts(SystemClock(), tmp_path / "records", share_type="no-such-filesystem")
    with pytest.raises(ToolFailed, match=r"cannot mount 10\.53\.200\.10:/pvc-9f0e at .*exit code") as error:
        await mounts.stage_share(SHARE, staging, PLAIN)

    assert "mount.nfs" in error.value.hint
