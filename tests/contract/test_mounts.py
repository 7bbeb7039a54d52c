"""What every adapter of the port Mounts promises. One suite, run on the double and on loop devices in a mount namespace."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.mounts_rig import MIB, namespace_rig, why_not
from tests.support.memory_mounts import MemoryMounts

from windrow.csi.errors import InvalidArgument
from windrow.csi.mounts.port import (
    DeviceMismatch,
    DeviceNotFound,
    FilesystemMount,
    ForeignFilesystem,
    MountConflict,
    NetworkShare,
    NotMounted,
    PublishedElsewhere,
    UnsafePath,
    VolumeDevice,
)

SIZE = 64 * MIB
DATA = VolumeDevice("pvc-0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0001", "0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0001", SIZE)
LOGS = VolumeDevice("pvc-0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0002", "0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0002", SIZE)
BY_GO = VolumeDevice("pvc-0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0003")
EXT4 = FilesystemMount("ext4")
SHARE = NetworkShare("pvc-1", "10.53.200.10", "/pvc-9f0e", "vers=4.1,noresvport")


exists = os.path.lexists


def write_file(path: str, text: str) -> None:
    Path(path).write_text(text)


def read_file(path: str) -> str:
    return Path(path).read_text()


class MemoryRig:
    """The double; what is written through a mount is kept with its disk."""

    def __init__(self) -> None:
        self.mounts = MemoryMounts()

    async def attach(self, volume: VolumeDevice, size: int, content: str = "") -> None:
        self.mounts.attach(volume, size, content)

    async def serve(self, share: NetworkShare) -> None:
        self.mounts.serve(share)

    async def content(self, volume: VolumeDevice) -> str:
        return self.mounts.disks[volume.serial or volume.volume_id].content

    async def resize(self, volume: VolumeDevice, size: int) -> None:
        self.mounts.disks[volume.serial or volume.volume_id].size = size

    async def mount_by_go(self, volume: VolumeDevice, target: str) -> None:
        await self.mounts.publish(volume, f"{target}.staging", target, EXT4, read_only=False)
        await self.mounts.unpublish(f"{target}.staging")

    async def mounted(self, path: str) -> list[str]:
        return ["ro" if one.read_only else "rw" for one in self.mounts.mounts.get(path, [])]

    async def write(self, path: str, text: str) -> None:
        mounted = self.mounts.mounts[os.path.dirname(path)][-1]
        if mounted.read_only:
            raise AssertionError("read-only")
        mounted.disk.files[os.path.basename(path)] = text

    async def read(self, path: str) -> str:
        return self.mounts.mounts[os.path.dirname(path)][-1].disk.files[os.path.basename(path)]

    async def is_block(self, path: str) -> bool:
        return self.mounts.mounts[path][-1].block


@pytest.fixture(params=["memory", pytest.param("linux", marks=pytest.mark.root)])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield MemoryRig()
        return
    if reason := why_not():
        pytest.skip(reason)
    async with namespace_rig(tmp_path) as linux:
        yield linux


@pytest.fixture
def staging(tmp_path: Path) -> str:
    return str(tmp_path.resolve() / "plugins" / "globalmount")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path.resolve() / "pods" / "1" / "mount")


async def test_a_blank_disk_gets_a_filesystem_and_each_pod_the_same_files(rig, staging, target):
    await rig.attach(DATA, SIZE)

    await rig.mounts.stage(DATA, staging, EXT4)
    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)
    await rig.mounts.publish(DATA, staging, f"{target}2", EXT4, read_only=False)
    await rig.write(f"{target}/file", "text")

    assert await rig.content(DATA) == "ext4"
    assert await rig.read(f"{target}2/file") == "text"


@pytest.mark.parametrize("wanted", ["", "ext4", "ext3"])
async def test_the_filesystem_is_the_one_asked_for_else_ext4(rig, staging, wanted):
    await rig.attach(DATA, SIZE)

    await rig.mounts.stage(DATA, staging, FilesystemMount(wanted))

    assert await rig.content(DATA) == (wanted or "ext4")


async def test_what_was_written_is_there_when_the_volume_comes_back(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)
    await rig.write(f"{target}/file", "text")
    await rig.mounts.unpublish(target)
    await rig.mounts.unstage(staging)

    await rig.mounts.stage(DATA, staging, FilesystemMount())
    await rig.mounts.publish(DATA, staging, target, FilesystemMount(), read_only=False)

    assert await rig.read(f"{target}/file") == "text"


async def test_each_verb_ten_times_is_the_verb_once(rig, staging, target):
    await rig.attach(DATA, SIZE)

    for _ in range(10):
        await rig.mounts.stage(DATA, staging, EXT4)
    for _ in range(10):
        await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)
    for _ in range(10):
        await rig.mounts.publish_block(DATA, f"{target}-block", read_only=False)
    stacked = [await rig.mounted(path) for path in (staging, target, f"{target}-block")]
    for _ in range(10):
        await rig.mounts.unpublish(f"{target}-block")
    for _ in range(10):
        await rig.mounts.unpublish(target)
    for _ in range(10):
        await rig.mounts.unstage(staging)

    assert stacked == [["rw"], ["rw"], ["rw"]]
    assert [await rig.mounted(path) for path in (staging, target, f"{target}-block")] == [[], [], []]
    assert not exists(target)
    assert not exists(f"{target}-block")
    assert exists(staging)


async def test_a_read_only_publish_is_read_only_and_the_others_stay_writable(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)

    await rig.mounts.publish(DATA, staging, f"{target}-ro", EXT4, read_only=True)

    assert await rig.mounted(f"{target}-ro") == ["ro"]
    assert await rig.mounted(target) == ["rw"]
    assert await rig.mounted(staging) == ["rw"]
    with pytest.raises(AssertionError, match="ead-only"):
        await rig.write(f"{target}-ro/file", "text")


async def test_a_mount_becomes_read_only_but_never_writable_under_a_pod(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)

    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=True)
    with pytest.raises(MountConflict):
        await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)

    assert await rig.mounted(target) == ["ro"]


async def test_a_volume_that_no_node_may_write_is_staged_read_only_and_never_formatted(rig, staging, target):
    await rig.attach(DATA, SIZE, "ext4")
    await rig.attach(LOGS, SIZE)

    await rig.mounts.publish(DATA, staging, target, FilesystemMount(read_only=True), read_only=False)
    with pytest.raises(ForeignFilesystem):
        await rig.mounts.stage(LOGS, f"{staging}2", FilesystemMount(read_only=True))

    assert await rig.mounted(staging) == ["ro"]
    assert await rig.mounted(target) == ["ro"]
    assert await rig.content(LOGS) == ""


@pytest.mark.parametrize("found", ["dos", "unknown", "ext2"])
async def test_a_disk_with_anything_else_is_never_formatted(rig, staging, found):
    await rig.attach(DATA, SIZE, found)
    before = await rig.content(DATA)

    with pytest.raises(ForeignFilesystem) as raised:
        await rig.mounts.stage(DATA, staging, FilesystemMount())

    assert await rig.content(DATA) == before
    assert await rig.mounted(staging) == []
    assert raised.value.hint


async def test_a_filesystem_of_another_type_is_refused_and_stays(rig, staging):
    await rig.attach(DATA, SIZE, "ext3")

    with pytest.raises(ForeignFilesystem):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.content(DATA) == "ext3"


async def test_a_type_that_cannot_be_made_is_refused_by_name(rig, staging):
    await rig.attach(DATA, SIZE)

    with pytest.raises(InvalidArgument, match="btrfs"):
        await rig.mounts.stage(DATA, staging, FilesystemMount("btrfs"))

    assert await rig.content(DATA) == ""


@pytest.mark.parametrize("flag", ["bind", "remount", "loop=/dev/loop0"])
async def test_an_option_that_is_another_act_is_refused(rig, staging, flag):
    await rig.attach(DATA, SIZE)

    with pytest.raises(InvalidArgument, match="mount_flags"):
        await rig.mounts.stage(DATA, staging, FilesystemMount("ext4", (flag,)))

    assert await rig.content(DATA) == ""


async def test_two_volumes_are_never_mixed_up(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.attach(LOGS, SIZE)
    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)
    await rig.mounts.publish_block(DATA, f"{target}-block", read_only=False)

    with pytest.raises(MountConflict):
        await rig.mounts.stage(LOGS, staging, EXT4)
    with pytest.raises(MountConflict):
        await rig.mounts.publish(LOGS, f"{staging}2", target, EXT4, read_only=False)
    with pytest.raises(MountConflict):
        await rig.mounts.publish_block(LOGS, f"{target}-block", read_only=False)


async def test_a_smaller_disk_is_not_the_volume(rig, staging):
    await rig.attach(DATA, SIZE // 2)

    with pytest.raises(DeviceMismatch):
        await rig.mounts.stage(DATA, staging, EXT4)

    assert await rig.content(DATA) == ""


async def test_a_volume_of_the_go_driver_is_found_without_a_serial(rig, staging, target):
    await rig.attach(BY_GO, SIZE)

    await rig.mounts.publish(BY_GO, staging, target, EXT4, read_only=False)

    assert await rig.mounted(target) == ["rw"]


async def test_what_the_go_driver_mounted_is_accepted_and_taken_away(rig, staging, target):
    await rig.attach(DATA, SIZE, "ext4")
    await rig.mount_by_go(DATA, target)

    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)
    mounted = await rig.mounted(target)
    await rig.mounts.unpublish(target)
    await rig.mounts.unstage(staging)

    assert mounted == ["rw"]
    assert await rig.mounted(target) == []


async def test_a_volume_is_not_unstaged_under_a_pod(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)

    with pytest.raises(PublishedElsewhere, match=target):
        await rig.mounts.unstage(staging)

    assert await rig.mounted(staging) == ["rw"]


async def test_a_volume_for_one_pod_alone_has_one_target(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.attach(LOGS, SIZE)
    for _ in range(2):
        await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False, exclusive=True)
        await rig.mounts.publish_block(LOGS, f"{target}-block", read_only=False, exclusive=True)

    with pytest.raises(PublishedElsewhere, match=target):
        await rig.mounts.publish(DATA, staging, f"{target}2", EXT4, read_only=False, exclusive=True)
    with pytest.raises(PublishedElsewhere, match=f"{target}-block"):
        await rig.mounts.publish_block(LOGS, f"{target}-block2", read_only=False, exclusive=True)

    assert await rig.mounted(f"{target}2") == []
    assert await rig.mounted(f"{target}-block2") == []


async def test_to_take_away_what_is_not_there_is_done(rig, staging, target):
    await rig.mounts.unpublish(target)
    await rig.mounts.unstage(staging)
    os.makedirs(staging)

    await rig.mounts.unstage(staging)

    assert exists(staging)


async def test_content_under_a_target_is_never_removed(rig, target):
    os.makedirs(target)
    write_file(f"{target}/precious", "text")
    write_file(f"{target}-file", "text")

    for path in (target, f"{target}-file"):
        with pytest.raises(UnsafePath):
            await rig.mounts.unpublish(path)

    assert read_file(f"{target}/precious") == "text"
    assert read_file(f"{target}-file") == "text"


async def test_a_link_at_a_target_is_not_followed(rig, staging, target, tmp_path):
    await rig.attach(DATA, SIZE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.makedirs(os.path.dirname(target))
    os.symlink(elsewhere, target)

    with pytest.raises(UnsafePath):
        await rig.mounts.stage(DATA, target, EXT4)
    with pytest.raises(UnsafePath):
        await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)
    with pytest.raises(UnsafePath):
        await rig.mounts.publish_block(DATA, target, read_only=False)
    with pytest.raises(UnsafePath):
        await rig.mounts.unpublish(target)

    assert os.readlink(target) == str(elsewhere)
    assert await rig.mounted(str(elsewhere.resolve())) == []


async def test_a_link_of_root_on_the_way_is_followed_and_the_mount_is_found_again(rig, staging, tmp_path):
    await rig.attach(DATA, SIZE)
    disk = tmp_path.resolve() / "other-disk"
    disk.mkdir()
    os.symlink(disk, tmp_path / "kubelet")
    target = str(tmp_path / "kubelet" / "mount")

    for _ in range(2):
        await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)

    assert await rig.mounted(f"{disk}/mount") == ["rw"]


async def test_a_block_volume_is_the_device_itself(rig, target):
    await rig.attach(DATA, SIZE)

    await rig.mounts.publish_block(DATA, target, read_only=False)

    assert await rig.is_block(target)
    assert (await rig.mounts.stats(target)).capacity.total == SIZE
    assert (await rig.mounts.stats(target)).inodes is None
    assert await rig.mounts.grow(target) == SIZE


async def test_stats_say_how_full_the_volume_is(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)
    before = await rig.mounts.stats(target)

    await rig.write(f"{target}/file", "x" * MIB)
    after = await rig.mounts.stats(target)

    assert after.capacity.used - before.capacity.used == MIB
    assert before.capacity.available - after.capacity.available == MIB
    assert SIZE * 0.8 < after.capacity.total <= SIZE
    assert after.inodes is not None
    assert after.inodes.used - before.inodes.used == 1
    assert after.inodes.total == after.inodes.used + after.inodes.available
    assert after.problem == ""


async def test_what_is_not_mounted_has_no_stats_and_cannot_grow(rig, target, tmp_path):
    for path in (target, str(tmp_path)):
        with pytest.raises(NotMounted):
            await rig.mounts.stats(path)
        with pytest.raises(NotMounted):
            await rig.mounts.grow(path)


async def test_nothing_grows_where_the_disk_has_not_grown(rig, staging, target):
    await rig.attach(DATA, SIZE)
    await rig.mounts.publish(DATA, staging, target, EXT4, read_only=False)

    assert await rig.mounts.grow(target) == SIZE
    assert await rig.mounts.grow(staging) == SIZE


async def test_a_read_only_mount_does_not_grow(rig, staging):
    await rig.attach(DATA, SIZE, "ext4")
    await rig.mounts.stage(DATA, staging, FilesystemMount(read_only=True))
    before = (await rig.mounts.stats(staging)).capacity.total
    await rig.resize(DATA, 2 * SIZE)

    assert await rig.mounts.grow(staging) == 2 * SIZE
    assert (await rig.mounts.stats(staging)).capacity.total == before


@pytest.mark.parametrize("volume_id", ["../../etc/passwd", "vol-1", "pvc-0d5b1f0e", "pvc-/../x"])
async def test_an_id_that_names_no_disk_finds_none(rig, volume_id):
    await rig.attach(BY_GO, SIZE)

    with pytest.raises(DeviceNotFound):
        await rig.mounts.find(VolumeDevice(volume_id))


async def test_a_shared_volume_is_mounted_once_and_each_pod_has_the_same_files(rig, staging, target):
    await rig.serve(SHARE)
    for _ in range(3):
        await rig.mounts.stage_share(SHARE, staging, EXT4)
        await rig.mounts.publish_share(SHARE, staging, target, EXT4, read_only=False)
    await rig.mounts.publish_share(SHARE, staging, f"{target}2", EXT4, read_only=True)
    await rig.write(f"{target}/file", "text")

    assert await rig.read(f"{target}2/file") == "text"
    assert [await rig.mounted(path) for path in (staging, target, f"{target}2")] == [["rw"], ["rw"], ["ro"]]
    with pytest.raises(PublishedElsewhere):
        await rig.mounts.unstage(staging)
    for _ in range(2):
        await rig.mounts.unpublish(target)
        await rig.mounts.unpublish(f"{target}2")
        await rig.mounts.unstage(staging)
    assert await rig.mounted(staging) == []
    assert not exists(target)


async def test_a_shared_volume_whose_server_moved_is_mounted_anew_unless_a_pod_has_it(rig, staging, target):
    moved = replace(SHARE, server="fd00::7")
    await rig.serve(SHARE)
    await rig.mounts.publish_share(SHARE, staging, target, EXT4, read_only=False)
    await rig.serve(moved)

    with pytest.raises(PublishedElsewhere, match=r"served at fd00::7 now|the volume is mounted at"):
        await rig.mounts.stage_share(moved, staging, EXT4)
    await rig.mounts.unpublish(target)
    await rig.mounts.stage_share(moved, staging, EXT4)
    assert await rig.mounted(staging) == ["rw"]
    with pytest.raises(MountConflict):
        await rig.mounts.stage_share(replace(moved, export="/another"), staging, EXT4)


async def test_a_shared_volume_that_the_node_may_only_read_is_mounted_so(rig, staging, target):
    await rig.serve(SHARE)
    reading = FilesystemMount(read_only=True)
    await rig.mounts.stage_share(SHARE, staging, reading)
    await rig.mounts.publish_share(SHARE, staging, target, reading, read_only=False)

    assert [await rig.mounted(path) for path in (staging, target)] == [["ro"], ["ro"]]
    with pytest.raises(MountConflict):
        await rig.mounts.stage_share(SHARE, staging, EXT4)


@pytest.mark.parametrize(
    ("share", "flags"),
    [
        (replace(SHARE, server="10.0.0.1:/x -o"), ()),
        (replace(SHARE, server="-t"), ()),
        (replace(SHARE, server=""), ()),
        (replace(SHARE, server="fe80::1%eth0"), ()),
        (replace(SHARE, export="/../etc"), ()),
        (replace(SHARE, export="pvc-1"), ()),
        (replace(SHARE, options="vers=4 ,bind"), ()),
        (replace(SHARE, options=""), ()),
        (replace(SHARE, options="vers=4,remount"), ()),
        (SHARE, ("loop",)),
    ],
)
async def test_what_could_be_another_act_than_mounting_the_share_is_refused(rig, staging, share, flags):
    with pytest.raises(InvalidArgument):
        await rig.mounts.stage_share(share, staging, FilesystemMount(flags=flags))
    assert not exists(staging)


async def test_a_link_at_the_staging_path_of_a_shared_volume_is_not_followed(rig, staging, tmp_path):
    await rig.serve(SHARE)
    os.makedirs(os.path.dirname(staging))
    os.symlink(tmp_path, staging)

    with pytest.raises(UnsafePath):
        await rig.mounts.stage_share(SHARE, staging, EXT4)
    assert await rig.mounted(str(tmp_path.resolve())) == []
