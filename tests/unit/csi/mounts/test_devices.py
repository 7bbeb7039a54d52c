"""How the disk of a volume is told from all others, on folders that look like /sys and /dev."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.csi.mounts.devices import Device, DeviceTree
from windrow.csi.mounts.port import DeviceMismatch, VolumeDevice

UUID = "0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0001"
OTHER = "0d5b1f0e-52b8-4e9c-8a4e-5a3a1f7f0002"
VOLUME = VolumeDevice(f"pvc-{UUID}", UUID)
BY_GO = VolumeDevice(f"pvc-{UUID}")


class Computer:
    def __init__(self, folder: Path) -> None:
        self.tree = DeviceTree(folder / "dev", folder / "sys")
        self.by_id = folder / "dev/disk/by-id"
        self.block = folder / "sys/class/block"
        self.by_id.mkdir(parents=True)
        self.block.mkdir(parents=True)

    def add(self, name: str, *, serial: str | None = None, page: bytes | None = None) -> None:
        (self.block / name / "device").mkdir(parents=True)
        if serial is not None:
            (self.block / name / "serial").write_text(f"{serial}\n")
        if page is not None:
            (self.block / name / "device/vpd_pg80").write_bytes(b"\0\x80\0" + bytes([len(page)]) + page)

    def link(self, link: str, name: str) -> None:
        (self.by_id / link).symlink_to(f"../../{name}")

    def found(self, volume: VolumeDevice) -> str | None:
        device = self.tree.find(volume)
        return device.name if device else None


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path)


def test_a_scsi_disk_is_found_by_the_serial_in_its_vpd_page(computer):
    computer.add("sda", page=OTHER.encode())
    computer.add("sdb", page=UUID.encode() + b"  ")

    assert computer.tree.find(VOLUME) == Device("sdb", str(computer.tree.dev / "sdb"))


def test_a_virtio_disk_carries_twenty_characters_of_the_serial(computer):
    computer.add("vda", serial=UUID[:20])

    assert computer.found(VOLUME) == "vda"


def test_a_virtio_disk_with_the_beginning_of_another_serial_is_passed_over(computer):
    computer.add("vda", serial="1" + UUID[1:20])

    assert computer.found(VOLUME) is None


def test_an_nvme_disk_tells_its_serial_at_its_controller(computer):
    computer.add("nvme0n1")
    (computer.block / "nvme0n1/device/serial").write_text(f"{UUID}\n")

    assert computer.found(VOLUME) == "nvme0n1"


def test_the_disk_of_a_mount_is_found_by_its_number(computer):
    (computer.tree.sys / "dev/block").mkdir(parents=True)
    (computer.tree.sys / "dev/block/8:16").symlink_to("../../class/block/sdb")

    assert computer.tree.by_number((8, 16)) == Device("sdb", str(computer.tree.dev / "sdb"))
    assert computer.tree.by_number((8, 1)) is None


def test_a_part_of_a_serial_is_no_serial(computer):
    computer.add("sda", page=UUID[:20].encode())
    computer.add("sdb", page=UUID.encode() + b"0")
    computer.add("vda", serial=UUID[:19])
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_{UUID}0", "sdb")
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{UUID}", "sda")

    assert computer.found(VOLUME) is None


@pytest.mark.parametrize("prefix", ["scsi-0QEMU_QEMU_HARDDISK_", "scsi-SQEMU_QEMU_HARDDISK_", "virtio-"])
def test_where_the_kernel_has_no_serial_the_link_of_udev_is_believed(computer, prefix):
    computer.add("sdb")
    computer.link(f"{prefix}{UUID}", "sdb")

    assert computer.found(VOLUME) == "sdb"


def test_a_link_against_the_serial_of_its_disk_is_an_error_and_the_disk_is_not_used(computer):
    computer.add("sdb", page=OTHER.encode())
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_{UUID}", "sdb")

    with pytest.raises(DeviceMismatch, match=OTHER):
        computer.found(VOLUME)


def test_a_stale_link_does_not_matter_where_the_disk_itself_is_there(computer):
    computer.add("sdb", page=OTHER.encode())
    computer.add("sdc", page=UUID.encode())
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_{UUID}", "sdb")

    assert computer.found(VOLUME) == "sdc"


def test_two_disks_of_one_serial_are_both_refused(computer):
    computer.add("sdb", page=UUID.encode())
    computer.add("sdc", page=UUID.encode())

    with pytest.raises(DeviceMismatch, match="sdb, sdc"):
        computer.found(VOLUME)


def test_a_partition_is_never_the_volume(computer):
    computer.add("sdb1", serial=UUID)
    (computer.block / "sdb1/partition").write_text("1\n")
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_{UUID}", "sdb1")
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{UUID}", "sdb1")

    assert computer.found(VOLUME) is None
    assert computer.found(BY_GO) is None


def test_a_disk_of_the_go_driver_is_found_by_the_whole_volume_id(computer):
    computer.add("sdb")
    computer.add("sdc")
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{UUID}", "sdb")
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{OTHER}", "sdc")

    assert computer.found(BY_GO) == "sdb"


def test_a_link_against_the_designators_of_its_disk_is_stale(computer):
    computer.add("sdb")
    computer.add("sdc")
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{UUID}", "sdb")
    page = b"\0\x83\0\x36\2\0\0\x32drive-ua-pvc-"
    (computer.block / "sdb/device/vpd_pg83").write_bytes(page + OTHER.encode())

    assert computer.found(BY_GO) is None

    (computer.block / "sdb/device/vpd_pg83").write_bytes(page + UUID.encode())

    assert computer.found(BY_GO) == "sdb"


def test_an_id_of_another_form_is_never_looked_for_by_name(computer):
    computer.add("sdb")
    computer.link("scsi-0QEMU_QEMU_HARDDISK_drive-ua-vol-10", "sdb")
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{UUID}", "sdb")

    for volume_id in ("vol-1", "vol-10", "", "10", f"pvc-{UUID[:-1]}", UUID, f"pvc-{UUID}\n"):
        assert computer.found(VolumeDevice(volume_id)) is None


def test_a_disk_with_a_serial_of_its_own_is_none_that_the_go_driver_attached(computer):
    computer.add("sdb", page=OTHER.encode())
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{UUID}", "sdb")

    assert computer.found(BY_GO) is None


def test_a_link_to_what_is_no_disk_is_passed_over(computer):
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{UUID}", "../etc/passwd")
    (computer.by_id / f"scsi-0QEMU_QEMU_HARDDISK_{UUID}").write_text("no link")

    assert computer.found(BY_GO) is None
    assert computer.found(VOLUME) is None


def test_own_disks_are_those_that_no_csi_driver_plugged_in(computer):
    computer.add("vda")
    computer.add("vdb", serial=UUID[:20])
    computer.add("sr0")
    computer.add("sda", page=b"root-disk")
    computer.add("sdb")
    computer.link("scsi-0QEMU_QEMU_HARDDISK_drive-ua-data-of-theirs", "sdb")
    assert computer.tree.count_own_disks() == 5

    computer.add("sdc", page=UUID.encode())
    computer.add("sdd", page=b"4cad6087069b959e6c5b126ae9ea98c0")
    computer.add("sde")
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{OTHER}", "sde")
    (computer.block / "loop0").mkdir()
    (computer.block / "sda1").mkdir()
    (computer.block / "sda1/partition").write_text("1")
    assert computer.tree.count_own_disks() == 5


def test_a_disk_with_a_serial_of_its_own_is_the_machine_s_whatever_links_say(computer):
    computer.add("sda", page=b"root-disk")
    computer.link(f"scsi-0QEMU_QEMU_HARDDISK_drive-ua-pvc-{OTHER}", "sda")

    assert computer.tree.count_own_disks() == 1


def test_a_computer_without_disks_has_none(tmp_path):
    tree = DeviceTree(tmp_path / "dev", tmp_path / "sys")

    assert tree.find(VOLUME) is None
    assert tree.find(BY_GO) is None
    assert tree.by_number((8, 0)) is None
    assert tree.count_own_disks() == 0


def test_the_node_in_dev_has_to_be_the_kernels_device(computer, tmp_path):
    computer.add("sdb")
    device = Device("sdb", "/dev/null")
    assert not computer.tree.is_device(device)

    (computer.block / "sdb/dev").write_text("1:3\n")

    assert computer.tree.is_device(device)
    assert not computer.tree.is_device(Device("sdb", "/dev/zero"))
    assert not computer.tree.is_device(Device("sdb", str(tmp_path / "none")))


def test_the_number_of_an_attachment_is_read(computer):
    computer.add("sdb")
    assert computer.tree.sequence(Device("sdb", "")) == ""

    (computer.block / "sdb/diskseq").write_text("17\n")

    assert computer.tree.sequence(Device("sdb", "")) == "17"
