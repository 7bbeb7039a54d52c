"""What is read from the kernel, from blkid and from superblocks, and what mount options mean."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from windrow.csi.errors import InvalidArgument
from windrow.csi.mounts import mountinfo, options
from windrow.csi.mounts.filesystems import (
    MIB,
    Content,
    blank_regions,
    check_command,
    grow_command,
    is_unfinished,
    make_command,
    needs_growth,
    parse_probe,
    probe_command,
)
from windrow.csi.mounts.mountinfo import find_mount, parse_mountinfo
from windrow.csi.mounts.options import (
    MS_NOATIME,
    MS_NODEV,
    MS_NOSUID,
    MS_RDONLY,
    MS_RELATIME,
    MountOptions,
    bind_flags,
    parse_mount_options,
)

ROOT = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


def test_a_line_of_mountinfo_names_device_root_path_and_options():
    line = b"36 35 98:0 /mnt1 /mnt2 ro,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n"

    (found,) = parse_mountinfo(line)

    assert found.device == (98, 0)
    assert (found.root, found.path) == ("/mnt1", "/mnt2")
    assert found.options == {"ro", "noatime"}
    assert (found.fs_type, found.source) == ("ext3", "/dev/root")
    assert found.super_options == {"rw", "errors=continue"}
    assert found.read_only
    assert not found.filesystem_read_only


def test_a_filesystem_that_became_read_only_is_so_at_each_mount():
    (found,) = parse_mountinfo(b"36 35 8:0 / /a rw - ext4 /dev/sda ro\n")

    assert found.read_only
    assert found.filesystem_read_only


def test_escapes_are_undone_and_nothing_but_a_line_feed_ends_a_line():
    raw = b"36 35 8:0 / /a\\040b\\134\\012\x0c\x1c - rw - ext4 /dev/sda rw\n"
    with pytest.raises(ValueError):  # its field count is wrong: a blank was not escaped
        parse_mountinfo(b"36 35 8:0 / - ext4\n")

    found = parse_mountinfo(raw.replace(b" - rw -", b" rw -"))

    assert [one.path for one in found] == ["/a b\\\n\x0c\x1c"]


@pytest.mark.parametrize(
    "raw", [b"x\n", b"1 2 a:b / /x rw - ext4 /dev/sda rw\n", b"1 2 3:4 / /x rw ext4 s rw\n"]
)
def test_what_is_no_mountinfo_is_refused(raw):
    with pytest.raises(ValueError):
        parse_mountinfo(raw)


def test_mountinfo_is_bounded(monkeypatch):
    monkeypatch.setattr(mountinfo, "MAX_BYTES", len(ROOT))
    assert len(parse_mountinfo(ROOT)) == 1

    with pytest.raises(ValueError, match="larger"):
        parse_mountinfo(ROOT + ROOT)


def test_of_several_mounts_at_a_path_the_last_is_seen():
    mounts = parse_mountinfo(ROOT + b"3 22 8:2 / /x rw - ext4 a rw\n4 3 8:3 / /x rw - ext4 b rw\n")

    found = find_mount(mounts, "/x")

    assert found is not None
    assert found.source == "b"
    assert find_mount(mounts, "/x/y") is None


def test_the_mountinfo_of_this_computer_is_read():
    assert find_mount(parse_mountinfo(Path("/proc/self/mountinfo").read_bytes()), "/") is not None


@pytest.mark.parametrize(
    ("given", "flags", "data"),
    [
        ([], 0, ""),
        (["defaults"], 0, ""),
        (["ro"], MS_RDONLY, ""),
        (["ro", "rw"], 0, ""),
        (["noatime,nodev", "nosuid"], MS_NOATIME | MS_NODEV | MS_NOSUID, ""),
        (["relatime", "noatime"], MS_NOATIME, ""),
        (["noatime", "relatime"], MS_RELATIME, ""),
        (["data=ordered", "discard", "discard"], 0, "data=ordered,discard"),
        (["_netdev", "nofail", "x-systemd.automount", "user"], 0, ""),
        ([" ro ", ""], MS_RDONLY, ""),
    ],
)
def test_mount_options_become_flags_and_data(given, flags, data):
    assert parse_mount_options(given) == MountOptions(flags, data)


@pytest.mark.parametrize(
    ("sets", "clears", "bit"),
    [
        ("ro", "rw", 1),
        ("nosuid", "suid", 2),
        ("nodev", "dev", 4),
        ("noexec", "exec", 8),
        ("sync", "async", 16),
        ("noatime", "atime", 1024),
        ("nodiratime", "diratime", 2048),
        ("relatime", "norelatime", 1 << 21),
        ("strictatime", "nostrictatime", 1 << 24),
        ("lazytime", "nolazytime", 1 << 25),
    ],
)
def test_an_option_sets_its_bit_and_its_opposite_clears_it(sets, clears, bit):
    assert parse_mount_options([sets]).flags == bit
    assert parse_mount_options([clears]) == MountOptions(0, "")
    assert parse_mount_options([sets, clears]).flags == 0
    assert parse_mount_options([clears, sets, "dirsync"]).flags == bit | 128


@pytest.mark.parametrize("later", ["noatime", "relatime", "strictatime"])
def test_of_the_ways_to_keep_access_times_the_last_prevails(later):
    assert parse_mount_options(["noatime", "relatime", "strictatime", later]) == parse_mount_options([later])


@pytest.mark.parametrize("given", ["bind", "rw,remount", "loop", "offset=8", "helper=nfs", "a\0b"])
def test_options_that_are_another_act_are_refused(given):
    with pytest.raises(InvalidArgument, match="mount_flags"):
        parse_mount_options([given])


def test_the_data_of_a_mount_is_bounded():
    assert parse_mount_options(["o" * options.MAX_DATA]).data
    with pytest.raises(InvalidArgument, match="longer"):
        parse_mount_options(["o" * options.MAX_DATA + "p"])


def test_a_remount_repeats_the_options_of_the_mount_and_no_others():
    assert bind_flags({"rw", "nosuid", "relatime", "idmapped"}) == MS_NOSUID | MS_RELATIME


def test_blkid_names_a_type_and_a_partition_table():
    assert parse_probe("DEVNAME=/dev/sdb\nTYPE=ext4\n") == Content("ext4")
    assert parse_probe("DEVNAME=/dev/sdb\nPTTYPE=gpt\n") == Content("", "gpt")
    assert parse_probe("no pair\n") == Content()


def test_what_is_on_a_disk_is_told_in_words():
    assert Content("ext4", "dos").described == "a partition table (dos)"
    assert Content("LVM2_member").described == "a filesystem of type LVM2_member"
    assert Content().described == "data of an unknown kind"


def test_only_the_xfs_whose_mkfs_has_not_ended_is_unfinished():
    begun = bytearray(b"XFSB" + bytes(4092))
    done = bytes(begun)
    begun[126] = 1

    assert is_unfinished(Content("xfs"), bytes(begun))
    assert not is_unfinished(Content("xfs"), done)
    assert not is_unfinished(Content("xfs"), bytes(begun[:126]))
    assert not is_unfinished(Content("ext4"), bytes(begun))
    assert not is_unfinished(Content("xfs", "dos"), bytes(begun))
    assert not is_unfinished(Content("xfs"), b"\0" + bytes(begun[1:]))


def ext_superblock(blocks: int, log_size: int = 2, *, wide: bool = True) -> bytes:
    made = bytearray(4096)
    struct.pack_into("<I", made, 1024 + 4, blocks & 0xFFFFFFFF)
    struct.pack_into("<I", made, 1024 + 24, log_size)
    struct.pack_into("<H", made, 1024 + 56, 0xEF53)
    struct.pack_into("<I", made, 1024 + 96, 0x80 if wide else 0)
    struct.pack_into("<I", made, 1024 + 0x150, blocks >> 32)
    return bytes(made)


def xfs_superblock(blocks: int, size: int) -> bytes:
    return (b"XFSB" + struct.pack(">IQ", size, blocks)).ljust(4096, b"\0")


@pytest.mark.parametrize(
    ("fs_type", "superblock", "device_size", "grows"),
    [
        ("ext4", ext_superblock(100), 100 * 4096, False),
        ("ext4", ext_superblock(100), 101 * 4096 - 1, False),
        ("ext4", ext_superblock(100), 101 * 4096, True),
        ("ext3", ext_superblock(100, 0), 101 * 1024, True),
        ("ext4", ext_superblock(5 << 32), (5 << 32) * 4096, False),
        ("ext4", ext_superblock(5 << 32), ((5 << 32) + 1) * 4096, True),
        ("ext4", ext_superblock(5 << 32, wide=False), 4096, True),
        ("xfs", xfs_superblock(100, 4096), 100 * 4096, False),
        ("xfs", xfs_superblock(100, 512), 101 * 512, True),
        ("ext4", bytes(4096), 1 << 40, False),
        ("xfs", ext_superblock(100), 1 << 40, False),
        ("btrfs", ext_superblock(100), 1 << 40, False),
        ("ext4", ext_superblock(100)[:2048], 1 << 40, False),
    ],
)
def test_a_filesystem_grows_where_its_disk_has_another_block(fs_type, superblock, device_size, grows):
    assert needs_growth(fs_type, superblock, device_size) is grows


def test_commands_have_the_device_as_one_argument():
    odd = "/dev/sd b; rm"
    assert probe_command(odd) == ("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", odd)
    assert make_command("ext4", odd) == ("mkfs.ext4", "-q", "-F", "-m0", "-E", "nodiscard", odd)
    assert make_command("ext3", odd) == ("mkfs.ext3", "-q", "-F", "-m0", "-E", "nodiscard", odd)
    assert make_command("xfs", odd) == ("mkfs.xfs", "-q", "-f", "-K", odd)
    assert check_command("ext3", odd) == ("fsck", "-a", odd)
    assert check_command("xfs", odd) is None
    assert grow_command("ext4", odd, "/p") == ("resize2fs", odd)
    assert grow_command("xfs", odd, "/p") == ("xfs_growfs", "-d", "/p")
    assert grow_command("btrfs", odd, "/p") is None


def test_a_block_size_that_cannot_be_is_taken_as_the_largest_that_can():
    assert needs_growth("ext4", ext_superblock(1, 6), 2 << 16)
    assert needs_growth("ext4", ext_superblock(1, 60), 2 << 16)
    assert not needs_growth("ext4", ext_superblock(1, 60), (2 << 16) - 1)


def test_a_device_is_blank_by_its_beginning_its_end_and_samples_between():
    size = 10 << 30
    regions = blank_regions(size)

    assert regions[0] == (0, 16 * MIB)
    assert regions[-1] == (size - MIB, MIB)
    samples = dict(regions[1:-1])
    # Copies of the superblock of ext, and the parts of XFS.
    for offset in (128 * MIB, 384 * MIB, 49 * 128 * MIB, size // 4, size // 2, size // 4 * 3):
        assert samples[offset] == 64 << 10
    assert sum(length for _, length in regions) < 32 * MIB


def test_samples_begin_at_blocks_of_the_device():
    assert all(offset % 4096 == 0 for offset, _ in blank_regions((1 << 40) + 4096))


def test_little_of_a_large_device_is_read():
    assert len(blank_regions(1 << 46)) < 100


@pytest.mark.parametrize("size", [0, 512, MIB, 16 * MIB, 17 * MIB])
def test_a_small_device_is_read_whole(size):
    regions = blank_regions(size)

    assert all(offset >= 0 for offset, _ in regions)
    read = {part for offset, length in regions for part in range(offset // 512, (offset + length) // 512)}
    assert read >= set(range(size // 512))


def test_a_disk_is_blank_only_where_no_copy_of_an_ext_superblock_is():
    """ext keeps them in group 1 and in those whose number is a power of 3, 5 or 7 (sparse_super); a group has 128 MiB."""
    powers = {base**exponent for base in (3, 5, 7) for exponent in range(6)}
    size = 50 << 30
    groups = {number for number in powers if number * (128 << 20) < size}

    read = {offset for offset, _ in blank_regions(size)}

    assert {number * (128 << 20) for number in groups} <= read


def test_all_of_a_small_disk_is_read():
    assert blank_regions(1 << 20)[-1] == (0, 1 << 20)
