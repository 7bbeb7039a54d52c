"""What only disks and the kernel can show: the adapter of Mounts for Linux, on loop devices in a mount namespace."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.mounts_rig import MIB, can_grow_ext4, namespace_rig, why_not

from windrow.csi.errors import InvalidArgument
from windrow.csi.mounts.port import (
    DamagedFilesystem,
    DeviceBusy,
    DeviceMismatch,
    FilesystemMount,
    ForeignFilesystem,
    MountConflict,
    PublishedElsewhere,
    ToolFailed,
    UnsafePath,
    VolumeDevice,
)

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]

SIZE = 64 * MIB
XFS_SIZE = 320 * MIB
DATA = VolumeDevice("pvc-0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0001", "0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0001", SIZE)
LOGS = VolumeDevice("pvc-0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0002", "0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0002", SIZE)
EXT4, XFS = FilesystemMount("ext4"), FilesystemMount("xfs")

needs_xfs = pytest.mark.skipif(
    not (shutil.which("mkfs.xfs") and shutil.which("xfs_growfs")), reason="there is no xfsprogs here"
)
needs_growth = pytest.mark.skipif(
    not can_grow_ext4(), reason="a mounted ext4 cannot be grown without CAP_SYS_RESOURCE"
)

exists = os.path.lexists


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Any]:
    async with namespace_rig(tmp_path) as linux:
        yield linux


@pytest.fixture
def staging(tmp_path: Path) -> str:
    return str(tmp_path.resolve() / "globalmount")


@needs_xfs
async def test_an_xfs_is_made_and_grows_while_it_is_mounted(rig, staging, tmp_path):
    target = str(tmp_path.resolve() / "pod")
    await rig.attach(DATA, XFS_SIZE)
    await rig.mounts.publish(DATA, staging, target, XFS, read_only=False)
    before = (await rig.mounts.stats(target)).capacity.total

    await rig.resize(DATA, 2 * XFS_SIZE)
    grown = await rig.mounts.grow(target)

    assert grown == 2 * XFS_SIZE
    assert (await rig.mounts.stats(target)).capacity.total - before > 0.9 * XFS_SIZE


@needs_xfs
async def test_a_volume_that_grew_while_it_was_away_is_grown_when_it_is_staged(rig, staging):
    await rig.attach(DATA, XFS_SIZE)
    await rig.mounts.stage(DATA, staging, XFS)
    before = (await rig.mounts.stats(staging)).capacity.total
    await rig.mounts.unstage(staging)
    await rig.resize(DATA, 2 * XFS_SIZE)

    await rig.mounts.stage(DATA, staging, XFS)

    assert (await rig.mounts.stats(staging)).capacity.total - before > 0.9 * XFS_SIZE


@needs_xfs
async def test_a_restored_xfs_is_mounted_beside_its_source(rig, staging, tmp_path):
    await rig.attach(DATA, XFS_SIZE, "xfs")
    shutil.copy(tmp_path / "disk0", tmp_path / "copy")
    await rig.attach_again(LOGS, "copy")

    await rig.mounts.stage(DATA, staging, XFS)
    await rig.mounts.stage(LOGS, f"{staging}2", XFS)

    assert await rig.mounted(f"{staging}2") == ["rw"]


@needs_xfs
async def test_an_xfs_whose_mkfs_was_killed_is_made_again(rig, staging):
    await rig.attach(DATA, XFS_SIZE, "xfs")
    await rig.write_raw(DATA, 0, await _with_byte(rig, 126, 1))
    await rig.record_mkfs(DATA)

    await rig.mounts.stage(DATA, staging, XFS)

    assert await rig.mounted(staging) == ["rw"]
    assert await rig.records() == 0


@needs_xfs
@pytest.mark.parametrize("wanted", [XFS, EXT4, FilesystemMount("xfs", read_only=True)])
async def test_an_xfs_that_says_its_mkfs_runs_is_not_made_again_without_a_record(rig, staging, wanted):
    await rig.attach(DATA, XFS_SIZE, "xfs")
    await rig.write_raw(DATA, 0, await _with_byte(rig, 126, 1))
    before = await rig.read_raw(DATA, 0, 4096)

    with pytest.raises((DamagedFilesystem, ForeignFilesystem)):
        await rig.mounts.stage(DATA, staging, wanted)

    assert await rig.read_raw(DATA, 0, 4096) == before


async def _with_byte(rig: Any, offset: int, value: int) -> bytes:
    sector = bytearray(await rig.read_raw(DATA, 0, 512))
    sector[offset] = value
    return bytes(sector)


@needs_xfs
async def test_an_xfs_on_too_small_a_volume_is_refused_with_the_reason(rig, staging):
    await rig.attach(DATA, SIZE)

    with pytest.raises(ToolFailed) as raised:
        await rig.mounts.stage(DATA, staging, XFS)

    assert raised.value.hint == "XFS needs a volume of at least 300 MiB"


@needs_growth
async def test_an_ext4_grows_while_it_is_mounted(rig, staging):
    await rig.attach(DATA, SIZE)
    await rig.mounts.stage(DATA, staging, EXT4)
    before = (await rig.mounts.stats(staging)).capacity.total
    await rig.resize(DATA, 2 * SIZE)

    assert await rig.mounts.grow(staging) == 2 * SIZE
    assert (await rig.mounts.stats(staging)).capacity.total - before > 0.8 * SIZE


@pytest.mark.skipif(can_grow_ext4(), reason="a mounted ext4 can be grown here")
async def test_growth_that_the_kernel_refuses_names_the_capability(rig, staging):
    await rig.attach(DATA, SIZE)
    await rig.mounts.stage(DATA, staging, EXT4)
    await rig.resize(DATA, 2 * SIZE)

    with pytest.raises(ToolFailed, match="resize2fs") as raised:
        await rig.mounts.grow(staging)

    assert "CAP_SYS_RESOURCE" in raised.value.hint


async def test_an_mkfs_that_was_killed_is_repeated_by_the_next_driver(rig, staging):
    await rig.attach(DATA, SIZE)
    await rig.start_mkfs(DATA, 8192)
    await rig.restart()

    await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.mounted(staging) == ["rw"]
    assert await rig.records() == 0


async def test_the_record_of_an_mkfs_proves_nothing_once_the_disk_was_away(rig, staging, tmp_path):
    await rig.attach(DATA, SIZE)
    await rig.start_mkfs(DATA, 8192)
    await rig.detach(DATA)
    await rig.attach_again(DATA, "disk0")

    with pytest.raises(ForeignFilesystem, match="unknown kind"):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.read_raw(DATA, 8192, 5) == b"group"


async def test_the_record_of_an_mkfs_does_not_hide_a_filesystem(rig, staging):
    await rig.attach(DATA, SIZE)
    await rig.start_mkfs(DATA, 8192)
    await rig.put(DATA, "ext3")

    with pytest.raises(ForeignFilesystem):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.content(DATA) == "ext3"


async def _lose_superblock(rig: Any) -> None:
    """blkid names nothing any more; backups and data are whole."""
    await rig.write_raw(DATA, 1024, b"\xff" * 1024)


async def test_a_filesystem_that_was_found_whole_is_never_made_again(rig, staging):
    await rig.attach(DATA, SIZE, "ext4")
    await rig.record_mkfs(DATA)  # its driver was killed, mkfs ran to its end
    await rig.mounts.stage(DATA, staging, EXT4)
    assert await rig.records() == 0
    await rig.mounts.unstage(staging)
    await _lose_superblock(rig)

    with pytest.raises(ForeignFilesystem, match="unknown kind"):
        await rig.mounts.stage(DATA, staging, EXT4)


@pytest.mark.parametrize("content", ["ext3", "dos"])
async def test_a_record_goes_also_where_what_is_found_is_refused(rig, staging, content):
    await rig.attach(DATA, SIZE, content)
    await rig.record_mkfs(DATA)

    with pytest.raises(ForeignFilesystem):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.records() == 0


@pytest.mark.parametrize("place", ["globalmount", "pod"])
async def test_a_record_goes_where_the_filesystem_is_mounted_already(rig, staging, tmp_path, place):
    await rig.attach(DATA, SIZE, "ext4")
    await rig.record_mkfs(DATA)
    await rig.mount_by_go(DATA, str(tmp_path.resolve() / place))

    await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.records() == 0


@needs_xfs
async def test_an_mkfs_that_failed_before_it_wrote_leaves_no_record(rig, staging):
    await rig.attach(DATA, SIZE)

    with pytest.raises(ToolFailed):
        await rig.mounts.stage(DATA, staging, XFS)

    assert await rig.records() == 0


async def test_a_record_proves_nothing_once_the_disk_was_published_as_a_block_device(rig, staging, tmp_path):
    target = str(tmp_path.resolve() / "pod")
    await rig.attach(DATA, SIZE)
    await rig.start_mkfs(DATA, 8192)
    await rig.mounts.publish_block(DATA, target, read_only=False)
    await rig.write_raw(DATA, 8192, b"rows of a database")
    await rig.mounts.unpublish(target)

    with pytest.raises(ForeignFilesystem, match="unknown kind"):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.read_raw(DATA, 8192, 4) == b"rows"


async def test_no_record_stays_after_an_mkfs(rig, staging):
    await rig.attach(DATA, SIZE)

    await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.records() == 0


async def test_a_disk_that_another_program_has_locked_is_left_alone(rig, staging):
    await rig.attach(DATA, SIZE)
    await rig.hold_lock(DATA, "30")

    with pytest.raises(DeviceBusy):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.content(DATA) == ""


async def test_a_lock_of_a_moment_is_waited_for(rig, staging):
    await rig.attach(DATA, SIZE)
    await rig.hold_lock(DATA, "0.3")

    await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.mounted(staging) == ["rw"]


async def test_a_damaged_filesystem_is_not_mounted(rig, staging):
    await rig.attach(DATA, SIZE, "ext4")
    # The inode of the root directory, in the inode table of the first group: no check repairs its loss by itself.
    await rig.write_raw(DATA, 2048, b"\xff" * 2048)
    await rig.write_raw(DATA, 4096, b"\xff" * 262144)

    with pytest.raises(DamagedFilesystem, match="fsck"):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.mounted(staging) == []


async def test_a_repaired_filesystem_is_mounted(rig, staging):
    await rig.attach(DATA, SIZE, "ext4")
    # "Not clean, with errors": the check goes over all of it, and clears that.
    await rig.set_superblock(DATA, "state", "2")

    await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.mounted(staging) == ["rw"]


async def test_stacked_mounts_of_the_go_driver_are_all_taken_away(rig, tmp_path):
    target = str(tmp_path.resolve() / "pod")
    await rig.attach(DATA, SIZE)
    for _ in range(3):
        await rig.bind_by_go(DATA, target)
    assert len(await rig.mounted(target)) == 3

    await rig.mounts.unpublish(target)

    assert await rig.mounted(target) == []
    assert not exists(target)


async def test_mount_options_are_applied_and_kept_by_a_read_only_mount(rig, staging, tmp_path):
    target = str(tmp_path.resolve() / "pod")
    await rig.attach(DATA, SIZE)

    flags = FilesystemMount("ext4", ("noatime,nosuid", "nodev", "data=ordered"))
    await rig.mounts.publish(DATA, staging, target, flags, read_only=True)

    assert await rig.options(staging) == ["noatime", "nodev", "nosuid", "rw"]
    assert await rig.options(target) == ["noatime", "nodev", "nosuid", "ro"]


async def test_an_option_that_the_filesystem_does_not_know_is_named(rig, staging):
    await rig.attach(DATA, SIZE)

    with pytest.raises(InvalidArgument, match="no_such_option"):
        await rig.mounts.stage(DATA, staging, FilesystemMount("ext4", ("no_such_option",)))

    assert await rig.mounted(staging) == []


async def test_a_link_of_another_disk_is_not_believed(rig, staging, tmp_path):
    await rig.attach(DATA, SIZE)
    name = f"scsi-0QEMU_QEMU_HARDDISK_{LOGS.serial}"
    device = next((tmp_path / "sys/class/block").iterdir()).name
    os.symlink(f"../../{device}", tmp_path / "dev/disk/by-id" / name)

    with pytest.raises(DeviceMismatch, match="whose own serial is"):
        await rig.mounts.stage(LOGS, staging, EXT4)

    assert await rig.content(DATA) == ""


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path.resolve() / "pod")


@pytest.mark.parametrize("offset", [MIB, 40 * MIB, SIZE - 4096])
async def test_a_disk_with_data_behind_a_zero_beginning_is_not_formatted(rig, staging, offset):
    await rig.attach(DATA, SIZE)
    await rig.write_raw(DATA, offset, b"rows of a database")

    with pytest.raises(ForeignFilesystem, match="unknown kind"):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.read_raw(DATA, offset, 4) == b"rows"


async def test_a_filesystem_that_lost_its_beginning_is_not_made_again(rig, staging):
    await rig.attach(DATA, 400 * MIB, "ext4")
    await rig.write_raw(DATA, 0, b"\0" * 16 * MIB)

    with pytest.raises(ForeignFilesystem, match="unknown kind"):
        await rig.mounts.stage(DATA, staging, EXT4)


async def test_a_disk_that_cannot_be_read_is_not_blank(rig, staging):
    await rig.attach(DATA, SIZE)
    await rig.cut(DATA, 512 * 1024)

    with pytest.raises(ToolFailed, match="read of /"):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.content(DATA) == ""


@pytest.mark.parametrize("content", ["", "ext4"])
async def test_a_disk_that_pods_have_as_a_block_device_is_neither_formatted_nor_mounted(
    rig, staging, target, content
):
    await rig.attach(DATA, SIZE, content)
    await rig.mounts.publish_block(DATA, target, read_only=False)

    with pytest.raises(PublishedElsewhere, match=target):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.content(DATA) == content
    assert await rig.mounted(staging) == []


async def test_a_disk_whose_filesystem_is_mounted_is_not_made_read_only(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.mounts.stage(DATA, staging, EXT4)

    with pytest.raises(PublishedElsewhere, match=staging):
        await rig.mounts.publish_block(DATA, target, read_only=True)

    assert not exists(target)


async def test_a_block_device_is_not_published_while_another_program_has_its_lock(rig, target):
    await rig.attach(DATA, SIZE)
    await rig.hold_lock(DATA, "30")

    with pytest.raises(DeviceBusy):
        await rig.mounts.publish_block(DATA, target, read_only=False)

    assert not exists(target)


@pytest.mark.parametrize("published", [("ro",), ("rw", "ro"), ("ro", "ro")])
async def test_nothing_is_written_to_a_block_device_that_is_published_read_only(rig, target, published):
    await rig.attach(DATA, SIZE)
    for mode in published:
        await rig.mounts.publish_block(DATA, target, read_only=mode == "ro")

    assert await rig.mounted(target) == ["ro"]
    with pytest.raises(AssertionError, match=r"PermissionError|Read-only"):
        await rig.write_raw(DATA, 4096, b"overwritten")


async def test_a_block_device_is_writable_again_after_it_was_read_only(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.mounts.publish_block(DATA, target, read_only=True)
    await rig.mounts.unpublish(target)

    await rig.mounts.publish_block(DATA, target, read_only=False)
    await rig.write_raw(DATA, 4096, bytes(4))
    await rig.mounts.unpublish(target)

    await rig.mounts.publish_block(DATA, target, read_only=True)
    await rig.mounts.unpublish(target)
    await rig.mounts.stage(DATA, staging, EXT4)
    assert await rig.mounted(staging) == ["rw"]


@pytest.mark.parametrize("first", [False, True])
async def test_a_block_device_is_read_only_for_all_pods_or_for_none(rig, target, first):
    await rig.attach(DATA, SIZE)
    await rig.mounts.publish_block(DATA, target, read_only=first)
    await rig.mounts.publish_block(DATA, f"{target}2", read_only=first)

    for path in (f"{target}3", target):
        with pytest.raises(MountConflict, match=target):
            await rig.mounts.publish_block(DATA, path, read_only=not first)

    assert not exists(f"{target}3")
    assert await rig.mounted(target) == ["ro" if first else "rw"]


async def test_a_disk_that_was_exchanged_before_it_was_opened_is_not_mounted(rig, staging):
    await rig.attach(DATA, SIZE)
    await rig.exchange(DATA, LOGS, SIZE)

    with pytest.raises(DeviceMismatch, match="no longer"):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.mounted(staging) == []


async def test_a_disk_that_was_exchanged_before_it_was_opened_is_not_published(rig, target):
    await rig.attach(DATA, SIZE)
    await rig.exchange(DATA, LOGS, SIZE)

    with pytest.raises(DeviceMismatch, match="no longer"):
        await rig.mounts.publish_block(DATA, target, read_only=False)

    assert not exists(target)


async def test_of_two_volumes_at_one_path_one_is_told_to_come_again(rig, staging):
    await rig.attach(DATA, SIZE)
    await rig.attach(LOGS, SIZE)

    assert await rig.stage_both(DATA, LOGS, staging) == ["NoneType", "DeviceBusy"]
    assert await rig.mounted(staging) == ["rw"]


async def test_a_mount_that_is_no_volume_is_not_taken_away(rig, target):
    await rig.mount_tmpfs(target)

    with pytest.raises(UnsafePath, match="tmpfs"):
        await rig.mounts.unpublish(target)
    with pytest.raises(UnsafePath, match="tmpfs"):
        await rig.mounts.unstage(target)

    assert await rig.mounted(target) == ["rw"]
